"""What cannot be made right holds nothing else back: ports that are gone, and flows of others in the place of ours."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.command_line import CommandLine
from tests.ovs.agents import running_agent
from tests.ovs.dummy import DummyBridge, DummyOvs
from tests.patience import eventually
from xenoovs.agent.probe.target import IcmpTarget, ProbeResult, Target
from xenoovs.lab.private_ovs import Datapath, start_vswitchd
from xenoovs.show.conditions import is_as_desired

PORTS = ("p0", "p1", "p2")
CONFIG = """\
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


@dataclass
class Backends:
    """They answer unless their number is among the dead."""

    dead: set[int] = field(default_factory=set)

    async def probe(self, target: Target, *, timeout_s: float) -> ProbeResult:
        assert isinstance(target, IcmpTarget)
        ok = int(target.address) % 256 not in self.dead
        return ProbeResult(ok=ok, latency_s=0.0, reason="answered" if ok else "no answer")


def serving(bridge: DummyBridge) -> set[str]:
    """The last octets of the MACs that get clients."""
    flows = [flow for flow in bridge.dump_flows() if "table=1," in flow and "mod_dl_dst:" in flow]
    return {flow.split("mod_dl_dst:")[1][15:17] for flow in flows}


def serve(bridge: DummyBridge, wanted: set[str]) -> Callable[[], bool]:
    return lambda: serving(bridge) == wanted


def test_a_backend_behind_a_port_that_is_gone_holds_nothing_else_back(own_ovs: DummyOvs, config: Path) -> None:
    """Another service's backend dies, and Open vSwitch restarts, while the port is away; then all is as before."""
    backends = Backends()
    with (
        own_ovs.bridge(ports=PORTS) as bridge,
        running_agent(config, own_ovs.ovs.directory, probe=backends.probe) as agent,
    ):
        eventually(serve(bridge, {"01", "02", "03", "04"}), "all serve")
        before = bridge.dump_flows()
        own_ovs.ovs.vsctl("del-port", "ovsbr1", "p2")
        eventually(serve(bridge, {"01", "03", "04"}), "clients of the backend behind p2 are with the other one")
        eventually(lambda: agent.snapshot().problems != (), "the round ends after its flows are there")
        snapshot = agent.snapshot()
        assert snapshot.problems == ("port p2 is on no bridge (ovsbr1 has p0, p1); no clients for dns/far",)
        assert not is_as_desired(snapshot)
        (far,) = (one for service in snapshot.services for one in service.backends if one.name == "far")
        assert (far.is_ejected, far.reason) == (True, "port p2 is on no bridge")
        backends.dead.add(3)
        eventually(serve(bridge, {"01", "04"}), "the dead backend of another service has no clients")
        os.kill(own_ovs.ovs.pids()[0], signal.SIGKILL)
        eventually(lambda: bool(agent.state.round.error), "the agent notices")
        start_vswitchd(own_ovs.ovs, datapath=Datapath.DUMMY)
        eventually(serve(bridge, {"01", "04"}), "flows of all that can be reached")
        backends.dead.clear()
        eventually(serve(bridge, {"01", "03", "04"}), "it answers again")
        own_ovs.ovs.vsctl("add-port", "ovsbr1", "p2", "--", "set", "interface", "p2", "type=dummy")
        eventually(lambda: sorted(bridge.dump_flows()) == sorted(before), "exactly the flows of before")
        eventually(lambda: agent.snapshot().problems == (), "nothing is wrong any more")


def test_a_flow_of_others_in_the_place_of_ours_holds_nothing_else_back(own_ovs: DummyOvs, config: Path) -> None:
    backends = Backends()
    with own_ovs.bridge(ports=PORTS) as bridge:
        bridge.add_flows("cookie=0x5,table=0,priority=1,in_port=p2 actions=NORMAL\n")
        with running_agent(config, own_ovs.ovs.directory, probe=backends.probe, resync_s=0.3) as agent:
            eventually(serve(bridge, {"01", "02", "03", "04"}), "all serve")
            told = "a foreign flow has the same table, priority and match as one of xenoovs: cookie=0x5"
            eventually(lambda: [each.startswith(told) for each in agent.snapshot().problems] == [True], "it is told")
            backends.dead.add(3)
            eventually(serve(bridge, {"01", "02", "04"}), "the dead backend has no clients")
            assert "cookie=0x5" in bridge.ofctl("dump-flows", "cookie=0x5/-1")
            assert agent.state.round.foreign == 0
            bridge.ofctl("del-flows", "cookie=0x5/-1")
            eventually(lambda: agent.snapshot().problems == (), "our flow is in its place")


def test_apply_by_hand_refuses_what_cannot_be_whole_unless_told(
    own_ovs: DummyOvs, config: Path, xenoovs: CommandLine
) -> None:
    with own_ovs.bridge(ports=("p0", "p1")) as bridge:
        said = xenoovs("apply", config, "--db", bridge.ovs.db, "--yes")
        assert said.status == 1
        assert "p2" in said.err
        assert "--partial" in said.err
        assert bridge.dump_flows() == []
        said = xenoovs("apply", config, "--db", bridge.ovs.db, "--yes", "--partial")
        assert (said.status, "port p2 is on no bridge (ovsbr1 has p0, p1); no clients for dns/far" in said.out) == (
            0,
            True,
        )
        assert serving(bridge) == {"01", "03", "04"}
