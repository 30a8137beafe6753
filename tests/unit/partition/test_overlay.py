"""Failure and recovery on examples small enough to see."""

from __future__ import annotations

from fractions import Fraction

import pytest

from xenoovs.partition.block import Assignment, Block, moved
from xenoovs.partition.change import Goal, overlay
from xenoovs.partition.solve import partition

FIVE_PERCENT = Fraction(5, 100)
QUARTERS = Goal((1,) * 4, FIVE_PERCENT)
PLAN = partition(QUARTERS.weights, tolerance=FIVE_PERCENT).assignment


def test_a_failed_backend_is_replaced_by_all_others_and_the_width_grows_for_it() -> None:
    live = overlay(PLAN, PLAN, goal=QUARTERS, down={2})
    assert (PLAN.width, live.width) == (2, 6)
    assert sorted(live.spaces()) == [0, 21, 21, 22]
    assert moved(PLAN, live) == 16


def test_when_all_are_back_the_plan_is_back() -> None:
    live = overlay(PLAN, PLAN, goal=QUARTERS, down={2})
    assert overlay(PLAN, live, goal=QUARTERS, down=()) == PLAN


def test_a_second_failure_leaves_the_first_overlay_where_it_is() -> None:
    one = overlay(PLAN, PLAN, goal=QUARTERS, down={2})
    both = overlay(PLAN, one, goal=QUARTERS, down={1, 2})
    was_up = [address for address in range(64) if one.owner(address) in (0, 3)]
    assert [both.owner(address) for address in was_up] == [one.owner(address) for address in was_up]
    assert both.spaces() == (32, 0, 0, 32)


def test_bits_fixed_by_the_user_are_not_exceeded() -> None:
    live = overlay(PLAN, PLAN, goal=Goal(QUARTERS.weights, FIVE_PERCENT, max_width=2), down={0})
    assert live.width == 2
    assert sorted(live.spaces()) == [0, 1, 1, 2]
    assert live.owner(0) != 0
    assert [live.owner(address) for address in (1, 2, 3)] == [PLAN.owner(address) for address in (1, 2, 3)]


def test_exact_shares_that_the_survivors_cannot_have_are_approached() -> None:
    goal = Goal((2, 1, 1), Fraction(0))
    plan = partition(goal.weights, tolerance=Fraction(0)).assignment
    live = overlay(plan, plan, goal=goal, down={1})
    spaces = live.spaces()
    assert spaces[1] == 0
    assert abs(Fraction(spaces[0], sum(spaces)) - Fraction(2, 3)) < Fraction(1, 10**4)
    assert live.owner(0) == plan.owner(0)


def test_a_backend_without_addresses_may_be_down() -> None:
    goal = Goal((1, 0), FIVE_PERCENT)
    plan = partition(goal.weights, tolerance=FIVE_PERCENT).assignment
    assert overlay(plan, plan, goal=goal, down={1}) == plan


def test_renumbered_backends_keep_what_they_were_lent() -> None:
    live = overlay(PLAN, PLAN, goal=QUARTERS, down={2})
    swapped = Assignment(PLAN.width, tuple((block, 3 - owner) for block, owner in PLAN.blocks), 4)
    again = overlay(swapped, live, goal=QUARTERS, down={1}, owners=[3, 2, 1, 0])
    assert again.blocks == tuple((block, 3 - owner) for block, owner in live.blocks)


def test_nobody_left_is_refused() -> None:
    with pytest.raises(ValueError, match="no weight"):
        overlay(PLAN, PLAN, goal=QUARTERS, down=range(4))


def test_one_survivor_gets_everything() -> None:
    live = overlay(PLAN, PLAN, goal=QUARTERS, down={0, 1, 2})
    assert live.blocks == ((Block(0, 0), 3),)
