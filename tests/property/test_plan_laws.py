"""Law 3: the plan applied makes observed into desired, an equal state needs none, and flows of others never matter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.compiled import compiled
from tests.strategies import backends_of, balancers, claimed_packets, claims, edits, packets, services, share, uplinks
from tests.switch_model import apply_bundle, apply_mod, table_of
from xenoovs.compile.plan import bundle_of, plan
from xenoovs.judge.simulate.walk import tables_of
from xenoovs.model.balancer import Balancer
from xenoovs.model.packet import Packet
from xenoovs.openflow.flow import Command, Flow
from xenoovs.openflow.text import parse_flow

FOREIGN = (
    parse_flow("cookie=0x2a, priority=700,udp,nw_dst=10.3.10.45,tp_dst=53 actions=drop"),
    parse_flow("priority=0 actions=NORMAL"),
    parse_flow("cookie=0x786e000000000000, table=1, priority=998,ip,reg0=0x1 actions=drop"),
)


@given(st.data(), balancers())
def test_applied_it_makes_observed_into_desired_and_an_equal_state_needs_nothing(
    data: st.DataObject, before: Balancer
) -> None:
    """A bundle names no flow twice, and deletes last."""
    observed, desired = flows_of(before), flows_of(data.draw(edits(before)))
    bundle = bundle_of(plan(desired, (*FOREIGN, *observed)))
    table = apply_bundle(table_of((*FOREIGN, *observed)), bundle)
    assert table == table_of((*FOREIGN, *desired))
    assert len({mod.flow.key for mod in bundle.mods}) == len(bundle)
    kinds = [mod.command is Command.DELETE for mod in bundle.mods]
    assert kinds == sorted(kinds)
    same = plan(desired, (*FOREIGN, *reversed(desired)))
    assert same.is_empty
    assert not bundle_of(same).mods
    assert same.unchanged == len(desired)


def flows_of(balancer: Balancer) -> tuple[Flow, ...]:
    return compiled(balancer).flows


@share(0.4)
@given(st.data(), balancers(most=3))
def test_services_that_come_and_go_open_no_hole(data: st.DataObject, before: Balancer) -> None:
    """Ingress ports stay: one that goes while blocks change may meet the new owner before it is closed."""
    drawn = data.draw(edits(before))
    after = replace(drawn, uplinks=replace(drawn.uplinks, ingress=before.uplinks.ingress))
    assert_smooth(before, after, [data.draw(packets(one)) for one in (before, after) for _ in range(3)])


@share(0.4)
@given(st.data())
def test_clients_that_move_reach_no_third_backend(data: st.DataObject) -> None:
    claim, ports = data.draw(claims()), data.draw(uplinks())
    service = data.draw(services(claim, "s"))
    other = replace(service, backends=data.draw(backends_of()))
    probes = data.draw(st.lists(claimed_packets(claim, ports), min_size=8, max_size=8))
    assert_smooth(Balancer(ports, (service,)), Balancer(ports, (other,)), probes)


def assert_smooth(before: Balancer, after: Balancer, probes: Sequence[Packet]) -> None:
    old, new = compiled(before).flows, compiled(after).flows
    allowed = [{sent(old, probe), sent(new, probe)} for probe in probes]
    table = table_of(old)
    for mod in bundle_of(plan(new, old)).mods:
        table = apply_mod(table, mod)
        now = tuple(table.values())
        assert all(sent(now, probe) in owners for probe, owners in zip(probes, allowed, strict=True))
    assert table == table_of(new)


def sent(flows: Sequence[Flow], packet: Packet) -> tuple[tuple[str | None, int, int], ...]:
    """Egress port and MACs of each copy."""
    return tuple((copy.port, copy.dl_dst, copy.dl_src) for copy in tables_of(flows).run(packet).copies)
