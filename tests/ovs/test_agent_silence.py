"""The agent while what it needs is away or wrong: ovs-vswitchd, ovsdb-server, the time of day, file descriptors."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import XENOOVS, CommandLine, running
from tests.ovs.dummy import DummyBridge, DummyOvs
from tests.patience import eventually
from xenoovs.agent.control.client import Client
from xenoovs.lab.private_ovs import start_database
from xenoovs.switch.endpoint import answers

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


def test_an_agent_works_and_restarts_while_the_time_of_day_jumps(
    bridge: DummyBridge, config: Path, tmp_path: Path
) -> None:
    # Python runs sitecustomize before all else (`site` of its library).
    (tmp_path / "sitecustomize.py").write_text(_JUMPING)
    env = {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    path = bridge.ovs.directory / "xenoovs" / f"{bridge.name}.sock"
    client, weights = Client(path), list[int]()
    for is_new in (True, False):
        with running("agent", config, "--db", bridge.ovs.db, env=env) as process:
            eventually(lambda: answers(path), "its socket")
            eventually(lambda: len(bridge.dump_flows()) > 1, "its flows")
            for backend in ("fips2", "fips3") if is_new else ():
                assert client.ask("weight", {"service": "dns", "backend": backend, "weight": 50})["is_applied"]
            weights += [each["weight"] for each in client.ask("status")["snapshot"]["overrides"]]
            assert "overrides are lost" not in [event["text"] for event in client.ask("events")["events"]]
            assert process.poll() is None
    assert weights == [50, 50, 50, 50]


def test_the_soft_limit_of_descriptors_is_raised(bridge: DummyBridge, config: Path) -> None:
    command = ["prlimit", "--nofile=256:4096", str(XENOOVS), "agent", str(config), "--db", bridge.ovs.db]
    with subprocess.Popen(command, text=True) as process:
        try:
            eventually(lambda: bool(bridge.dump_flows()), "its flows")
            limits = Path(f"/proc/{process.pid}/limits").read_text()
            assert re.findall(r"^Max open files +(\d+) +(\d+)", limits, re.MULTILINE) == [("4096", "4096")]
        finally:
            process.kill()
