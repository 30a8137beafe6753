"""Weights to rules over addresses."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from tests.unit.balancer import claim, service
from xenoovs.compile.assign import BlockRule, assign
from xenoovs.errors import BudgetUnreachable, ToleranceUnreachable
from xenoovs.model.block_key import BlockKey


def test_as_few_bits_as_the_tolerance_needs() -> None:
    made = service(claim(), 70, 30)
    rough, fine = (assign(replace(made, tolerance=Fraction(1, n))) for n in (4, 100))
    assert (rough.width, rough.units) == (2, (3, 1))
    assert fine.width > 4
    assert all(
        abs(share * 10 / weight - 1) <= Fraction(1, 100) for share, weight in zip(fine.shares, (7, 3), strict=True)
    )


def test_rules_are_sorted_by_depth_and_value() -> None:
    assert assign(service(claim(), 3, 1)).rules == (
        BlockRule(depth=1, value=0, mask=1, owner=0),
        BlockRule(depth=2, value=1, mask=3, owner=0),
        BlockRule(depth=2, value=3, mask=3, owner=1),
    )


def test_chosen_positions_are_used_in_their_order() -> None:
    made = replace(service(claim(), 3, 1), key=BlockKey(positions=(7, 0)))
    assert [(rule.value, rule.mask) for rule in assign(made).rules] == [(0, 0x80), (0x80, 0x81), (0x81, 0x81)]


@pytest.mark.parametrize("bits", [BlockKey(width=1), BlockKey(positions=(5,)), BlockKey(positions=(5, 6), width=1)])
def test_too_few_bits_say_what_they_could_do(bits: BlockKey) -> None:
    with pytest.raises(ToleranceUnreachable) as caught:
        assign(replace(service(claim(), 3, 1), key=bits))
    assert (caught.value.max_width, caught.value.least) == (1, Fraction(1))


def test_a_budget_trades_tolerance_for_flows() -> None:
    made = replace(service(claim(), 70, 30), tolerance=Fraction(1, 1000))
    cheap = assign(replace(made, max_flows=3))
    assert len(cheap.rules) <= 3 < len(assign(made).rules)
    assert cheap.tolerance > made.tolerance


def test_a_budget_below_the_backends_is_refused() -> None:
    with pytest.raises(BudgetUnreachable):
        assign(replace(service(claim(), 1, 1, 1), max_flows=2))
