"""The solvers against exhaustive search, against each other and against the bounds."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import ceil

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from xenoovs.partition import solve as minplus
from xenoovs.partition.solve import (
    Window,
    block_count,
    deviation,
    feasible,
    lb1,
    lb2,
    least_tolerance,
    partition,
    proves_optimal,
    solve,
    solve_bitset,
    solve_min_plus,
    windows,
)

tolerances = st.fractions(min_value=0, max_value=Fraction(1, 2), max_denominator=200)
some_weights = st.lists(st.integers(0, 1000), min_size=1, max_size=12).filter(any)


@st.composite
def feasible_windows(draw: st.DrawFn, *, most: int = 8, width: int = 8) -> tuple[tuple[Window, ...], int]:
    total = 1 << draw(st.integers(0, width))
    spaces: list[int] = []
    for _ in range(draw(st.integers(0, most - 1))):
        spaces.append(draw(st.integers(0, total - sum(spaces))))
    spaces.append(total - sum(spaces))
    slack = st.integers(0, max(1, total // 4))
    allowed = tuple(Window(max(0, space - draw(slack)), space + draw(slack)) for space in spaces)
    return allowed, total


def exhaustive(allowed: tuple[Window, ...], total: int) -> int:
    ranges = [range(lo, hi + 1) for lo, hi in allowed[:-1]]
    last = allowed[-1]
    return min(
        block_count((*spaces, total - sum(spaces)))
        for spaces in product(*ranges)
        if last.lo <= total - sum(spaces) <= last.hi
    )


@given(feasible_windows(most=3, width=5))
@settings(max_examples=150)
def test_the_optimum_is_that_of_exhaustive_search(case: tuple[tuple[Window, ...], int]) -> None:
    assert block_count(solve(*case)) == exhaustive(*case)


@given(feasible_windows())
def test_both_solvers_agree_and_meet_the_windows(case: tuple[tuple[Window, ...], int]) -> None:
    allowed, total = case
    first = solve_bitset(allowed, total)
    second = solve_min_plus([[(v, v.bit_count()) for v in range(lo, hi + 1)] for lo, hi in allowed], total)
    assert first is not None
    assert second is not None
    assert block_count(first) == block_count(second)
    for spaces in (first, second):
        assert sum(spaces) == total
        assert all(lo <= space <= hi for space, (lo, hi) in zip(spaces, allowed, strict=True))


@given(feasible_windows())
def test_the_bounds_stand_in_order(case: tuple[tuple[Window, ...], int]) -> None:
    best = block_count(solve(*case))
    assert lb1(case[0]) <= ceil(lb2(*case)) <= best
    assert not proves_optimal(best + 1, *case)


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 30), st.integers(-9, 9)), min_size=1, max_size=6), min_size=1), st.data()
)
def test_numpy_and_plain_lists_choose_the_same(options: list[list[tuple[int, int]]], data: st.DataObject) -> None:
    reach = data.draw(st.integers(0, sum(max(value for value, _ in choice) for choice in options)))
    steps = [[step for step in choice if step[0] <= reach] for choice in options]
    assume(all(steps))
    assert minplus._solve_numpy(steps, reach) == minplus._solve_lists(steps, reach)


@given(some_weights, tolerances)
def test_every_share_is_within_the_tolerance(weights: list[int], tolerance: Fraction) -> None:
    assume(feasible(windows(weights, 16, tolerance), 1 << 16))
    chosen = partition(weights, tolerance=tolerance)
    allowed = windows(weights, chosen.assignment.width, tolerance)
    assert all(lo <= space <= hi for space, (lo, hi) in zip(chosen.spaces, allowed, strict=True))
    assert len(chosen.assignment.blocks) == block_count(chosen.spaces)
    assert chosen.deviation == deviation(weights, chosen.spaces) <= tolerance
    assert all((space == 0) == (weight == 0) for space, weight in zip(chosen.spaces, weights, strict=True))


@given(some_weights, st.integers(4, 12))
def test_no_tolerance_below_the_least_can_be_met(weights: list[int], width: int) -> None:
    least = least_tolerance(weights, width)
    assert least is not None
    assert feasible(windows(weights, width, least), 1 << width)
    below = least * Fraction(10**12 - 1, 10**12)
    assert least == 0 or not feasible(windows(weights, width, below), 1 << width)


@given(some_weights, st.integers(0, 20))
@settings(max_examples=30)
def test_a_budget_is_kept_and_its_tolerance_is_met(weights: list[int], spare: int) -> None:
    budget = sum(1 for weight in weights if weight) + spare
    chosen = partition(weights, tolerance=Fraction(0), max_flows=budget)
    assert len(chosen.assignment.blocks) <= budget
    assert deviation(weights, chosen.spaces) == chosen.tolerance
