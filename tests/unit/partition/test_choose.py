"""The call of the compiler: width, budget, and what cannot be reached."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import pytest

from xenoovs.errors import BudgetUnreachable, ToleranceUnreachable
from xenoovs.partition.block import Block, Table
from xenoovs.partition.change import Goal, Start, cheapest_change, update
from xenoovs.partition.solve import (
    Window,
    block_count,
    deviation,
    feasible,
    first_feasible_width,
    layout,
    lb1,
    least_tolerance,
    partition,
    solve,
    solve_bitset,
    solve_min_plus,
    whole_weights,
    windows,
)

FIVE_PERCENT = Fraction(5, 100)


def test_two_equal_backends_share_by_the_lowest_bit() -> None:
    halves = partition([1, 1], tolerance=FIVE_PERCENT)
    assert halves.assignment.width == 1
    assert halves.assignment.blocks == ((Block(0, 1), 0), (Block(1, 1), 1))
    assert halves.deviation == 0


def test_weights_may_be_decimals() -> None:
    exact = partition([Fraction("0.5"), Fraction("0.25"), Fraction("0.25")], tolerance=Fraction(0))
    assert exact.spaces == (2, 1, 1)


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


def test_a_budget_of_one_flow_a_backend_can_always_be_met() -> None:
    least = partition([5, 3, 2], tolerance=FIVE_PERCENT, max_flows=3)
    assert least.spaces == (2, 1, 1)
    assert least.tolerance == Fraction(1, 4)


def test_a_budget_below_one_flow_a_backend_is_refused() -> None:
    with pytest.raises(BudgetUnreachable) as caught:
        partition([5, 3, 2, 0], tolerance=FIVE_PERCENT, max_flows=2)
    assert caught.value.least == 3


@pytest.mark.parametrize("width", [-1, 17])
def test_a_width_out_of_range_is_refused(width: int) -> None:
    with pytest.raises(ValueError, match="not within"):
        partition([1], tolerance=FIVE_PERCENT, width=width)


def test_a_negative_tolerance_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        partition([1], tolerance=Fraction(-1))


def test_an_optimum_far_above_its_bound_is_left_to_the_second_solver() -> None:
    allowed = windows([1] * 90, 11, Fraction(5, 100))
    assert solve_bitset(allowed, 1 << 11) is None
    # 68 of 23 units and 22 of 22 is the only choice
    assert block_count(solve(allowed, 1 << 11)) == 68 * 4 + 22 * 3


def test_windows_that_cannot_be_met_are_refused() -> None:
    with pytest.raises(ValueError, match="no spaces within the windows"):
        solve((Window(1, 2), Window(1, 2)), 8)
    with pytest.raises(ValueError, match="no spaces within the windows"):
        cheapest_change(Start(Table(3, ()), (0, 0), (Window(1, 2), Window(1, 2))), Fraction(1))


def test_a_sum_that_the_options_skip_has_no_choice() -> None:
    assert solve_min_plus([[(0, 1), (2, 1)], [(0, 1), (4, 1)]], 5) is None
    assert solve_min_plus([[(0, 1)], []], 0) is None
    assert solve_min_plus([[(0, 9), (4, 1)], [(0, 2), (4, 1)]], 4) == (4, 0)


def test_a_wide_window_is_searched_whole_where_the_likely_places_fail() -> None:
    old = layout([512, 512], 10)
    begin = Start(Table.of(old, 10), (512, 512), (Window(333, 333), Window(300, 900)))
    assert cheapest_change(begin, Fraction(1)).assignment(2).spaces() == (333, 691)


def test_spaces_of_another_sum_cannot_be_laid_out() -> None:
    with pytest.raises(ValueError, match="sum to 3, not to the 4 units"):
        layout([1, 2], 2)


def test_a_change_needs_no_more_than_the_windows() -> None:
    assert update(layout([3, 1], 2), Goal((1, 1), Fraction(0))).spaces() == (2, 2)


ONE_PERCENT = Fraction(1, 100)


def test_weights_become_the_smallest_integers_in_proportion() -> None:
    assert whole_weights([Fraction("0.5"), Fraction("0.25"), 0]) == (2, 1, 0)
    assert whole_weights([70, 30]) == (7, 3)
    assert whole_weights([10**30, 10**30]) == (1, 1)


@pytest.mark.parametrize("weights", [[], [0, 0], [1, -1]])
def test_invalid_weights_are_refused(weights: list[int]) -> None:
    with pytest.raises(ValueError, match="weight"):
        whole_weights(weights)


def test_a_window_is_the_whole_numbers_within_the_tolerance() -> None:
    assert windows([1, 1, 1], 8, ONE_PERCENT) == (Window(85, 86),) * 3
    assert windows([1, 1, 1], 4, ONE_PERCENT) == (Window(6, 5),) * 3


def test_a_positive_weight_gets_at_least_one_unit_and_weight_zero_none() -> None:
    assert windows([10**6, 1, 0], 2, Fraction(1))[1:] == (Window(1, 0), Window(0, 0))
    assert windows([10**6, 1, 0], 2, Fraction(10**6))[1:] == (Window(1, 4), Window(0, 0))


def test_a_tolerance_of_zero_requires_exact_shares() -> None:
    assert windows([3, 1], 2, Fraction(0)) == (Window(3, 3), Window(1, 1))
    assert not feasible(windows([2, 1], 2, Fraction(0)), 4)


def test_the_first_feasible_width_is_the_smallest() -> None:
    assert first_feasible_width([1, 1, 1], ONE_PERCENT, 16) == 8
    assert first_feasible_width([5], ONE_PERCENT, 16) == 0
    assert first_feasible_width([1, 1, 1], ONE_PERCENT, 7) is None


def test_the_least_tolerance_is_exact() -> None:
    # thirds of 4 units: 2 + 1 + 1, and 2 is half as much again as 4/3
    assert least_tolerance([1, 1, 1], 2) == Fraction(1, 2)
    # 171 + 85 + ... cannot be better than 86 against 256/3
    assert least_tolerance([1, 1, 1], 8) == Fraction(86 * 3 - 256, 256)
    assert least_tolerance([3, 1], 2) == 0


def test_more_backends_than_units_have_no_tolerance_at_all() -> None:
    assert least_tolerance([1, 1, 1], 1) is None


def test_deviation_is_the_largest_relative_error() -> None:
    assert deviation([70, 30, 0], [3, 1, 0]) == Fraction(1, 6)


def equal(count: int) -> list[int]:
    return [1] * count


def zipf(count: int) -> list[int]:
    return [round(10**6 / rank) for rank in range(1, count + 1)]


class Row(NamedTuple):
    weights: list[int]
    percent: int
    flows: int
    lb1: int
    masks: int


TABLE = [
    Row(zipf(10), 5, 26, 26, 7),
    Row(zipf(100), 5, 223, 220, 13),
    Row(zipf(1000), 10, 1878, 1877, 14),
    Row(equal(3), 1, 12, 12, 5),
    Row(equal(10), 1, 44, 40, 5),
    Row(equal(10), 10, 24, 20, 3),
    Row(equal(100), 5, 248, 200, 3),
]
NAMES = ["zipf10", "zipf100", "zipf1000", "equal3-1%", "equal10-1%", "equal10-10%", "equal100"]


@pytest.mark.parametrize("row", TABLE, ids=NAMES)
def test_flows_are_as_few_as_can_be(row: Row) -> None:
    tolerance = Fraction(row.percent, 100)
    chosen = partition(row.weights, tolerance=tolerance).assignment
    at_sixteen = windows(row.weights, 16, tolerance)
    assert len(chosen.blocks) == row.flows
    assert block_count(solve(at_sixteen, 1 << 16)) == row.flows
    assert lb1(at_sixteen) == row.lb1
    assert len({block.depth for block, _ in chosen.blocks}) <= row.masks


@pytest.mark.parametrize(
    ("count", "percent", "flows"),
    [(200, 5, 496), (200, 10, 448), (500, 5, 692), (500, 10, 596), (1000, 1, 2000), (1000, 5, 1384), (1000, 10, 1192)],
)
def test_many_equal_backends(count: int, percent: int, flows: int) -> None:
    assert len(partition(equal(count), tolerance=Fraction(percent, 100)).assignment.blocks) == flows
