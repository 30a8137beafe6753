"""Counters of flows, which restart with each flow, become totals that only grow."""

from __future__ import annotations

from dataclasses import replace

from tests.compiled import compiled
from tests.unit.balancer import balancer, claim, service
from xenoovs.agent.offload import FlowTotals
from xenoovs.compile.program import Program
from xenoovs.openflow.flow import ObservedFlow
from xenoovs.show.agent import Counted, Rate, hw_share

_PROGRAM = compiled(balancer(service(claim())))


def _seen(program: Program, *, packets: int) -> list[ObservedFlow]:
    """Every flow with so many packets of 100 bytes."""
    return [ObservedFlow(flow, packets=packets, bytes=100 * packets, duration_s=1.0) for flow in program.flows]


def _sum(counted: dict[tuple[str, str], Counted]) -> Counted:
    return Counted(sum(one.packets for one in counted.values()), sum(one.bytes for one in counted.values()))


def test_what_has_been_added_is_counted_once() -> None:
    counts, blocks = FlowTotals(), sum(len(made.blocks) for made in _PROGRAM.services)
    totals = [_sum(dict(counts.add(_PROGRAM, _seen(_PROGRAM, packets=n), now_s=n)[0])) for n in (5, 5, 8)]
    assert totals == [Counted(n * blocks, 100 * n * blocks) for n in (5, 5, 8)]


def test_a_recreated_flow_does_not_lower_the_total() -> None:
    counts, blocks = FlowTotals(), sum(len(made.blocks) for made in _PROGRAM.services)
    for packets in (10, 3):
        counted, _ = counts.add(_PROGRAM, _seen(_PROGRAM, packets=packets), now_s=packets)
    assert _sum(dict(counted)).packets == 13 * blocks


def test_rates_are_since_the_last_sample_and_have_no_path() -> None:
    counts = FlowTotals()
    assert counts.add(_PROGRAM, _seen(_PROGRAM, packets=10), now_s=0.0)[1] == {}
    _, rates = counts.add(_PROGRAM, _seen(_PROGRAM, packets=30), now_s=10.0)
    blocks = sum(len(made.blocks) for made in _PROGRAM.services)
    assert sum(rate.pps for rate in rates.values()) == 2 * blocks
    assert sum(rate.bps for rate in rates.values()) == 1600 * blocks
    assert hw_share(rates.values()) is None


def test_the_share_of_the_nic_is_of_flows_with_a_known_path() -> None:
    known = Rate(10.0, 5.0, 0.0)
    assert hw_share((known, replace(known, hw_pps=None))) == 0.5
