"""Law 3: the plan applied makes observed into desired, an equal state needs none, and flows of others never matter.

Also while backends fail and recover: the flows of the switch are the only memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from hypothesis import example, given
from hypothesis import strategies as st

from tests.compiled import Ejected, compiled, decided
from tests.strategies import backends_of, balancers, claimed_packets, claims, edits, packets, services, share, uplinks
from tests.switch_model import Table, apply_bundle, apply_mod, table_of
from tests.unit import balancer as small
from xenoovs.compile.plan import bundle_of, plan
from xenoovs.decision.decision import BackendName, moved
from xenoovs.judge.simulate.walk import tables_of, walk
from xenoovs.model.balancer import Balancer
from xenoovs.model.packet import Packet
from xenoovs.openflow.flow import Command, Flow
from xenoovs.openflow.text import parse_flow
from xenoovs.partition.change import STEPS

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
    return tuple((copy.port, copy.dl_dst, copy.dl_src) for copy in walk(tables_of(flows), packet).copies)


@st.composite
def histories(draw: st.DrawFn) -> tuple[Balancer, list[Ejected]]:
    balancer = draw(balancers(most=2))
    names = {s.name: [backend.name for backend in s.backends] for s in balancer.services}
    outages = st.fixed_dictionaries({name: st.frozensets(st.sampled_from(of)) for name, of in names.items()})
    return balancer, draw(st.lists(outages, min_size=1, max_size=4))


def after(table: Table, balancer: Balancer, ejected: Ejected | None, ramps: Ramps | None = None) -> Table:
    """The flows of a switch after one round of an agent that starts at this moment."""
    flows = tuple(table.values())
    desired = compiled(balancer, installed=flows, ejected=ejected, ramps=ramps).flows
    return apply_bundle(table, bundle_of(plan(desired, flows)))


def all_clients_in(balancer: Balancer) -> Ejected:
    return {service.name: frozenset() for service in balancer.services}


_SMALL_ONE_SERVES_ITS_OWN_CLIENTS_ALONE = (
    small.balancer(replace(small.service(small.claim(), 28, 28, 1, 2, 26), tolerance=Fraction(1, 4))),
    [{"s": frozenset({"b0", "b4"})}, {"s": frozenset({"b4"})}],
)
"""While one backend is out, a small one that is up has its home blocks and no others, as one that is held would."""


@example(_SMALL_ONE_SERVES_ITS_OWN_CLIENTS_ALONE)
@share(0.4)
@given(histories())
def test_clients_of_ejected_backends_alone_move_once_and_back(case: tuple[Balancer, list[Ejected]]) -> None:
    """No ejected backend has clients, a repeated round changes nothing, and the end is exactly the beginning."""
    balancer, history = case
    program = compiled(balancer)
    first = table = table_of(program.flows)
    for ejected in history:
        table = after(table, balancer, ejected)
        assert after(table, balancer, ejected) == table
        # `xenoovs apply` makes no health checks: it reads from the switch which backends are ejected.
        assert after(table, balancer, None) == table
        found = decided(table.values(), balancer)
        for made in program.services:
            gone, planned = ejected[made.service.name], made.decision.active.shares()
            active = found[made.service_id].active
            assert not active.owners & gone
            if active.rows:
                assert moved(made.decision, found[made.service_id]) == sum(
                    planned[name] for name in planned.keys() & gone
                )
    assert after(table, balancer, all_clients_in(balancer)) == first


@share(0.4)
@given(histories().flatmap(lambda case: st.tuples(st.just(case), edits(case[0]))))
def test_weights_that_change_during_an_outage_give_a_table_that_lasts(
    case: tuple[tuple[Balancer, list[Ejected]], Balancer],
) -> None:
    (balancer, history), edited = case
    table = table_of(compiled(balancer).flows)
    for ejected in history:
        table = after(table, balancer, ejected)
    known = {name: history[-1].get(name, frozenset()) for name in (service.name for service in edited.services)}
    left = {**all_clients_in(edited), **known}
    changed = after(table, edited, left)
    assert after(changed, edited, left) == changed
    recovered = after(changed, edited, all_clients_in(edited))
    assert after(recovered, edited, all_clients_in(edited)) == recovered
    # A backend that lost its weight while it was ejected keeps its home; any other backends may have its clients.
    again = after(after(recovered, edited, left), edited, all_clients_in(edited))
    old, new = (decided(table.values(), edited) for table in (recovered, again))
    assert again == recovered or any(each.displaced for each in old.values())
    for service_id, each in old.items():
        assert moved(each, new[service_id]) <= sum(each.home.shares()[name] for name in each.displaced)


def test_an_unknown_backend_name_is_ignored() -> None:
    one = small.balancer(small.service(small.claim(), 3, 1))
    assert compiled(one, ejected={"s": frozenset({"b9"})}) == compiled(one)


Ramps = Mapping[BackendName, Fraction]


@share(0.4)
@given(balancers(most=1).filter(lambda balancer: balancer.services), st.data())
def test_steps_move_only_borrowed_clients_and_end_at_the_first_table(balancer: Balancer, data: st.DataObject) -> None:
    """And a repeated step changes nothing."""
    program = compiled(balancer)
    (service,) = program.services
    name = data.draw(st.sampled_from(service.service.backends)).name
    first = table_of(program.flows)
    table = after(first, balancer, {service.service.name: frozenset({name})})
    none_ejected = all_clients_in(balancer)
    repeated = data.draw(st.integers(1, STEPS - 1))
    for step in range(1, STEPS):
        before = decided(table.values(), balancer)[service.service_id].active.shares()
        slow = {(service.service.name, name): Fraction(step, STEPS)}
        table = after(table, balancer, none_ejected, slow)
        if step == repeated:
            assert after(table, balancer, none_ejected, slow) == table
            # `xenoovs apply` makes no slow start: it reads its progress from the switch.
            assert after(table, balancer, None) == table
        now = decided(table.values(), balancer)[service.service_id].active.shares()
        assert now.get(name, 0) >= before.get(name, 0)
        if any(b.weight for b in service.service.backends if b.name != name):
            assert all(now.get(other, 0) <= share for other, share in before.items() if other != name)
    assert after(table, balancer, none_ejected) == first
