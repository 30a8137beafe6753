"""Updates from any table to any weights."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from xenoovs.partition.block import Assignment, moved
from xenoovs.partition.change import Goal, failover, realise, start, update
from xenoovs.partition.solve import block_count, layout, partition, solve, strict_windows, windows

tolerances = st.fractions(min_value=Fraction(1, 20), max_value=Fraction(1, 2), max_denominator=40)


@st.composite
def assignments(draw: st.DrawFn, *, width: int = 7) -> Assignment:
    total = 1 << width
    spaces: list[int] = []
    for _ in range(draw(st.integers(1, 5))):
        spaces.append(draw(st.integers(0, total - sum(spaces))))
    return layout(draw(st.permutations([*spaces, total - sum(spaces)])), width)


@st.composite
def goals(draw: st.DrawFn) -> Goal:
    weights = draw(st.lists(st.integers(0, 20), min_size=1, max_size=7).filter(any))
    price = draw(st.sampled_from([None, Fraction(0), Fraction(1), Fraction(5, 2), Fraction(1 << 16)]))
    return Goal(tuple(weights), draw(tolerances), block_price=price)


def meets(assignment: Assignment, goal: Goal) -> bool:
    allowed = windows(goal.weights, assignment.width, goal.tolerance)
    return all(lo <= space <= hi for space, (lo, hi) in zip(assignment.spaces(), allowed, strict=True))


@given(assignments(), goals(), st.data())
def test_an_update_meets_the_windows_and_moves_no_less_than_it_must(
    old: Assignment, goal: Goal, data: st.DataObject
) -> None:
    # an old backend keeps one new index or is gone
    indices = data.draw(st.permutations([*range(len(goal.weights)), *([None] * old.backends)]))[: old.backends]
    new = update(old, goal, owners=indices)
    assert meets(new, goal)
    assert moved(renamed(old, indices, len(goal.weights)), new) >= start(old, goal, owners=indices).least_moved


def renamed(old: Assignment, indices: list[int | None], backends: int) -> Assignment:
    """The old blocks under new indices; those that are gone get indices of their own."""
    names = [backends + owner if index is None else index for owner, index in enumerate(indices)]
    return Assignment(old.width, tuple((block, names[owner]) for block, owner in old.blocks), backends + old.backends)


@given(assignments(), goals(), st.data())
def test_an_update_for_which_blocks_are_worth_nothing_moves_the_least(
    old: Assignment, goal: Goal, data: st.DataObject
) -> None:
    indices = data.draw(st.permutations([*range(len(goal.weights)), *([None] * old.backends)]))[: old.backends]
    new = update(old, replace(goal, block_price=Fraction(0)), owners=indices)
    assert meets(new, goal)
    assert moved(renamed(old, indices, len(goal.weights)), new) == start(old, goal, owners=indices).least_moved


@given(assignments(), goals(), st.data())
def test_by_default_no_more_than_the_spare_units_move_beyond_the_least(
    old: Assignment, goal: Goal, data: st.DataObject
) -> None:
    indices = data.draw(st.permutations([*range(len(goal.weights)), *([None] * old.backends)]))[: old.backends]
    default = replace(goal, block_price=None)
    begin = start(old, default, owners=indices)
    strict = solve(strict_windows(begin.spaces, begin.allowed), 1 << begin.table.width)
    new = update(old, default, owners=indices)
    went = moved(renamed(old, indices, len(goal.weights)), new)
    ceiling = 4 * begin.usual_blocks
    assert len(new.blocks) <= max(ceiling, block_count(new.spaces()))
    # above the ceiling blocks are fewer at any movement
    assert went <= begin.least_moved + begin.spare_units or len(realise(begin.table, strict)) > ceiling


@given(assignments(), goals())
def test_blocks_at_any_price_end_at_the_sum_of_one_bits(old: Assignment, goal: Goal) -> None:
    new = update(old, replace(goal, block_price=Fraction(1 << 16)))
    assert len(new.blocks) == block_count(new.spaces())


@given(assignments(), goals(), st.integers(0, 12))
def test_a_budget_of_blocks_is_kept_where_it_can_be(old: Assignment, goal: Goal, more: int) -> None:
    width = start(old, goal).table.width
    budget = block_count(solve(windows(goal.weights, width, goal.tolerance), 1 << width)) + more
    new = update(old, replace(goal, max_blocks=budget))
    assert meets(new, goal)
    assert len(new.blocks) <= budget


@given(goals())
def test_the_same_weights_again_change_nothing(goal: Goal) -> None:
    old = partition(goal.weights, tolerance=goal.tolerance).assignment
    assert update(old, goal) == old
    assert update(old, replace(goal, block_price=Fraction(0), max_blocks=len(old.blocks))) == old


@given(assignments(), goals())
def test_by_default_weights_that_are_met_change_nothing(old: Assignment, goal: Goal) -> None:
    first = update(old, replace(goal, block_price=Fraction(0)))
    assert update(first, replace(goal, block_price=None)) == first


@st.composite
def histories(draw: st.DrawFn) -> tuple[Goal, list[frozenset[int]]]:
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
    case: tuple[Goal, list[frozenset[int]]], data: st.DataObject
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
def test_failover_addresses_move_only_where_growth_alone_cannot_meet_the_windows(
    case: tuple[Goal, list[frozenset[int]]],
) -> None:
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
def test_the_shares_of_the_rest_are_within_the_tolerance_where_bits_allow(
    case: tuple[Goal, list[frozenset[int]]],
) -> None:
    goal, history = case
    roomy = Goal(goal.weights, Fraction(1, 4), max_width=12)
    plan = partition(goal.weights, tolerance=roomy.tolerance, width=9).assignment
    for down, live in zip(history, lives(plan, roomy, history)[1:], strict=True):
        weights = [0 if index in down else weight for index, weight in enumerate(goal.weights)]
        allowed = windows(weights, live.width, roomy.tolerance)
        assert all(lo <= space <= hi for space, (lo, hi) in zip(live.spaces(), allowed, strict=True))
