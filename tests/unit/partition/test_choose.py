"""The call of the compiler: width, budget, and what cannot be reached."""

from __future__ import annotations

from fractions import Fraction

import pytest

from xenoovs.errors import BudgetUnreachable, ToleranceUnreachable
from xenoovs.partition.block import Block
from xenoovs.partition.solve import partition

FIVE_PERCENT = Fraction(5, 100)


def test_two_equal_backends_share_by_the_lowest_bit() -> None:
    halves = partition([1, 1], tolerance=FIVE_PERCENT)
    assert halves.assignment.width == 1
    assert halves.assignment.blocks == ((Block(0, 1), 0), (Block(1, 1), 1))
    assert halves.deviation == 0


def test_one_backend_takes_the_block_of_all_addresses() -> None:
    assert partition([0, 7, 0], tolerance=FIVE_PERCENT).assignment.blocks == ((Block(0, 0), 1),)


def test_weights_may_be_decimals() -> None:
    exact = partition([Fraction("0.5"), Fraction("0.25"), Fraction("0.25")], tolerance=Fraction(0))
    assert exact.spaces == (2, 1, 1)


def test_powers_of_two_take_one_flow_each() -> None:
    nine = partition([128, 64, 32, 16, 8, 4, 2, 1, 1], tolerance=FIVE_PERCENT)
    assert len(nine.assignment.blocks) == 9


def test_the_smallest_of_the_best_widths_is_taken() -> None:
    # 11/16 + 5/16 meets 5% with 5 flows; 180/256 + 76/256 would need more bits for no gain
    split = partition([70, 30], tolerance=FIVE_PERCENT)
    assert (split.assignment.width, len(split.assignment.blocks)) == (4, 5)


def test_a_fixed_width_stays() -> None:
    assert partition([1, 1], tolerance=FIVE_PERCENT, width=4).assignment.width == 4
    assert partition([1, 2], tolerance=Fraction(1, 2), width=10).assignment.width == 10


def test_a_fixed_width_that_is_too_small_reports_its_least_tolerance() -> None:
    with pytest.raises(ToleranceUnreachable) as caught:
        partition([70, 30], tolerance=FIVE_PERCENT, width=2)
    assert caught.value.least == Fraction(1, 6)
    assert caught.value.max_width == 2


def test_a_tiny_weight_is_named_as_the_one_that_decides() -> None:
    with pytest.raises(ToleranceUnreachable) as caught:
        partition([10**6, 0, 1], tolerance=FIVE_PERCENT)
    assert caught.value.smallest == 2
    assert caught.value.least == Fraction(10**6 + 1, 2**16) - 1
    assert "raise the smallest weight (backend 2)" in str(caught.value)


def test_more_backends_than_classes_have_no_tolerance() -> None:
    with pytest.raises(ToleranceUnreachable) as caught:
        partition([1, 1, 1], tolerance=FIVE_PERCENT, width=1)
    assert caught.value.least is None
    assert "2 classes of addresses, fewer than the backends" in str(caught.value)


def test_a_budget_gives_the_least_tolerance_that_fits() -> None:
    # 70/30 in three flows: 3/4 + 1/4 (off by 1/6); four flows: 5/8 + 3/8 is worse, so they change nothing
    three = partition([70, 30], tolerance=FIVE_PERCENT, max_flows=3)
    assert (three.spaces, three.tolerance) == ((3, 1), Fraction(1, 6))
    five = partition([70, 30], tolerance=FIVE_PERCENT, max_flows=5)
    assert five.tolerance == Fraction(1, 24)


def test_a_budget_larger_than_needed_gives_the_best_tolerance_of_all() -> None:
    assert partition([3, 1], tolerance=FIVE_PERCENT, max_flows=64).tolerance == 0


def test_a_budget_of_one_flow_a_backend_can_always_be_met() -> None:
    least = partition([5, 3, 2], tolerance=FIVE_PERCENT, max_flows=3)
    assert least.spaces == (2, 1, 1)
    assert least.tolerance == Fraction(1, 4)


def test_a_budget_below_one_flow_a_backend_is_refused() -> None:
    with pytest.raises(BudgetUnreachable) as caught:
        partition([5, 3, 2, 0], tolerance=FIVE_PERCENT, max_flows=2)
    assert caught.value.least == 3


def test_a_budget_at_a_fixed_width_keeps_the_width() -> None:
    split = partition([5, 3, 2], tolerance=FIVE_PERCENT, width=6, max_flows=5)
    assert split.assignment.width == 6
    assert len(split.assignment.blocks) <= 5


def test_huge_weights_are_exact() -> None:
    assert partition([10**30, 3 * 10**30], tolerance=Fraction(0)).spaces == (1, 3)


@pytest.mark.parametrize("width", [-1, 17])
def test_a_width_out_of_range_is_refused(width: int) -> None:
    with pytest.raises(ValueError, match="not within"):
        partition([1], tolerance=FIVE_PERCENT, width=width)


def test_a_negative_tolerance_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        partition([1], tolerance=Fraction(-1))
