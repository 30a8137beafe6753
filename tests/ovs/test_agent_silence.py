"""The agent while what it needs is away or wrong: ovs-vswitchd, ovsdb-server, bridge, ports, the time, descriptors."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import XENOOVS, CommandLine, running
from tests.ovs.agents import running_agent
from tests.ovs.dummy import DummyBridge, DummyOvs
from tests.patience import eventually
from xenoovs.agent.control.client import Client
from xenoovs.agent.daemon import Agent
from xenoovs.agent.probe.check import Check, ProbeResult
from xenoovs.lab.private_ovs import Datapath, start_database, start_vswitchd
from xenoovs.show.conditions import is_as_desired, troubles
from xenoovs.switch.endpoint import answers
from xenoovs.switch.process import try_run

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


FLOWS = 8
_LONG_S = 1000.0
"""A comparison that never comes: what is corrected is so because the database reported it."""


def flows(bridge: DummyBridge) -> list[str]:
    """None while there is nobody to ask."""
    argv = ["ovs-ofctl", "-O", "OpenFlow14", "--names", "--no-stats", "dump-flows", bridge.management]
    said = try_run(argv, env=bridge.ovs.env, timeout_s=10)
    return sorted(line.strip() for line in said.stdout.splitlines() if "_FLOW reply" not in line)


def test_flows_come_back_on_a_bridge_made_anew(dummy_ovs: DummyOvs, config: Path) -> None:
    with dummy_ovs.bridge() as bridge, running_agent(config, dummy_ovs.ovs.directory) as agent:
        eventually(lambda: len(flows(bridge)) == FLOWS, "flows at first")
        before = flows(bridge)
        dummy_ovs.ovs.vsctl("del-br", bridge.name)
        eventually(lambda: agent.state.round.error != "", "its loss is noticed")
        with dummy_ovs.bridge() as anew:
            eventually(lambda: flows(anew) == before, "flows on the new bridge")
        assert agent.state.round.foreign == 0


def texts(agent: Agent) -> list[str]:
    return [event.text for event in agent.events.since(0)]


def test_a_port_made_anew_gets_its_flows_at_once(bridge: DummyBridge, config: Path) -> None:
    with running_agent(config, bridge.ovs.directory, resync_s=_LONG_S) as agent:
        eventually(lambda: len(flows(bridge)) == FLOWS, "flows at first")
        before = flows(bridge)
        bridge.ovs.vsctl("del-port", "p1")
        eventually(lambda: "port removed from the bridge" in texts(agent), "news of the port")
        bridge.ovs.vsctl("add-port", "ovsbr1", "p1", "--", "set", "interface", "p1", "type=dummy", "ofport_request=9")
        eventually(lambda: flows(bridge) == before, "flows to the new port")
        assert "output:p1" in "".join(before)
        numbered = bridge.ofctl("dump-flows", "--no-names")
        assert "output:9" in numbered
        assert "output:2" not in numbered


def test_status_names_a_database_that_is_away_at_once_and_both_daemons_come_back(
    own_ovs: DummyOvs, config: Path
) -> None:
    with own_ovs.bridge() as bridge, running_agent(config, own_ovs.ovs.directory, resync_s=_LONG_S) as agent:
        eventually(lambda: bool(agent.ports()) and is_as_desired(agent.lazy_snapshot().snapshot()), "all is well")
        before = flows(bridge)
        vswitchd, database = own_ovs.ovs.pids()
        os.kill(database, signal.SIGKILL)
        eventually(lambda: agent.ports() is None, "the loss is noticed")
        away = agent.lazy_snapshot().snapshot()
        assert not is_as_desired(away)
        assert [words.split(":")[0] for words, _ in troubles(away)] == ["port and link state unavailable"]
        os.kill(vswitchd, signal.SIGKILL)
        time.sleep(0.5)
        start_database(own_ovs.ovs)
        start_vswitchd(own_ovs.ovs, datapath=Datapath.DUMMY)
        eventually(lambda: flows(bridge) == before, "flows after both came back")
        eventually(lambda: is_as_desired(agent.lazy_snapshot().snapshot()), "all is well again")
        assert (agent.state.round.foreign, texts(agent).count("database of Open vSwitch answers again")) == (0, 1)


_TWO_SERVICES = """\
version: 1
switch: {bridge: ovsbr1, ingress: [p0], egress: p1, other_traffic: drop}
services:
  - name: dns
    protocol: udp
    ports: [53]
    health: {probe: icmp, interval: 200ms, timeout: 100ms, fall: 2, rise: 2}
    backends:
      - {name: near, mac: 02:00:00:00:00:01, weight: 1, address: 192.0.2.1}
      - {name: far, mac: 02:00:00:00:00:02, weight: 1, egress: p2, address: 192.0.2.2}
  - name: web
    protocol: tcp
    ports: [80]
    health: {probe: icmp, interval: 200ms, timeout: 100ms, fall: 2, rise: 2}
    backends:
      - {name: one, mac: 02:00:00:00:00:03, weight: 1, address: 192.0.2.3}
      - {name: two, mac: 02:00:00:00:00:04, weight: 1, address: 192.0.2.4}
