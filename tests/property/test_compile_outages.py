"""Backends that go and come back, with nothing remembered but the flows of the switch."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from tests.compiled import Ejected, compiled
from tests.flow_oracle import blocks_by_service, homes_by_service, moved, pieces, shares
from tests.strategies import balancers, edits
from tests.switch_model import Table, apply_bundle, table_of
from tests.unit import balancer as small
from xenoovs.compile.plan import bundle_of, plan
from xenoovs.model.balancer import Balancer, Service
from xenoovs.model.next_hop import NextHop


@st.composite
def outages(draw: st.DrawFn, balancer: Balancer) -> Ejected:
    names = {s.name: [backend.name for backend in s.backends] for s in balancer.services}
    return {name: draw(st.frozensets(st.sampled_from(of))) for name, of in names.items()}


@st.composite
def histories(draw: st.DrawFn) -> tuple[Balancer, list[Ejected]]:
    balancer = draw(balancers(most=2))
    return balancer, draw(st.lists(outages(balancer), min_size=1, max_size=4))


def after(table: Table, balancer: Balancer, ejected: Ejected | None) -> Table:
    """What a switch has after one round of somebody who starts at this moment."""
    flows = tuple(table.values())
    desired = compiled(balancer, installed=flows, ejected=ejected).flows
    return apply_bundle(table, bundle_of(plan(desired, flows)))


def everybody_in(balancer: Balancer) -> Ejected:
    return {service.name: frozenset() for service in balancer.services}


def destinations_out(service: Service, ejected: Ejected) -> set[NextHop]:
    return {b.next_hop for b in service.backends if b.name in ejected[service.name]}


@given(histories())
def test_recovery_gives_back_exactly_what_was_lent(case: tuple[Balancer, list[Ejected]]) -> None:
    balancer, history = case
    first = table = table_of(compiled(balancer).flows)
    for ejected in history:
        table = after(table, balancer, ejected)
    assert after(table, balancer, everybody_in(balancer)) == first


@given(histories())
def test_nobody_out_gets_clients_and_nobody_else_loses_a_planned_one(case: tuple[Balancer, list[Ejected]]) -> None:
    balancer, history = case
    program = compiled(balancer)
    table = table_of(program.flows)
    for ejected in history:
        table = after(table, balancer, ejected)
        blocks = blocks_by_service(table.values())
        for service in program.services:
            gone = destinations_out(service.service, ejected)
            now = pieces(blocks.get(service.service_id, []))
            assert gone.isdisjoint(shares(now))
            planned = pieces(block.flow for block in service.blocks)
            if now:
                lost = sum((share for place, share in shares(planned).items() if place in gone), Fraction(0))
                assert moved(planned, now) == lost


@given(histories())
def test_a_round_that_is_repeated_changes_nothing_whoever_makes_it(case: tuple[Balancer, list[Ejected]]) -> None:
    balancer, history = case
    table = table_of(compiled(balancer).flows)
    for ejected in history:
        table = after(table, balancer, ejected)
        assert after(table, balancer, ejected) == table
        # `xenoovs apply` knows no health: it takes from the switch who is out.
        assert after(table, balancer, None) == table


def assert_only_lent_clients_move(before: Table, now: Table) -> None:
    """A backend that lost its weight while it was out keeps its home; others have its clients, whoever they were."""
    lent = homes_by_service(before.values())
    if not lent:
        assert now == before
    old, new = (blocks_by_service(table.values()) for table in (before, now))
    for service, flows in old.items():
        share = sum((piece.size for piece in pieces(lent.get(service, ()))), Fraction(0))
        assert moved(pieces(flows), pieces(new[service])) <= share


def test_a_second_outage_moves_only_clients_of_a_backend_that_has_lost_its_weight() -> None:
    one, other = (
        small.balancer(replace(small.service(small.claim(), *weights), tolerance=Fraction(1, 10)))
        for weights in ((6, 6, 1, 1, 1), (8, 0, 1, 1, 1))
    )
    (service,) = other.services
    out = {service.name: frozenset(backend.name for backend in service.backends[:2])}
    table = after(table_of(compiled(one).flows), one, out)
    recovered = after(after(table, other, out), other, everybody_in(other))
    again = after(after(recovered, other, out), other, everybody_in(other))
    assert again != recovered
    assert_only_lent_clients_move(recovered, again)


@given(histories().flatmap(lambda case: st.tuples(st.just(case), edits(case[0]))))
def test_weights_that_change_during_an_outage_give_a_table_that_lasts(
    case: tuple[tuple[Balancer, list[Ejected]], Balancer],
) -> None:
    (balancer, history), edited = case
    table = table_of(compiled(balancer).flows)
    for ejected in history:
        table = after(table, balancer, ejected)
    known = {name: history[-1].get(name, frozenset()) for name in (service.name for service in edited.services)}
    left = {**everybody_in(edited), **known}
    changed = after(table, edited, left)
    assert after(changed, edited, left) == changed
    recovered = after(changed, edited, everybody_in(edited))
    assert after(recovered, edited, everybody_in(edited)) == recovered
    assert_only_lent_clients_move(recovered, after(after(recovered, edited, left), edited, everybody_in(edited)))


def test_all_backends_out_leaves_no_block_and_all_memory() -> None:
    one = small.balancer(small.service(small.claim(), 3, 1))
    whole = table_of(compiled(one).flows)
    empty = after(whole, one, {"s": frozenset({"b0", "b1"})})
    assert blocks_by_service(empty.values()) == {}
    half = after(empty, one, {"s": frozenset({"b1"})})
    (blocks,) = blocks_by_service(half.values()).values()
    assert shares(pieces(blocks)) == {one.services[0].backends[0].next_hop: Fraction(1)}
    assert after(half, one, everybody_in(one)) == whole


def test_a_name_that_no_backend_has_is_nobody() -> None:
    one = small.balancer(small.service(small.claim(), 3, 1))
    assert compiled(one, ejected={"s": frozenset({"b9"})}) == compiled(one)
