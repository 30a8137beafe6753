"""Backends that get their clients back in steps; the flows of the switch are the only memory."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from hypothesis import assume, given
from hypothesis import strategies as st

from tests.compiled import Ejected, compiled
from tests.flow_oracle import blocks_by_service, pieces, shares
from tests.strategies import balancers
from tests.switch_model import Table, apply_bundle, table_of
from tests.unit import balancer as small
from xenoovs.compile.plan import bundle_of, plan
from xenoovs.decision.decision import BackendName
from xenoovs.model.balancer import Balancer, Service
from xenoovs.model.next_hop import NextHop
from xenoovs.partition.change import STEPS

Ramps = Mapping[BackendName, Fraction]


def after(table: Table, balancer: Balancer, ejected: Ejected | None, ramps: Ramps | None = None) -> Table:
    """The flows of a switch after one round of an agent that starts at this moment."""
    flows = tuple(table.values())
    desired = compiled(balancer, installed=flows, ejected=ejected, ramps=ramps).flows
    return apply_bundle(table, bundle_of(plan(desired, flows)))


def started(balancer: Balancer, name: str, part: Fraction) -> Ramps:
    """Every backend of this name has that part of its clients by now."""
    return {(service.name, name): part for service in balancer.services}


def held(table: Table, service_id: int) -> dict[NextHop, Fraction]:
    return dict(shares(pieces(blocks_by_service(table.values()).get(service_id, []))))


def has_others(service: Service, name: str) -> bool:
    return any(b.weight for b in service.backends if b.name != name)


@st.composite
def returns(draw: st.DrawFn) -> tuple[Balancer, str]:
    """A balancer, and a backend of its first service that was out."""
    balancer = draw(balancers(most=1))
    assume(balancer.services)
    first = balancer.services[0]
    return balancer, draw(st.sampled_from([backend.name for backend in first.backends]))


@given(returns())
def test_steps_move_only_borrowed_clients_and_end_at_the_first_table(case: tuple[Balancer, str]) -> None:
    balancer, name = case
    program = compiled(balancer)
    first = table_of(program.flows)
    table = after(first, balancer, {balancer.services[0].name: frozenset({name})})
    (service,) = program.services
    backend = next(b for b in service.service.backends if b.name == name)
    mine = backend.next_hop
    none_ejected: Ejected = {service.service.name: frozenset()}
    for step in range(1, STEPS):
        before = held(table, service.service_id)
        table = after(table, balancer, none_ejected, started(balancer, name, Fraction(step, STEPS)))
        now = held(table, service.service_id)
        assert now.get(mine, 0) >= before.get(mine, 0)
        if has_others(service.service, name):
            assert all(now.get(place, 0) <= share for place, share in before.items() if place != mine)
    assert after(table, balancer, none_ejected) == first


@given(returns(), st.integers(1, STEPS - 1))
def test_a_repeated_step_changes_nothing_for_any_program(case: tuple[Balancer, str], step: int) -> None:
    balancer, name = case
    (service,) = balancer.services
    table = after(table_of(compiled(balancer).flows), balancer, {service.name: frozenset({name})})
    slow, none_ejected = started(balancer, name, Fraction(step, STEPS)), {service.name: frozenset[str]()}
    table = after(table, balancer, none_ejected, slow)
    assert after(table, balancer, none_ejected, slow) == table
    # `xenoovs apply` makes no slow start: it reads its progress from the switch.
    assert after(table, balancer, None) == table


def test_an_eighth_at_a_time() -> None:
    one = small.balancer(small.service(small.claim(), 1, 1))
    table = after(table_of(compiled(one).flows), one, {"s": frozenset({"b1"})})
    (service,) = compiled(one).services
    seen = []
    for step in range(1, STEPS + 1):
        table = after(table, one, {"s": frozenset()}, started(one, "b1", Fraction(step, STEPS)))
        seen.append(sorted(held(table, service.service_id).values()))
    assert seen == [sorted([Fraction(step, 16), Fraction(16 - step, 16)]) for step in range(1, STEPS + 1)]
