"""xenoovs as an application beside another one: each has its own bridges, and neither disturbs the other."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import trustme

from tests.command_line import SMALL_CONFIG, finish, start
from tests.ovs.certificates import certificates, give_to_switch
from tests.ovs.dummy import DummyBridge, DummyOvs, udp_packet
from tests.ovs.ways import free_port
from tests.patience import PATIENCE_S, eventually
from xenoovs.switch.certificates import Certificates

_LAUNCHER = (
    "{fault}; import json, sys; from os_ken.base.app_manager import AppManager; from os_ken import cfg; "
    "import os_ken.controller.controller, os_ken.topology.switches; "
    "cfg.CONF(json.loads(sys.argv[1])); AppManager.run_apps(sys.argv[2:])"
)
PAGE = Path(__file__).parents[2] / "docs/how-to/ryu.md"
Pair = tuple[DummyBridge, DummyBridge]
_OURS, _OTHER = "xenoovs.ryu_app", "tests.ovs.other_ryu_app"


@pytest.fixture(scope="module")
def several(dummy_ovs: DummyOvs) -> Iterator[Pair]:
    """Our bridge and one of the other application."""
    with (
        dummy_ovs.bridge(ports=("p0", "p1", "p2")) as ours,
        dummy_ovs.bridge("br-other", ports=("o0", "o1")) as theirs,
    ):
        yield ours, theirs


class Launcher:
    """A launcher with applications. `said`: what the other application has printed, by what it says."""

    def __init__(self, apps: tuple[str, ...], env: dict[str, str], *, tls: Certificates | None, fault: str) -> None:
        self.port = free_port()
        self.target = f"{'tcp' if tls is None else 'ssl'}:127.0.0.1:{self.port}"
        where = ["--ofp-listen-host", "127.0.0.1", "--ofp-tcp-listen-port", str(self.port)]
        if tls is not None:
            files = ["--ctl-privkey", tls.key, "--ctl-cert", tls.certificate, "--ca-certs", tls.authority]
            where += ["--ofp-ssl-listen-port", str(self.port), *map(str, files)]
        argv = [sys.executable, "-c", _LAUNCHER.format(fault=fault), json.dumps(where), *apps]
        self.process = subprocess.Popen(
            argv,
            env={**os.environ, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said: list[Any] = []
        self.log: list[str] = []
        self._readers = [Thread(target=self._read), Thread(target=self._read_log)]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.said += (json.loads(line) if line.startswith("[") else line.strip() for line in self.process.stdout)

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        self.log += self.process.stderr

    def about(self, word: str) -> list[list[Any]]:
        """Return what the events of a kind are about."""
        return [line[1:] for line in tuple(self.said) if line[0] == word]

    def logged(self, text: str) -> list[str]:
        return [line for line in tuple(self.log) if text in line]

    def ask(self, *request: object) -> None:
        """Let the other application ask ours: a route of the control API, and the values of its body."""
        assert self.process.stdin is not None
        print(json.dumps(request), file=self.process.stdin, flush=True)

    def close(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)
        for reader in self._readers:
            reader.join(PATIENCE_S)


@contextmanager
def launched(
    bridges: Pair,
    directory: Path,
    apps: tuple[str, ...] = (_OURS, _OTHER),
    *,
    tls: Certificates | None = None,
    fault: str = "pass",
    health: str = "",
    **env: str,
) -> Iterator[Launcher]:
    """`fault`: what Python runs first. `health`: a line of the config."""
    config = directory / "config.yaml"
    config.write_text(health + SMALL_CONFIG.replace("weight: 30}", "weight: 30, egress: p2}"))
    more = {"XENOOVS_CONFIG": str(config), "OSKEN_HUB_TYPE": "native", "OVS_RUNDIR": str(bridges[0].ovs.directory)}
    launcher = Launcher(apps, {**more, **env}, tls=tls, fault=fault)
    try:
        connect(bridges, launcher.target)
        yield launcher
    finally:
        for bridge in bridges:
            bridge.ovs.vsctl("del-controller", bridge.name)
        launcher.close()
        print(*launcher.log, *launcher.said, sep="\n")  # where a test fails, this says why


def connect(bridges: tuple[DummyBridge, ...], target: str) -> None:
    """Let bridges connect to a launcher, all at once."""
    words = list[str]()
    for bridge in bridges:
        words += ["--", "set-controller", bridge.name, target]
        words += ["--", "set", "controller", bridge.name, "max_backoff=1000", "connection_mode=out-of-band"]
    bridges[0].ovs.vsctl(*words)


def datapath_of(bridge: DummyBridge) -> int:
    return int(bridge.ovs.vsctl("get", "bridge", bridge.name, "datapath_id").strip().strip('"'), 16)


def has_flows(bridge: DummyBridge) -> bool:
    return any("mod_dl_dst" in flow or "set_field" in flow for flow in bridge.dump_flows())


@pytest.mark.parametrize(
    ("apps", "is_tls"), [((_OURS, _OTHER), False), ((_OTHER, _OURS), True)], ids=["ours first, tcp", "ours last, tls"]
)
def test_bug_another_application_got_no_events_and_its_bridge_was_refused(
    several: Pair, tmp_path: Path, *, apps: tuple[str, ...], is_tls: bool
) -> None:
    """Bridges of both kinds connect at once, and again."""
    ours, theirs = several
    authority = trustme.CA()
    tls, switch = (certificates(authority, tmp_path, name) for name in ("controller", "switch"))
    give_to_switch(ours.ovs, switch)
    number = datapath_of(theirs)
    with launched(several, tmp_path, apps, tls=tls if is_tls else None) as launcher:
        eventually(lambda: has_flows(ours), "our flows")
        eventually(lambda: [number, "main"] in launcher.about("state"), "the other bridge at the other application")
        assert launcher.about("features") == [[number]]
        eventually(lambda: any("CONTROLLER" in flow for flow in theirs.dump_flows()), "its flow")
        theirs.send("o0", [udp_packet("192.0.2.7")])
        eventually(lambda: launcher.about("packet") == [[number, 1, 7]], "its packet")
        theirs.ovs.appctl("netdev-dummy/set-admin-state", "o1", "down")
        eventually(lambda: [number, "o1"] in launcher.about("port"), "its port")
        theirs.ovs.appctl("netdev-dummy/set-admin-state", "o1", "up")
        for times in range(1, 4):
            eventually(partial(is_times, launcher, "enter", datapath_of(ours), times), "our bridge")
            eventually(partial(is_times, launcher, "features", number, times), "the other bridge")
            eventually(lambda: has_flows(ours), "our flows")
            ours.ovs.vsctl("del-controller", ours.name, "--", "del-controller", theirs.name)
            eventually(partial(is_times, launcher, "leave", datapath_of(ours), times), "the end of ours")
            connect(several, launcher.target)
        eventually(partial(is_times, launcher, "features", number, 4), "the other bridge")
        theirs.send("o0", [udp_packet("192.0.2.13")])
        eventually(lambda: [number, 1, 13] in launcher.about("packet"), "a packet")
        # Nothing that it saw is of our bridge.
        assert {line[0] for line in launcher.about("state")} <= {number, None}
        assert not launcher.logged("bridge refused")


def is_times(launcher: Launcher, word: str, number: int, times: int) -> bool:
    return launcher.about(word).count([number]) == times


def test_others_observe_ours_and_ask_it_beside_200_changes(several: Pair, tmp_path: Path) -> None:
    """Also by the control API, where the framework has none."""
    (ours, theirs), token = several, tmp_path / "token"
    token.write_text("0123456789abcdef")
    token.chmod(0o600)
    with launched(several, tmp_path, XENOOVS_API="127.0.0.1:0", XENOOVS_TOKEN_FILE=str(token)) as launcher:
        eventually(lambda: [datapath_of(theirs), "main"] in launcher.about("state"), "the other bridge")
        eventually(lambda: ["ovsbr1", "dns", "new"] in launcher.about("service"), "our service")
        eventually(lambda: launcher.about("sample")[:1] == [["ovsbr1"]], "a sample of hardware offload")
        for number in range(200):
            launcher.ask("weight", {"service": "dns", "backend": "fips2", "weight": number % 2 + 1})
        launcher.ask("weight", {"service": "dns", "backend": "nobody", "weight": 1})
        launcher.ask("status")
        hosts = range(1, 41)
        for host in hosts:
            theirs.send("o0", [udp_packet(f"192.0.2.{host}")])
        eventually(lambda: len(launcher.about("reply")) == 202, "all answers")
        *done, missing, status = launcher.about("reply")
        assert {reply[0] for reply in done} == {200}
        assert (missing[0], missing[1]["error"]["code"]) == (404, "unknown_backend")
        assert (status[0], status[1]["snapshot"]["bridge"]) == (200, "ovsbr1")
        eventually(lambda: len(launcher.about("backend")) == 200, "all changes")
        changes = ((f"weight {2 - number % 2} by an operator", number) for number in range(1, 201))
        assert launcher.about("backend") == [["ovsbr1", "dns", "fips2", *change] for change in changes]
        eventually(lambda: len(launcher.about("packet")) == len(hosts), "all packets of the other bridge")
        assert [packet[2] for packet in launcher.about("packet")] == [*hosts]
        # The first one made all flows, and each weight has others.
        eventually(lambda: len(launcher.about("program")) == 201, "all programs")
        assert launcher.about("service") == [["ovsbr1", "dns", "new"], *[["ovsbr1", "dns", "changed"]] * 200]
        # Our bridge enters the topology, and takes no messages.
        assert [datapath_of(ours)] in launcher.about("enter")
        assert launcher.about("ports") == [[["p0", "p1", "p2"]]]
        assert launcher.about("sent") == [[False]]
        assert launcher.logged("a message of another application is refused: xenoovs controls the bridge bridge=ovsbr1")
        (line,) = launcher.logged("listening at=http://")
        where = line.partition("at=http://")[2].strip()
        assert ask(where, "GET", "/v1/status", "wrong")[0] == 401
        body = {"service": "dns", "backend": "fips3"}
        assert ask(where, "POST", "/v1/drain", token.read_text(), body)[0] == 200
        drained = ["ovsbr1", "dns", "fips3", "drained by an operator", 1]
        eventually(lambda: launcher.about("backend")[200:] == [drained], "the other application learns of it")
        said = finish(start("status", "--db", ours.ovs.db))
        assert (said.status, "drained" in said.out) == (0, True), said.err
        launcher.process.send_signal(signal.SIGKILL)
        launcher.process.wait(PATIENCE_S)
        assert has_flows(ours)


@pytest.mark.parametrize("is_ended", [True, False], ids=["our end", "an exception"])
def test_bug_an_exception_of_ours_looked_as_if_the_switch_had_closed_the_connection(
    several: Pair, tmp_path: Path, *, is_ended: bool
) -> None:
    """It is logged as what it is, and ends its own connection alone; so do malformed switches."""
    _, theirs = several
    number = datapath_of(theirs)
    fault = "from xenoovs.controller.registry import Registry as r; r.session_received = lambda *_: [][7]"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        api = address if is_ended else "127.0.0.1:0"
        with launched(several, tmp_path, fault="pass" if is_ended else fault, XENOOVS_API=api) as launcher:
            if is_ended:
                eventually(lambda: bool(launcher.logged("xenoovs has ended")), "our end")
                launcher.ask("status")
                eventually(lambda: [reply[0] for reply in launcher.about("reply")] == [503], "an answer")
            else:
                failed = "internal error; a connection is closed bridge=ovsbr1 "
                eventually(lambda: len(launcher.logged(failed)) > 1, "our bridge came again, and failed again")
                assert all("IndexError('list index out of range')" in line for line in launcher.logged(failed))
            eventually(lambda: [number, "main"] in launcher.about("state"), "the other bridge")
            for message in (b"\x05\x00\x00\x04\0\0\0\0", b"GET / HTTP/1.1\r\n\r\n", b"\x05\x06\x00\x20" + bytes(28)):
                with socket.create_connection(("127.0.0.1", launcher.port)) as peer:
                    peer.sendall(message)
                    peer.settimeout(PATIENCE_S)
                    while peer.recv(4096):
                        pass
            theirs.send("o0", [udp_packet("192.0.2.9")])
            eventually(lambda: launcher.about("packet") == [[number, 1, 9]], "its packet")
            assert [number, "dead"] not in launcher.about("state")


def ask(where: str, method: str, path: str, token: str = "", body: object = None) -> tuple[int, Any]:
    connection = HTTPConnection(where, timeout=PATIENCE_S)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def test_the_application_of_the_page_prints_when_a_backend_that_a_program_probes_dies(
    several: Pair, tmp_path: Path
) -> None:
    ours, _ = several
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(code.splitlines()) <= 20
    (tmp_path / "my_app.py").write_text(code)
    places, health = f"{tmp_path}:{Path.cwd()}", "health: {probe: exec, command: [/bin/true]}\n"
    apps = (_OURS, "my_app")
    with launched(several, tmp_path, apps, health=health, PYTHONPATH=places, XENOOVS_ALLOW_EXEC="1") as launcher:
        eventually(lambda: has_flows(ours), "our flows")
        ours.ovs.appctl("netdev-dummy/set-admin-state", "p2", "down")
        eventually(lambda: launcher.said == ["dns/fips3 on ovsbr1: port p2 has no link"], "its line")
        ours.ovs.appctl("netdev-dummy/set-admin-state", "p2", "up")
