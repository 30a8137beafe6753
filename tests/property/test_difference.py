"""Two decisions compared, against counting every client of both."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from tests.property.decisions import owned, tilings
from xenoovs.decision.decision import Decision, ServiceDecision, compare, moved, shifts
from xenoovs.model.balancer import BlockKey, KeyField
from xenoovs.partition.block import select

BITS = 7
CLIENTS = range(1 << BITS)


@st.composite
def service_decisions(draw: st.DrawFn) -> ServiceDecision:
    """Blocks of any of the bits, in any order; some clients may have no backend."""
    positions = draw(st.permutations(range(BITS)))[: draw(st.integers(1, BITS))]
    blocks = draw(owned(draw(tilings(most_depth=len(positions))), ("b0", "b1", "b2", None)))
    return ServiceDecision(BlockKey(positions=tuple(positions)), blocks, blocks)


def owners(service: ServiceDecision) -> list[str | None]:
    """The owner of each client."""
    positions = service.key.positions
    assert positions is not None
    selected = [select(client, positions, len(positions)) for client in CLIENTS]
    return [next((o for block, o in service.active.rows if block.contains(bits)), None) for bits in selected]


@given(service_decisions(), service_decisions())
def test_shifts_are_counts_of_clients(one: ServiceDecision, other: ServiceDecision) -> None:
    pairs = Counter(zip(owners(one), owners(other), strict=True))
    counted = {(old, new): Fraction(n, len(CLIENTS)) for (old, new), n in pairs.items() if old != new}
    found = shifts(one, other)
    assert {(shift.old, shift.new): shift.share for shift in found} == counted
    assert [shift.share for shift in found] == sorted((shift.share for shift in found), reverse=True)
    assert moved(one, other) == sum((n for (old, _), n in counted.items() if old is not None), Fraction(0))
    (difference,) = compare(Decision.of({1: one}), Decision.of({1: other}))
    assert (difference.share, difference.shifts) == (sum(counted.values(), Fraction(0)), found)


@given(service_decisions())
def test_a_service_that_one_decision_lacks_differs_for_all_clients(service: ServiceDecision) -> None:
    decision = Decision.of({1: service})
    ((gone,), (new,)) = compare(decision, Decision()), compare(Decision(), decision)
    assert gone.share == new.share == 1
    assert {shift.old: shift.share for shift in gone.shifts} == service.active.shares()
    assert {shift.new: shift.share for shift in new.shifts} == service.active.shares()


@given(service_decisions())
def test_ports_and_addresses_have_nothing_to_do_with_each_other(service: ServiceDecision) -> None:
    """A change of the key's field moves each client by chance."""
    by_port = ServiceDecision(BlockKey(KeyField.SOURCE_PORT, service.key.positions), service.home, service.active)
    shares = service.active.shares()
    together = {(old, new): a * b for old, a in shares.items() for new, b in shares.items() if old != new}
    found = {(s.old, s.new): s.share for s in shifts(service, by_port) if s.old is not None and s.new is not None}
    assert found == together
