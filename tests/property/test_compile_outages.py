"""Backends that fail and recover; the flows of the switch are the only memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from hypothesis import example, given
from hypothesis import strategies as st

from tests.compiled import Ejected, compiled, decided
from tests.strategies import balancers, edits, share
from tests.switch_model import Table, apply_bundle, table_of
from tests.unit import balancer as small
from xenoovs.compile.plan import bundle_of, plan
from xenoovs.decision.decision import BackendName, moved
from xenoovs.model.balancer import Balancer
from xenoovs.partition.change import STEPS


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
