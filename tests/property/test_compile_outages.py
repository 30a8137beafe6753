"""Backends that fail and recover; the flows of the switch are the only memory."""

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
    """The flows of a switch after one round of an agent that starts at this moment."""
    flows = tuple(table.values())
    desired = compiled(balancer, installed=flows, ejected=ejected).flows
    return apply_bundle(table, bundle_of(plan(desired, flows)))


def all_clients_in(balancer: Balancer) -> Ejected:
    return {service.name: frozenset() for service in balancer.services}


def destinations_out(service: Service, ejected: Ejected) -> set[NextHop]:
    return {b.next_hop for b in service.backends if b.name in ejected[service.name]}


@given(histories())
def test_recovery_gives_back_exactly_the_failover_blocks(case: tuple[Balancer, list[Ejected]]) -> None:
    balancer, history = case
    first = table = table_of(compiled(balancer).flows)
    for ejected in history:
        table = after(table, balancer, ejected)
    assert after(table, balancer, all_clients_in(balancer)) == first


@given(histories())
def test_no_ejected_backend_gets_clients_and_no_other_loses_a_planned_one(case: tuple[Balancer, list[Ejected]]) -> None:
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
def test_a_repeated_round_changes_nothing_for_any_program(case: tuple[Balancer, list[Ejected]]) -> None:
    balancer, history = case
    table = table_of(compiled(balancer).flows)
    for ejected in history:
        table = after(table, balancer, ejected)
        assert after(table, balancer, ejected) == table
        # `xenoovs apply` makes no health checks: it reads from the switch which backends are ejected.
        assert after(table, balancer, None) == table


def assert_only_lent_clients_move(before: Table, now: Table) -> None:
    """A backend that lost its weight while it was ejected keeps its home; any other backends may have its clients."""
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
    recovered = after(after(table, other, out), other, all_clients_in(other))
    again = after(after(recovered, other, out), other, all_clients_in(other))
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
    left = {**all_clients_in(edited), **known}
    changed = after(table, edited, left)
    assert after(changed, edited, left) == changed
    recovered = after(changed, edited, all_clients_in(edited))
    assert after(recovered, edited, all_clients_in(edited)) == recovered
    assert_only_lent_clients_move(recovered, after(after(recovered, edited, left), edited, all_clients_in(edited)))


def test_all_backends_out_leaves_no_block_and_all_memory() -> None:
    one = small.balancer(small.service(small.claim(), 3, 1))
    whole = table_of(compiled(one).flows)
    empty = after(whole, one, {"s": frozenset({"b0", "b1"})})
    assert blocks_by_service(empty.values()) == {}
    half = after(empty, one, {"s": frozenset({"b1"})})
    (blocks,) = blocks_by_service(half.values()).values()
    assert shares(pieces(blocks)) == {one.services[0].backends[0].next_hop: Fraction(1)}
    assert after(half, one, all_clients_in(one)) == whole


def test_an_unknown_backend_name_is_ignored() -> None:
    one = small.balancer(small.service(small.claim(), 3, 1))
    assert compiled(one, ejected={"s": frozenset({"b9"})}) == compiled(one)
