"""The agent while what it needs is away or wrong: ovs-vswitchd, ovsdb-server, the time of day, file descriptors."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import XENOOVS, CommandLine, finish, running, start
from tests.ovs.dummy import DummyBridge, DummyOvs
from tests.patience import eventually
from xenoovs.agent.control.client import Client
from xenoovs.lab.private_ovs import start_database
from xenoovs.switch.endpoint import answers
from xenoovs.switch.process import run

PROBED = """\
version: 1
switch: {{bridge: ovsbr1, ingress: [p0], egress: p1}}
health:
  probe: exec
  command: [/bin/sh, -c, "test -e {directory}/$XENOOVS_ADDRESS"]
  interval: 500ms
  fast_interval: 250ms
  timeout: 500ms
  fall: 4
drain: {{mode: {drain}, timeout: 60s}}
services:
  - name: web
    vip: 10.3.10.45
    protocol: tcp
    ports: [80]
    backends:
      - {{name: one, mac: 02:00:5e:10:00:02, weight: 1, address: 192.0.2.2}}
      - {{name: two, mac: 02:00:5e:10:00:03, weight: 1, address: 192.0.2.3}}
"""
SILENT = "ovs-vswitchd does not answer"


@dataclass
class Scene:
    """An agent as a process, an Open vSwitch of its own, and two servers that live while there is a file of each."""

    bridge: DummyBridge
    xenoovs: CommandLine
    directory: Path

    @property
    def vswitchd(self) -> int:
        return self.bridge.ovs.pids()[0]

    @property
    def database(self) -> int:
        return self.bridge.ovs.pids()[1]

    @property
    def socket(self) -> Path:
        return self.bridge.ovs.directory / "xenoovs" / "ovsbr1.sock"

    def status(self) -> Any:
        return Client(self.socket).ask("status")["snapshot"]

    def error(self) -> str:
        return str(self.status()["last_error"])

    def states(self) -> dict[str, str]:
        (service,) = self.status()["services"]
        return {backend["name"]: backend["state"] for backend in service["backends"]}

    def first_dies(self) -> None:
        (self.directory / "192.0.2.2").unlink()

    def owners(self) -> set[str]:
        """The MACs that have clients."""
        blocks = [line for line in self.bridge.dump_flows(version="OpenFlow14") if "table=1," in line]
        return {word for line in blocks for word in ("00:02", "00:03") if f"02:00:5e:10:{word}" in line}


@pytest.fixture
def scene(own_ovs: DummyOvs, tmp_path: Path, xenoovs: CommandLine, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """`request.param`: the mode of drains."""
    for address in ("192.0.2.2", "192.0.2.3"):
        (tmp_path / address).touch()
    file = tmp_path / "my.yaml"
    file.write_text(PROBED.format(directory=tmp_path, drain=getattr(request, "param", "none")))
    with own_ovs.bridge() as bridge, running("agent", file, "--db", bridge.ovs.db, "--allow-exec"):
        made = Scene(bridge, xenoovs, tmp_path)
        eventually(lambda: answers(made.socket), "its socket")
        eventually(lambda: made.owners() == {"00:02", "00:03"}, "flows at first")
        yield made


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_stopped_vswitchd_is_reported_while_probes_and_requests_go_on(scene: Scene) -> None:
    with stopped(scene.vswitchd):
        scene.first_dies()
        eventually(lambda: SILENT in scene.error(), "the agent says so")
        eventually(lambda: scene.states() == {"one": "down", "two": "up"}, "the dead one")
        said = scene.xenoovs("weight", "web", "two", "5", "--db", scene.bridge.ovs.db)
        assert said.status == 1
        assert SILENT in said.err
    eventually(lambda: scene.owners() == {"00:03"}, "clients of the dead one lent to the other")
    eventually(lambda: scene.error() == "", "nothing is wrong any more")


def test_a_database_that_is_away_is_reported_and_found_again(scene: Scene) -> None:
    """An ovs-vswitchd of 3.1 serves no client then; when it does again is up to it."""
    os.kill(scene.database, signal.SIGKILL)
    scene.first_dies()
    eventually(lambda: SILENT in scene.error(), "the agent says so")
    start_database(scene.bridge.ovs)
    eventually(lambda: scene.owners() == {"00:03"}, "clients of the dead one lent to the other")
    eventually(lambda: scene.error() == "", "nothing is wrong any more")


@pytest.mark.parametrize("scene", ["none", "pin"], indirect=True)
def test_clients_leave_a_dead_backend_while_the_database_is_stopped(scene: Scene) -> None:
    with stopped(scene.database):
        scene.first_dies()
        eventually(lambda: scene.owners() == {"00:03"}, "clients of the dead one lent to the other")
        assert scene.error() == ""


_JUMPING = """\
import itertools, time
_now, _years = time.time, itertools.cycle((0, -60, 10, -1))
time.time = lambda: _now() + next(_years) * 365.25 * 86400
"""


@pytest.fixture
def jumping(tmp_path: Path) -> dict[str, str]:
    """Python runs sitecustomize before all else (`site` of its library)."""
    (tmp_path / "clock").mkdir()
    (tmp_path / "clock" / "sitecustomize.py").write_text(_JUMPING)
    return {"PYTHONPATH": f"{tmp_path / 'clock'}:{os.environ.get('PYTHONPATH', '')}"}


@contextmanager
def jumping_agent(
    bridge: DummyBridge, config: Path, jumping: dict[str, str]
) -> Iterator[tuple[subprocess.Popen[str], Client]]:
    path = bridge.ovs.directory / "xenoovs" / f"{bridge.name}.sock"
    with running("agent", config, "--db", bridge.ovs.db, env=jumping) as process:
        eventually(lambda: answers(path), "its socket")
        yield process, Client(path)


def test_an_agent_works_and_restarts_while_the_time_of_day_jumps(
    bridge: DummyBridge, config: Path, jumping: dict[str, str]
) -> None:
    with jumping_agent(bridge, config, jumping) as (_, client):
        eventually(lambda: len(bridge.dump_flows()) == 8, "its flows")
        for backend in ("fips2", "fips3"):
            assert client.ask("weight", {"service": "dns", "backend": backend, "weight": 50})["is_applied"]
        weights = [each["weight"] for each in client.ask("status")["snapshot"]["overrides"]]
    with jumping_agent(bridge, config, jumping) as (process, client):
        assert [each["weight"] for each in client.ask("status")["snapshot"]["overrides"]] == weights == [50, 50]
        assert "overrides are lost" not in [event["text"] for event in client.ask("events")["events"]]
        assert process.poll() is None


@pytest.mark.parametrize("command", ["plan", "status", "verify-offload"])
def test_commands_end_while_the_time_of_day_jumps(
    bridge: DummyBridge, config: Path, jumping: dict[str, str], command: str
) -> None:
    said = finish(start(command, config, "--db", bridge.ovs.db, env=jumping))
    assert said.status in (0, 2, 3)
    assert "Traceback" not in said.err


BACKENDS = 600


@pytest.fixture
def silent_network() -> Iterator[str]:
    """A namespace with a network without any other machine: without ARP all packets go to a MAC that none has."""
    name = f"silent{os.getpid()}"
    run(["ip", "netns", "add", name])
    try:
        run(["ip", "-n", name, "link", "add", "d0", "type", "veth", "peer", "name", "d1"])
        run(["ip", "-n", name, "addr", "add", "198.18.0.1/15", "dev", "d0"])
        run(["ip", "-n", name, "link", "set", "d0", "up", "arp", "off"])
        run(["ip", "-n", name, "link", "set", "d1", "up"])
        yield name
    finally:
        run(["ip", "netns", "del", name])


@pytest.fixture
def many(tmp_path: Path, silent_network: str) -> Path:
    """A config of very many backends, none of which answers."""
    path = tmp_path / "many.yaml"
    backends = "".join(
        f"      - {{name: b{i}, mac: 02:00:5e:10:{i >> 8:02x}:{i & 255:02x}, weight: 1,"
        f" address: 198.18.{1 + (i >> 8)}.{i & 255}}}\n"
        for i in range(BACKENDS)
    )
    path.write_text(
        "version: 1\n"
        "switch: {bridge: ovsbr1, ingress: [p0], egress: p1}\n"
        f"health: {{probe: tcp, port: 80, netns: {silent_network}, interval: 2s, timeout: 1500ms, fall: 2}}\n"
        "services:\n"
        "  - name: web\n    vip: 10.3.10.45\n    protocol: tcp\n    ports: [80]\n    tolerance: 80%\n"
        "    backends:\n" + backends
    )
    return path


@contextmanager
def limited_agent(
    bridge: DummyBridge, config: Path, *, soft: int, hard: int
) -> Iterator[tuple[subprocess.Popen[str], Client]]:
    path = bridge.ovs.directory / "xenoovs" / f"{bridge.name}.sock"
    limit = f"--nofile={soft}:{hard}"
    command = ["prlimit", limit, str(XENOOVS), "agent", str(config), "--db", bridge.ovs.db]
    with subprocess.Popen(command, text=True) as process:
        try:
            eventually(lambda: answers(path), "its socket")
            yield process, Client(path)
        finally:
            process.kill()


def backends(client: Client) -> list[dict[str, Any]]:
    (service,) = client.ask("status")["snapshot"]["services"]
    found: list[dict[str, Any]] = service["backends"]
    return found


def texts(client: Client) -> list[str]:
    return [event["text"] for event in client.ask("events")["events"]]


def test_the_soft_limit_of_descriptors_is_raised(bridge: DummyBridge, many: Path) -> None:
    with limited_agent(bridge, many, soft=256, hard=4096) as (process, client):
        eventually(lambda: all(each["state"] == "down" for each in backends(client)), "all are down")
        assert {each["reason"] for each in backends(client)} == {"no answer within 1.5s"}
        assert process.poll() is None


def test_too_few_descriptors_make_health_checks_late_and_no_backend_down(bridge: DummyBridge, many: Path) -> None:
    with limited_agent(bridge, many, soft=320, hard=320) as (process, client):
        eventually(lambda: client.ask("status")["snapshot"]["probes_late_s"] > 0, "health checks are late")
        eventually(lambda: all(each["state"] == "down" for each in backends(client)), "all are down")
        assert {each["reason"] for each in backends(client)} == {"no answer within 1.5s"}
        eventually(lambda: "health checks are late" in texts(client), "the event")
        assert process.poll() is None
