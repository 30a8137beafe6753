"""Updates from any table to any weights."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from xenoovs.partition.block import Assignment, moved
from xenoovs.partition.change import Goal, least_possible_moved, update
from xenoovs.partition.solve import block_count, layout, partition, windows

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
    assert moved(renamed(old, indices, len(goal.weights)), new) >= least_possible_moved(old, goal, owners=indices)


def renamed(old: Assignment, indices: list[int | None], backends: int) -> Assignment:
    """The old blocks under new indices; those that are gone get indices of their own."""
    names = [backends + owner if index is None else index for owner, index in enumerate(indices)]
    return Assignment(old.width, tuple((block, names[owner]) for block, owner in old.blocks), backends + old.backends)


@given(assignments(), goals())
def test_an_update_for_which_blocks_are_worth_nothing_moves_the_least(old: Assignment, goal: Goal) -> None:
    new = update(old, replace(goal, block_price=Fraction(0)))
    assert meets(new, goal)
    assert moved(old, new) == least_possible_moved(old, goal)


@given(assignments(), goals())
def test_blocks_at_any_price_end_at_the_sum_of_one_bits(old: Assignment, goal: Goal) -> None:
    new = update(old, Goal(goal.weights, goal.tolerance, block_price=Fraction(1 << 16)))
    assert len(new.blocks) == block_count(new.spaces())


@given(goals())
def test_the_same_weights_again_change_nothing(goal: Goal) -> None:
    old = partition(goal.weights, tolerance=goal.tolerance).assignment
    assert update(old, goal) == old
    assert update(old, replace(goal, block_price=Fraction(0))) == old