"""


def serve(bridge: DummyBridge, *wanted: str) -> Callable[[], bool]:
    """Whether these last octets of MACs, and no others, get clients."""
    return lambda: (
        {flow.partition("mod_dl_dst:")[2][15:17] for flow in bridge.ours() if "table=1," in flow} == {*wanted}
    )


def test_a_backend_behind_a_port_that_is_gone_holds_nothing_else_back(own_ovs: DummyOvs, config: Path) -> None:
    """Another service's backend dies, and Open vSwitch restarts, while the port is away; then all is as before."""
    config.write_text(_TWO_SERVICES)
    dead = set[int]()

    async def probe(check: Check, *, timeout_s: float) -> ProbeResult:
        return ProbeResult(ok=int(check.address) % 256 not in dead, latency_s=0.0, reason="")

    with (
        own_ovs.bridge(ports=("p0", "p1", "p2")) as bridge,
        running_agent(config, own_ovs.ovs.directory, probe=probe) as agent,
    ):
        eventually(serve(bridge, "01", "02", "03", "04"), "all serve")
        before = bridge.dump_flows()
        own_ovs.ovs.vsctl("del-port", "ovsbr1", "p2")
        eventually(serve(bridge, "01", "03", "04"), "clients of the backend behind p2 are with the other one")
        eventually(lambda: agent.lazy_snapshot().snapshot().problems != (), "the round ends after its flows are there")
        snapshot = agent.lazy_snapshot().snapshot()
        assert snapshot.problems == ("port p2 is on no bridge (ovsbr1 has p0, p1); no clients for dns/far",)
        assert not is_as_desired(snapshot)
        (far,) = (one for service in snapshot.services for one in service.backends if one.name == "far")
        assert (far.is_ejected, far.reason) == (True, "port p2 is on no bridge")
        dead.add(3)
        eventually(serve(bridge, "01", "04"), "the dead backend of another service has no clients")
        os.kill(own_ovs.ovs.pids()[0], signal.SIGKILL)
        eventually(lambda: bool(agent.state.round.error), "the agent notices")
        start_vswitchd(own_ovs.ovs, datapath=Datapath.DUMMY)
        eventually(serve(bridge, "01", "04"), "flows of all that can be reached")
        dead.clear()
        eventually(serve(bridge, "01", "03", "04"), "it answers again")
        own_ovs.ovs.vsctl("add-port", "ovsbr1", "p2", "--", "set", "interface", "p2", "type=dummy")
        eventually(lambda: sorted(bridge.dump_flows()) == sorted(before), "exactly the flows of before")
        eventually(lambda: agent.lazy_snapshot().snapshot().problems == (), "nothing is wrong any more")
