"""Failure and recovery on examples small enough to see."""

from __future__ import annotations

from fractions import Fraction

import pytest

from xenoovs.partition.block import Assignment, Block, moved
from xenoovs.partition.change import Goal, failover
from xenoovs.partition.solve import partition

FIVE_PERCENT = Fraction(5, 100)
QUARTERS = Goal((1,) * 4, FIVE_PERCENT)
HOME = partition(QUARTERS.weights, tolerance=FIVE_PERCENT).assignment


def test_a_failed_backend_is_replaced_by_all_others_and_the_width_grows_for_it() -> None:
    active = failover(HOME, HOME, goal=QUARTERS, down={2})
    assert (HOME.width, active.width) == (2, 6)
    assert sorted(active.spaces()) == [0, 21, 21, 22]
    assert moved(HOME, active) == 16


def test_when_all_are_back_the_home_assignment_is_back() -> None:
    active = failover(HOME, HOME, goal=QUARTERS, down={2})
    assert failover(HOME, active, goal=QUARTERS, down=()) == HOME


def test_a_second_failure_leaves_the_first_failover_where_it_is() -> None:
    one = failover(HOME, HOME, goal=QUARTERS, down={2})
    both = failover(HOME, one, goal=QUARTERS, down={1, 2})
    was_up = [address for address in range(64) if one.owner(address) in (0, 3)]
    assert [both.owner(address) for address in was_up] == [one.owner(address) for address in was_up]
    assert both.spaces() == (32, 0, 0, 32)


def test_bits_fixed_by_the_user_are_not_exceeded() -> None:
    active = failover(HOME, HOME, goal=Goal(QUARTERS.weights, FIVE_PERCENT, max_width=2), down={0})
    assert active.width == 2
    assert sorted(active.spaces()) == [0, 1, 1, 2]
    assert active.owner(0) != 0
    assert [active.owner(address) for address in (1, 2, 3)] == [HOME.owner(address) for address in (1, 2, 3)]


def test_exact_shares_that_the_survivors_cannot_have_are_approached() -> None:
    goal = Goal((2, 1, 1), Fraction(0))
    plan = partition(goal.weights, tolerance=Fraction(0)).assignment
    active = failover(plan, plan, goal=goal, down={1})
    spaces = active.spaces()
    assert spaces[1] == 0
    assert abs(Fraction(spaces[0], sum(spaces)) - Fraction(2, 3)) < Fraction(1, 10**4)
    assert active.owner(0) == plan.owner(0)


def test_a_backend_without_addresses_may_be_down() -> None:
    goal = Goal((1, 0), FIVE_PERCENT)
    plan = partition(goal.weights, tolerance=FIVE_PERCENT).assignment
    assert failover(plan, plan, goal=goal, down={1}) == plan


def test_renumbered_backends_keep_their_failover_addresses() -> None:
    active = failover(HOME, HOME, goal=QUARTERS, down={2})
    swapped = Assignment(HOME.width, tuple((block, 3 - owner) for block, owner in HOME.blocks), 4)
    again = failover(swapped, active, goal=QUARTERS, down={1}, owners=[3, 2, 1, 0])
    assert again.blocks == tuple((block, 3 - owner) for block, owner in active.blocks)


def test_no_backend_left_is_refused() -> None:
    with pytest.raises(ValueError, match="no weight"):
        failover(HOME, HOME, goal=QUARTERS, down=range(4))


def test_one_survivor_gets_everything() -> None:
    active = failover(HOME, HOME, goal=QUARTERS, down={0, 1, 2})
    assert active.blocks == ((Block(0, 0), 3),)
