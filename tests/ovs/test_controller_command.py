"""`xenoovs controller` as a user runs it: ports without link, sudden death, and the same flows as `apply`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice
from pathlib import Path

import pytest

from tests.command_line import SMALL_CONFIG, CommandLine, finish, running, start
from tests.ovs.dummy import DummyBridge, DummyOvs, kill_and_start_vswitchd, udp_packet
from tests.ovs.test_agent_control import samples
from tests.patience import PATIENCE_S, eventually

CONFIG = SMALL_CONFIG.replace("weight: 30}", "weight: 30, egress: p2}")


def controller(
    config: Path, bridge: DummyBridge, *options: str, listen: str | None = "127.0.0.1:0"
) -> AbstractContextManager[subprocess.Popen[str]]:
    """A process that listens wherever there is room, until the end of the `with`. `listen`: None: as by default."""
    where = () if listen is None else ("--listen", listen)
    return running("controller", config, "--db", bridge.ovs.db, *where, "--log", "json", *options)


def _link(bridge: DummyBridge, port: str, state: str) -> None:
    bridge.ovs.appctl("netdev-dummy/set-admin-state", port, state)


def _backends(bridge: DummyBridge) -> set[str]:
    """The last bytes of the MACs to which table 1 leads."""
    return {flow.partition("mod_dl_dst:02:00:5e:10:00:")[2][:2] for flow in bridge.ours() if "table=1," in flow}


@pytest.mark.each_release
def test_the_flows_are_those_of_apply(wide: DummyBridge, config: Path, xenoovs: CommandLine) -> None:
    """Also of one that ends after the first round."""
    with controller(config, wide, "--attach"):
        eventually(lambda: _backends(wide) == {"02", "03"}, "all flows")
        by_controller = wide.ours()
    wide.ovs.vsctl("del-controller", wide.name)
    assert wide.ours() == []
    once = ("controller", config, "--attach", "--once", "--db", wide.ovs.db)
    assert finish(start(*once)).status == 0
    assert wide.ours() == by_controller
    wide.ovs.vsctl("del-controller", wide.name)
    assert xenoovs("apply", config, "--yes", "--db", wide.ovs.db).status == 0
    assert wide.ours() == by_controller


@pytest.mark.each_release
def test_backends_behind_a_port_without_link_or_that_is_gone_are_out_until_it_is_back(
    wide: DummyBridge, config: Path
) -> None:
    """Also when it is down at the start."""
    _link(wide, "p2", "down")
    try:
        with controller(config, wide, "--attach", "--resync", "1h") as process:
            eventually(lambda: _backends(wide) == {"02"}, "only the backend that can be reached")
            _link(wide, "p2", "up")
            eventually(lambda: _backends(wide) == {"02", "03"}, "all flows")
            before = wide.ours()
            _link(wide, "p2", "down")
            eventually(lambda: _backends(wide) == {"02"}, "clients of fips3 are with fips2")
            _link(wide, "p2", "up")
            eventually(lambda: wide.ours() == before, "exactly the same as before")
            wide.ovs.vsctl("del-port", wide.name, "p2")
            eventually(lambda: _backends(wide) == {"02"}, "clients of fips3 are with fips2")
            wide.ovs.vsctl("add-port", wide.name, "p2", "--", "set", "interface", "p2", "type=dummy")
            eventually(lambda: wide.ours() == before, "exactly the same as before")
            process.send_signal(signal.SIGTERM)
            said = finish(process)
    finally:
        _link(wide, "p2", "up")
    assert said.status == 0
    events = [json.loads(line) for line in said.err.splitlines()]
    ports = [(event["level"], event["event"], event["port"]) for event in events if event["event"].startswith("port ")]
    assert ("warning", "port down", "p2") in ports
    assert ("info", "port up", "p2") in ports
    reasons = [event["reason"] for event in events if event["event"] == "part of the bridge cannot be reconciled"]
    assert reasons == ["port p2 is on no bridge (ovsbr1 has p0, p1); no clients for dns/fips3"]


@pytest.mark.each_release
def test_flows_that_others_change_are_put_right_at_once(wide: DummyBridge, config: Path) -> None:
    with controller(config, wide, "--attach", "--resync", "1h") as process:
        assert process.stderr is not None
        assert _tells_of_a_change(process.stderr)
        before = wide.ours()
        for change in (("del-flows", "table=1,ip"), ("del-flows",), ("mod-flows", "table=1,ip,actions=drop")):
            wide.ofctl(*change)
            assert _tells_of_a_change(process.stderr), change
            assert wide.ours() == before
        wide.add_flows("add cookie=0x5,priority=5000,arp actions=NORMAL\n")
        process.send_signal(signal.SIGTERM)
        said = finish(process)
    assert "flows changed" not in said.err
    assert len(wide.dump_flows()) == len(before) + 1


def _tells_of_a_change(log: Iterable[str]) -> bool:
    return any('"flows changed"' in line for line in log)


def test_a_bridge_that_would_forget_its_flows_is_told(wide: DummyBridge, config: Path) -> None:
    wide.ovs.vsctl("set-fail-mode", wide.name, "standalone")
    with controller(config, wide) as process:
        assert process.stderr is not None
        told = next(line for line in process.stderr if "drops its flows" in line)
    assert json.loads(told)["remedy"] == "ovs-vsctl set-fail-mode ovsbr1 secure"


def test_it_needs_no_framework(wide: DummyBridge, config: Path) -> None:
    hidden = "import sys; sys.modules.update(os_ken=None, ryu=None); from xenoovs.cli.main import main; main()"
    options = ("controller", str(config), "--attach", "--once", "--db", wide.ovs.db)
    argv = [sys.executable, "-c", hidden, *options]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    assert _backends(wide) == {"02", "03"}


def _mode(path: Path) -> str:
    return f"{path.stat().st_mode & 0o777:o}"


def test_local_bridges_connect_by_a_socket_that_other_users_cannot_open(wide: DummyBridge, config: Path) -> None:
    """Found when any local process could connect to the TCP port and stand in for the bridge.

    One that a kill has left is replaced, and one in use is not.
    """
    socket = wide.ovs.directory / "xenoovs.controller"
    with controller(config, wide, "--attach", listen=None):
        eventually(lambda: _backends(wide) == {"02", "03"}, "all flows")
        assert wide.ovs.vsctl("get-controller", wide.name).strip() == "unix:xenoovs.controller"
    assert socket.is_socket()
    with controller(config, wide, "--attach", listen=None) as process:
        assert process.stderr is not None
        assert any('"bridge connected"' in line for line in process.stderr)
        assert _mode(socket) == "600"
        tcp = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout
        assert f"pid={process.pid}," not in tcp
        options = ("--redundant", "--control", config.with_name("other.sock"))
        other = finish(start("controller", config, "--db", wide.ovs.db, *options))
        assert (other.status, "Address already in use; name another with --listen" in other.err) == (1, True)
        process.send_signal(signal.SIGTERM)
        assert finish(process).status == 0
    assert not socket.exists()


def test_a_socket_that_vanishes_comes_back(own_ovs: DummyOvs, config: Path) -> None:
    """Where systemd removes the run directory of a stopped Open vSwitch, the socket goes with it."""
    with own_ovs.bridge(ports=("p0", "p1", "p2")) as bridge, controller(config, bridge, "--attach", listen=None):
        eventually(lambda: _backends(bridge) == {"02", "03"}, "all flows")
        socket = bridge.ovs.directory / "xenoovs.controller"
        socket.unlink()
        eventually(socket.is_socket, "it is there again")
        assert _mode(socket) == "600"
        kill_and_start_vswitchd(bridge.ovs)
        eventually(lambda: _backends(bridge) == {"02", "03"}, "all flows again")


def test_of_a_switch_elsewhere_flows_are_counted(wide: DummyBridge, config: Path, tmp_path: Path) -> None:
    """No program of Open vSwitch can be run, and there is no database: all that is known came by OpenFlow."""
    env, control = {"PATH": str(tmp_path), "OVS_RUNDIR": str(tmp_path)}, tmp_path / "xenoovs" / "ovsbr1.sock"
    options = ("--listen", "127.0.0.1:0", "--web", "127.0.0.1:0", "--offload-interval", "100ms", "--log", "json")
    with running("controller", config, *options, env=env) as process:
        assert process.stderr is not None
        places = (str(json.loads(line).get("at", "")) for line in process.stderr)
        target, url = islice((at for at in places if at.startswith(("tcp:", "http:"))), 2)
        wide.ovs.vsctl("set-controller", wide.name, target)
        for number in range(1, 3):
            # Flows that are made anew begin to count anew: what was counted stays.
            eventually(lambda: _backends(wide) == {"02", "03"}, "all flows")
            wide.send("p0", [udp_packet(f"198.51.100.{client}") for client in range(40)])
            sent = {name: len(wide.sent(port)) for name, port in (("fips2", "p1"), ("fips3", "p2"))}
            assert (sum(sent.values()), min(sent.values()) > 0) == (40 * number, True)
            wanted = {(name, "unknown", "dns"): packets for name, packets in sent.items()}
            eventually(partial(_counts, url, "packets", wanted), "the packets of each backend")
            assert _counts(url, "bytes", {key: 100 * packets for key, packets in wanted.items()})
            said = finish(start("status", "--control", control, "-o", "json"))
            backends = json.loads(said.out)["snapshot"]["services"][0]["backends"]
            assert {one["name"]: (one["counted"]["packets"], one["traffic"]) for one in backends} == {
                name: (packets, None) for name, packets in sent.items()
            }
            wide.ofctl("del-flows", "table=1,ip")
        assert samples(url, "xenoovs_service_offload_ratio") == {}


def _counts(url: str, what: str, wanted: Mapping[tuple[str, str, str], int]) -> bool:
    return samples(url, f"xenoovs_backend_{what}_total") == wanted


@pytest.mark.each_release
def test_the_switch_fails_over_while_its_controller_stands_still(wide: DummyBridge, config: Path) -> None:
    config.write_text(CONFIG.replace("egress: p1}", "egress: p1, failover: in_switch}"))

    def blocks() -> list[str]:
        return sorted(flow for flow in wide.dump_flows(version="OpenFlow14") if "table=1," in flow)

    def sent() -> list[int]:
        """How many of 64 packets, each of another client, leave by p1 and by p2."""
        wide.settle(removed_s=0)
        before = [len(wide.sent(port)) for port in ("p1", "p2")]
        wide.send("p0", [udp_packet(f"198.51.100.{number}") for number in range(64)])
        return [len(wide.sent(port)) - number for port, number in zip(("p1", "p2"), before, strict=True)]

    with controller(config, wide, "--attach") as process:
        try:
            eventually(lambda: wide.ofctl("dump-groups").count("group_id=") == 2, "a group of each order of ports")
            before, shares = blocks(), sent()
            assert min(shares) > 0
            process.send_signal(signal.SIGSTOP)
            _link(wide, "p2", "down")
            assert sent() == [64, 0]
            assert blocks() == before
            process.send_signal(signal.SIGCONT)
            eventually(lambda: blocks() != before, "the controller ejects the backend")
            assert sent() == [64, 0]
            _link(wide, "p2", "up")
            eventually(lambda: blocks() == before, "the flows are as before")
            assert sent() == shares
        finally:
            process.send_signal(signal.SIGCONT)
            _link(wide, "p2", "up")


def test_as_an_application_of_the_framework_it_uses_the_lab_of_the_environment(config: Path) -> None:
    code = (
        "import sys; from xenoovs.terminal import options; "
        "options.find_lab = lambda given: ('x', 'XENOOVS_LAB'); options.forward_to_vm = lambda *_: None; "
        "from xenoovs import ryu_app as app; "
        "app.endpoint_of = lambda db, lab: (db, lab); "
        "app.configured_bridges = lambda options, local: "
        "sys.exit(f'{local.endpoint} {options.is_controller} {options.lab}'); "
        "app.XenoovsApp()"
    )
    env = {**os.environ, "XENOOVS_CONFIG": str(config), "OSKEN_HUB_TYPE": "native"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == "(None, 'x') True x"
