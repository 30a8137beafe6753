"""What cannot be made right holds nothing else back on a real switch: a port that is gone."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

from tests.ovs.agents import running_agent
from tests.ovs.dummy import DummyBridge, DummyOvs
from tests.patience import eventually
from xenoovs.agent.probe.target import IcmpTarget, ProbeResult, Target
from xenoovs.lab.private_ovs import Datapath, start_vswitchd
from xenoovs.show.conditions import is_as_desired

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


def serve(bridge: DummyBridge, *wanted: str) -> Callable[[], bool]:
    """Whether these last octets of MACs, and no others, get clients."""
    return lambda: (
        {flow.partition("mod_dl_dst:")[2][15:17] for flow in bridge.ours() if "table=1," in flow} == {*wanted}
    )


def test_a_backend_behind_a_port_that_is_gone_holds_nothing_else_back(own_ovs: DummyOvs, config: Path) -> None:
    """Another service's backend dies, and Open vSwitch restarts, while the port is away; then all is as before."""
    dead = set[int]()

    async def probe(target: Target, *, timeout_s: float) -> ProbeResult:
        assert isinstance(target, IcmpTarget)
        return ProbeResult(ok=int(target.address) % 256 not in dead, latency_s=0.0, reason="")

    with (
        own_ovs.bridge(ports=("p0", "p1", "p2")) as bridge,
        running_agent(config, own_ovs.ovs.directory, probe=probe) as agent,
    ):
        eventually(serve(bridge, "01", "02", "03", "04"), "all serve")
        before = bridge.dump_flows()
        own_ovs.ovs.vsctl("del-port", "ovsbr1", "p2")
        eventually(serve(bridge, "01", "03", "04"), "clients of the backend behind p2 are with the other one")
        eventually(lambda: agent.snapshot().problems != (), "the round ends after its flows are there")
        snapshot = agent.snapshot()
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
        eventually(lambda: agent.snapshot().problems == (), "nothing is wrong any more")
