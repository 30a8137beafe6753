"""Failures and recoveries in any order: the plan stays, the rest moves only when it must."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from xenoovs.partition.block import Assignment
from xenoovs.partition.change import Goal, failover
from xenoovs.partition.solve import partition, windows


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


@given(histories())
def test_an_address_whose_plan_owner_is_up_belongs_to_it_and_none_to_the_dead(
    case: tuple[Goal, list[frozenset[int]]],
) -> None:
    goal, history = case
    plan = partition(goal.weights, tolerance=goal.tolerance, max_width=9).assignment
    for down, live in zip(history, lives(plan, goal, history)[1:], strict=True):
        pairs = list(zip(owners(plan, live.width), owners(live, live.width), strict=True))
        assert all(planned in down or planned == used for planned, used in pairs)
        assert all(used not in down for _, used in pairs)


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
def test_after_everything_the_plan_is_back(case: tuple[Goal, list[frozenset[int]]]) -> None:
    goal, history = case
    plan = partition(goal.weights, tolerance=goal.tolerance, max_width=9).assignment
    assert lives(plan, goal, [*history, frozenset()])[-1] == plan


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
