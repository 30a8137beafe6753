"""Laws of blocks: their layout, the optimum against exhaustive search, its width, and updates from any table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import ceil
from random import Random
from typing import NamedTuple

from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests.strategies import share
from xenoovs.partition import solve as minplus
from xenoovs.partition.block import Assignment, Block, moved, select, spread, unspread
from xenoovs.partition.change import Goal, failover, realise, start, update
from xenoovs.partition.solve import (
    Window,
    block_count,
    deviation,
    feasible,
    first_feasible_width,
    layout,
    lb1,
    lb2,
    least_tolerance,
    partition,
    proves_optimal,
    solve,
    solve_bitset,
    solve_min_plus,
    strict_windows,
    windows,
)


@st.composite
def splits(draw: st.DrawFn, total: int, most: int) -> list[int]:
    """Up to `most` numbers with this sum."""
    spaces: list[int] = []
    for _ in range(draw(st.integers(0, most - 1))):
        spaces.append(draw(st.integers(0, total - sum(spaces))))
    return [*spaces, total - sum(spaces)]


@given(st.integers(0, 9).flatmap(lambda width: st.tuples(splits(1 << width, 8), st.just(width))))
def test_every_address_lies_in_exactly_one_of_as_few_blocks_as_one_bits(case: tuple[list[int], int]) -> None:
    spaces, width = case
    blocks = layout(spaces, width).blocks
    owners = [[owner for block, owner in blocks if block.contains(address)] for address in range(1 << width)]
    assert all(len(found) == 1 for found in owners)
    counted = Counter(found[0] for found in owners)
    assert [counted[backend] for backend in range(len(spaces))] == spaces
    assert len(blocks) == block_count(spaces)
    assert all(dict(blocks).get(block.buddy()) != owner for block, owner in blocks if block.depth)


positions = st.lists(st.integers(0, 127), min_size=8, max_size=16, unique=True) | st.none()


@st.composite
def blocks(draw: st.DrawFn) -> Block:
    depth = draw(st.integers(0, 8))
    return Block(draw(st.integers(0, (1 << depth) - 1)), depth)


@given(blocks(), positions, st.integers(0, 2**128 - 1))
def test_an_address_matches_where_its_selected_bits_do(block: Block, chosen: list[int] | None, address: int) -> None:
    """No list means the low bits in order."""
    value, mask = spread(block, chosen)
    assert (address & mask == value) == block.contains(select(address, chosen, 8))
    assert unspread(value, mask, chosen) == block
    if chosen is None:
        assert (value, mask) == spread(block, range(16)) == (block.value, (1 << block.depth) - 1)
        assert select(address, None, 8) == select(address, range(16), 8) == address & 0xFF


tolerances = st.fractions(min_value=0, max_value=Fraction(1, 2), max_denominator=200)
some_weights = st.lists(st.integers(0, 1000), min_size=1, max_size=12).filter(any)


Windows = tuple[tuple[Window, ...], int]


@st.composite
def feasible_windows(draw: st.DrawFn, *, most: int = 8, width: int = 8) -> Windows:
    total = 1 << draw(st.integers(0, width))
    slack = st.integers(0, max(1, total // 4))
    spaces = draw(splits(total, most))
    return tuple(Window(max(0, space - draw(slack)), space + draw(slack)) for space in spaces), total


def are_within(spaces: Sequence[int], allowed: Sequence[Window]) -> bool:
    return all(lo <= space <= hi for space, (lo, hi) in zip(spaces, allowed, strict=True))


def exhaustive(allowed: tuple[Window, ...], total: int) -> int:
    ranges = [range(lo, hi + 1) for lo, hi in allowed[:-1]]
    last = allowed[-1]
    return min(
        block_count((*spaces, total - sum(spaces)))
        for spaces in product(*ranges)
        if last.lo <= total - sum(spaces) <= last.hi
    )


@given(feasible_windows(most=3, width=5))
@share(0.8)
def test_the_optimum_is_that_of_exhaustive_search(case: Windows) -> None:
    assert block_count(solve(*case)) == exhaustive(*case)


@given(feasible_windows())
def test_both_solvers_agree_and_meet_the_windows_and_the_bounds(case: Windows) -> None:
    allowed, total = case
    first = solve_bitset(allowed, total)
    second = solve_min_plus([[(v, v.bit_count()) for v in range(lo, hi + 1)] for lo, hi in allowed], total)
    assert first is not None
    assert second is not None
    for spaces in (first, second):
        assert sum(spaces) == total
        assert are_within(spaces, allowed)
    best = block_count(solve(*case))
    assert block_count(first) == block_count(second) == best
    assert lb1(allowed) <= ceil(lb2(*case)) <= best
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
    assert are_within(chosen.spaces, windows(weights, chosen.assignment.width, tolerance))
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
@share(0.3)
def test_a_budget_is_kept_and_its_tolerance_is_met(weights: list[int], spare: int) -> None:
    budget = sum(1 for weight in weights if weight) + spare
    chosen = partition(weights, tolerance=Fraction(0), max_flows=budget)
    assert len(chosen.assignment.blocks) <= budget
    assert deviation(weights, chosen.spaces) == chosen.tolerance


wide_tolerances = st.fractions(min_value=Fraction(1, 50), max_value=Fraction(1, 4), max_denominator=100)
few_weights = st.lists(st.integers(0, 60), min_size=1, max_size=8).filter(any)


@given(few_weights, wide_tolerances)
def test_more_bits_never_need_more_blocks(weights: list[int], tolerance: Fraction) -> None:
    first = first_feasible_width(weights, tolerance, 16)
    assert first is not None
    assume(first <= 10)
    counts = [block_count(solve(windows(weights, width, tolerance), 1 << width)) for width in range(first, first + 4)]
    assert counts == sorted(counts, reverse=True)


@given(few_weights, wide_tolerances, st.integers(0, 5))
def test_the_choice_is_the_smallest_of_the_best_widths(weights: list[int], tolerance: Fraction, more: int) -> None:
    first = first_feasible_width(weights, tolerance, 16)
    assert first is not None
    most = min(first + more, 16)
    tried = [
        (block_count(solve(windows(weights, width, tolerance), 1 << width)), width) for width in range(first, most + 1)
    ]
    chosen = partition(weights, tolerance=tolerance, max_width=most).assignment
    assert (len(chosen.blocks), chosen.width) == min(tried)


@given(
    few_weights,
    wide_tolerances,
    st.fractions(min_value=Fraction(1, 9), max_value=100, max_denominator=9),
    st.randoms(use_true_random=False),
)
def test_neither_scale_nor_order_of_the_weights_matters(
    weights: list[int], tolerance: Fraction, scale: Fraction, random: Random
) -> None:
    mixed = list(weights)
    random.shuffle(mixed)
    given_count = len(partition(weights, tolerance=tolerance).assignment.blocks)
    assert len(partition(mixed, tolerance=tolerance).assignment.blocks) == given_count
    assert partition([weight * scale for weight in weights], tolerance=tolerance) == partition(
        weights, tolerance=tolerance
    )


change_tolerances = st.fractions(min_value=Fraction(1, 20), max_value=Fraction(1, 2), max_denominator=40)
ASSIGNMENTS = splits(1 << 7, 6).flatmap(st.permutations).map(lambda spaces: layout(spaces, 7))


@st.composite
def goals(draw: st.DrawFn) -> Goal:
    weights = draw(st.lists(st.integers(0, 20), min_size=1, max_size=7).filter(any))
    price = draw(st.sampled_from([None, Fraction(0), Fraction(1), Fraction(5, 2), Fraction(1 << 16)]))
    return Goal(tuple(weights), draw(change_tolerances), block_price=price)


def meets(assignment: Assignment, goal: Goal) -> bool:
    return are_within(assignment.spaces(), windows(goal.weights, assignment.width, goal.tolerance))


class Change(NamedTuple):
    """`owners`: an old backend keeps one new index or is gone."""

    old: Assignment
    goal: Goal
    owners: list[int | None]

    def update(self, goal: Goal) -> tuple[Assignment, int]:
        """The new blocks, and how many units move."""
        new = update(self.old, goal, owners=self.owners)
        # those that are gone get indices of their own
        count = len(goal.weights)
        names = [count + owner if index is None else index for owner, index in enumerate(self.owners)]
        blocks = tuple((block, names[owner]) for block, owner in self.old.blocks)
        return new, moved(Assignment(self.old.width, blocks, count + self.old.backends), new)


@st.composite
def changes(draw: st.DrawFn) -> Change:
    old, goal = draw(ASSIGNMENTS), draw(goals())
    indices = draw(st.permutations([*range(len(goal.weights)), *([None] * old.backends)]))
    return Change(old, goal, indices[: old.backends])


@given(changes())
def test_an_update_meets_the_windows_and_moves_no_less_than_it_must(change: Change) -> None:
    """And no more where blocks are worth nothing."""
    for goal in (change.goal, replace(change.goal, block_price=Fraction(0))):
        least = start(change.old, goal, owners=change.owners).least_moved
        new, went = change.update(goal)
        assert meets(new, goal)
        assert went == least if goal.block_price == 0 else went >= least


# One of few tables that the spare units alone do not bring below the ceiling: 128 blocks, that of each backend in turn.
IN_TURN = Change(
    Assignment(7, tuple((Block(value, 7), int(f"{value:07b}"[::-1], 2) % 3) for value in range(128)), 3),
    Goal((1, 1, 1), Fraction(1, 100)),
    [0, 1, 2],
)


@example(IN_TURN)
@given(changes())
def test_by_default_no_more_than_the_spare_units_move_beyond_the_least(change: Change) -> None:
    default = replace(change.goal, block_price=None)
    begin = start(change.old, default, owners=change.owners)
    strict = solve(strict_windows(begin.spaces, begin.allowed), 1 << begin.table.width)
    new, went = change.update(default)
    ceiling = 4 * begin.usual_blocks
    assert len(new.blocks) <= max(ceiling, block_count(new.spaces()))
    # above the ceiling blocks are fewer at any movement
    assert went <= begin.least_moved + begin.spare_units or len(realise(begin.table, strict)) > ceiling


@given(ASSIGNMENTS, goals())
def test_bug_blocks_at_any_price_were_not_as_few_as_can_be(old: Assignment, goal: Goal) -> None:
    new = update(old, replace(goal, block_price=Fraction(1 << 16)))
    assert len(new.blocks) == len(partition(goal.weights, tolerance=goal.tolerance).assignment.blocks)


@given(ASSIGNMENTS, goals(), st.integers(0, 12))
def test_a_budget_of_blocks_is_kept_where_it_can_be(old: Assignment, goal: Goal, more: int) -> None:
    budget = len(partition(goal.weights, tolerance=goal.tolerance).assignment.blocks) + more
    new = update(old, replace(goal, max_blocks=budget))
    assert meets(new, goal)
    assert len(new.blocks) <= budget


@given(goals())
def test_the_same_weights_again_change_nothing(goal: Goal) -> None:
    old = partition(goal.weights, tolerance=goal.tolerance).assignment
    assert update(old, goal) == old
    assert update(old, replace(goal, block_price=Fraction(0), max_blocks=len(old.blocks))) == old


@given(ASSIGNMENTS, goals())
def test_by_default_weights_that_are_met_change_nothing(old: Assignment, goal: Goal) -> None:
    first = update(old, replace(goal, block_price=Fraction(0)))
    assert update(first, replace(goal, block_price=None)) == first


History = tuple[Goal, list[frozenset[int]]]


@st.composite
def histories(draw: st.DrawFn) -> History:
    weights = draw(st.lists(st.integers(1, 9), min_size=2, max_size=6))
    tolerance = draw(st.sampled_from([Fraction(1, 20), Fraction(1, 10), Fraction(1, 4)]))
    states = st.frozensets(st.integers(0, len(weights) - 1), max_size=len(weights) - 1)
    return Goal(tuple(weights), tolerance, max_width=9), draw(st.lists(states, min_size=1, max_size=6))


def lives(plan: Assignment, goal: Goal, history: list[frozenset[int]]) -> list[Assignment]:
    found = [plan]
    for down in history:
        found.append(failover(plan, found[-1], goal=goal, down=down))
    return found


def owners(assignment: Assignment, width: int) -> list[int]:
    return [assignment.owner(address & ((1 << assignment.width) - 1)) for address in range(1 << width)]


@given(histories(), st.data())
def test_a_closed_backend_has_its_own_addresses_and_no_others_while_another_is_up(
    case: History, data: st.DataObject
) -> None:
    goal, history = case
    live = plan = partition(goal.weights, tolerance=goal.tolerance, max_width=9).assignment
    for down in history:
        up = frozenset(range(len(goal.weights))) - down
        closed = data.draw(st.frozensets(st.sampled_from(sorted(up))))
        live = failover(plan, live, goal=goal, down=down, closed=closed)
        pairs = list(zip(owners(plan, live.width), owners(live, live.width), strict=True))
        assert all(planned in down or planned == used for planned, used in pairs)
        assert all(used not in (down if up == closed else down | closed) for planned, used in pairs if planned in down)


@given(histories())
def test_failover_addresses_move_only_where_growth_alone_cannot_meet_the_windows(case: History) -> None:
    goal, history = case
    plan = partition(goal.weights, tolerance=goal.tolerance, max_width=9).assignment
    states = lives(plan, goal, history)
    for down, before, after in zip(history, states, states[1:], strict=False):
        width = after.width
        planned, old, new = owners(plan, width), owners(before, width), owners(after, width)
        kept = [
            owner if owner not in down else (used if used not in down else None)
            for owner, used in zip(planned, old, strict=True)
        ]
        weights = [0 if index in down else weight for index, weight in enumerate(goal.weights)]
        ranges = [
            (max(kept.count(index), lo), hi) for index, (lo, hi) in enumerate(windows(weights, width, goal.tolerance))
        ]
        grows = all(lo <= hi for lo, hi in ranges) and sum(lo for lo, _ in ranges) <= len(kept) <= sum(
            hi for _, hi in ranges
        )
        if grows:
            assert all(owner is None or owner == used for owner, used in zip(kept, new, strict=True))


@given(histories())
def test_the_shares_of_the_rest_are_within_the_tolerance_where_bits_allow(case: History) -> None:
    goal, history = case
    roomy = Goal(goal.weights, Fraction(1, 4), max_width=12)
    plan = partition(goal.weights, tolerance=roomy.tolerance, width=9).assignment
    for down, live in zip(history, lives(plan, roomy, history)[1:], strict=True):
        weights = [0 if index in down else weight for index, weight in enumerate(goal.weights)]
        assert are_within(live.spaces(), windows(weights, live.width, roomy.tolerance))
