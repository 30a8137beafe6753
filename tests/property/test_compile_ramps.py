"""Backends that get their clients back in steps, with nothing remembered but the flows of the switch."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from hypothesis import assume, given
from hypothesis import strategies as st

from tests.strategies import balancers
from tests.switch_model import Table, apply_bundle, table_of
from tests.unit import balancer as small
from xenoovs.compile.movement import blocks_by_service, pieces, shares
from xenoovs.compile.plan import bundle_of, plan
from xenoovs.compile.program import Outages, compile_program
from xenoovs.model.balancer import Balancer
from xenoovs.model.next_hop import NextHop
from xenoovs.model.service import Service
from xenoovs.partition.ease import STEPS


def after(table: Table, balancer: Balancer, out: Outages | None) -> Table:
    """What a switch has after one round of somebody who starts at this moment."""
    flows = tuple(table.values())
    desired = compile_program(balancer, installed=flows, out=out).flows
    return apply_bundle(table, bundle_of(plan(desired, flows)))


def ramped(balancer: Balancer, name: str, part: Fraction) -> Balancer:
    """The same with every backend of this name at that part."""
    services = (
        replace(s, backends=tuple(replace(b, ramp=part) if b.name == name else b for b in s.backends))
        for s in balancer.services
    )
    return replace(balancer, services=tuple(services))


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
def test_steps_take_from_nobody_but_lenders_and_end_where_all_began(case: tuple[Balancer, str]) -> None:
    balancer, name = case
    program = compile_program(balancer)
    first = table_of(program.flows)
    table = after(first, balancer, {balancer.services[0].name: frozenset({name})})
    (service,) = program.services
    backend = next(b for b in service.service.backends if b.name == name)
    mine = backend.next_hop
    nobody: Outages = {service.service.name: frozenset()}
    for step in range(1, STEPS):
        before = held(table, service.service_id)
        table = after(table, ramped(balancer, name, Fraction(step, STEPS)), nobody)
        now = held(table, service.service_id)
        assert now.get(mine, 0) >= before.get(mine, 0)
        if has_others(service.service, name):
            assert all(now.get(place, 0) <= share for place, share in before.items() if place != mine)
    assert after(table, balancer, nobody) == first


@given(returns(), st.integers(1, STEPS - 1))
def test_a_step_that_is_repeated_changes_nothing_whoever_repeats_it(case: tuple[Balancer, str], step: int) -> None:
    balancer, name = case
    (service,) = balancer.services
    table = after(table_of(compile_program(balancer).flows), balancer, {service.name: frozenset({name})})
    slow = ramped(balancer, name, Fraction(step, STEPS))
    table = after(table, slow, {service.name: frozenset()})
    assert after(table, slow, {service.name: frozenset()}) == table
    # `xenoovs apply` knows no slow start: it takes from the switch how far it has come.
    assert after(table, balancer, None) == table


def test_an_eighth_at_a_time() -> None:
    one = small.balancer(small.service(small.claim(), 1, 1))
    table = after(table_of(compile_program(one).flows), one, {"s": frozenset({"b1"})})
    (service,) = compile_program(one).services
    seen = []
    for step in range(1, STEPS + 1):
        table = after(table, ramped(one, "b1", Fraction(step, STEPS)), {"s": frozenset()})
        seen.append(sorted(held(table, service.service_id).values()))
    assert seen == [sorted([Fraction(step, 16), Fraction(16 - step, 16)]) for step in range(1, STEPS + 1)]
