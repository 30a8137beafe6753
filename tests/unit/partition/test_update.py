"""Changes of weights and backends: known costs, renumbered backends and growing widths."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cache
from math import ceil, floor
from random import Random

import pytest

from xenoovs.errors import ToleranceUnreachable
from xenoovs.partition.block import Assignment, Block, Piece, Table, moved
from xenoovs.partition.change import Goal, Start, cheapest_change, failover, start, update
from xenoovs.partition.solve import Window, layout, partition, solve, windows

TEN_PERCENT = Fraction(1, 10)
UNITS = 1 << 10


def hundredth_around(weights: list[str]) -> tuple[Window, ...]:
    slack = Fraction("0.01")
    return tuple(
        Window(ceil((Fraction(weight) - slack) * UNITS), floor((Fraction(weight) + slack) * UNITS))
        for weight in weights
    )


@pytest.mark.parametrize(
    ("price", "blocks", "units"),
    [(1, 18, 296), (UNITS // 128, 11, 320), (UNITS // 64, 11, 320), (UNITS // 16, 11, 320), (UNITS // 8, 9, 432)],
)
def test_the_update_of_the_niagara_authors(price: int, blocks: int, units: int) -> None:
    # weights .2 .4 .1 .3 -> .33 .11 .24 .32 within .01: https://github.com/knx1029/niagara-load-balancer
    old = layout(solve(hundredth_around([".2", ".4", ".1", ".3"]), UNITS), 10)
    begin = Start(Table.of(old, 10), old.spaces(), hundredth_around([".33", ".11", ".24", ".32"]))
    new = cheapest_change(begin, Fraction(price)).assignment(4)
    assert (len(new.blocks), moved(old, new)) == (blocks, units)


def exact_cost(old: Assignment, lo: int, hi: int, price: int) -> int:
    """Least units moved + price * blocks over all tables of two owners in which the first has `lo..hi` units."""
    owners = [owner for piece in Table.of(old, old.width) for owner in [piece.owner] * piece.size]

    @cache
    def least(start: int, size: int, units: int) -> int:
        if units == 0:
            return price + owners[start : start + size].count(0)
        if units == size:
            return price + owners[start : start + size].count(1)
        half = size // 2
        return min(
            least(start, half, left) + least(start + half, half, units - left)
            for left in range(max(0, units - half), min(half, units) + 1)
        )

    return min(least(0, 1 << old.width, units) for units in range(lo, hi + 1))


@pytest.mark.parametrize("seed", range(40))
def test_two_backends_change_at_the_least_cost_of_all(seed: int) -> None:
    random = Random(seed)
    spaces = random.randint(1, 31)
    old = layout([spaces, 32 - spaces], 5)
    price = random.choice([1, 2, 4, 8])
    goal = Goal((random.randint(1, 9), random.randint(1, 9)), Fraction(1, 4), 5, Fraction(price))
    new = update(old, goal)
    first, second = windows(goal.weights, 5, goal.tolerance)
    lo, hi = max(first.lo, 32 - second.hi), min(first.hi, 32 - second.lo)
    assert moved(old, new) + price * len(new.blocks) == exact_cost(old, lo, hi, price)


def test_swapped_names_move_nothing() -> None:
    old = partition([3, 1], tolerance=TEN_PERCENT).assignment
    new = update(old, Goal((1, 3), TEN_PERCENT), owners=[1, 0])
    assert new.blocks == tuple((block, 1 - owner) for block, owner in old.blocks)


def test_the_width_grows_where_the_new_weights_need_it() -> None:
    old = partition([1, 1], tolerance=TEN_PERCENT).assignment
    new = update(old, Goal((1, 1, 1), TEN_PERCENT))
    assert (old.width, new.width) == (1, 5)


def test_fewer_bits_than_the_old_blocks_have_start_afresh() -> None:
    old = partition([1, 1, 1], tolerance=Fraction(1, 100)).assignment
    new = update(old, Goal((1, 1, 1), Fraction(1, 2), max_width=2))
    assert new == partition([1, 1, 1], tolerance=Fraction(1, 2), max_width=2).assignment


def test_weights_out_of_reach_are_refused() -> None:
    old = partition([1, 1], tolerance=TEN_PERCENT).assignment
    with pytest.raises(ToleranceUnreachable) as caught:
        update(old, Goal((1, 10**6), TEN_PERCENT))
    assert caught.value.smallest == 0


def test_spare_units_grow_with_the_square_of_the_blocks_and_are_few_for_what_leaves() -> None:
    old = layout([64] * 4, 8)
    # windows of 61..66 units: 7 bits, of which the tolerance leaves 3 open
    shrunk = start(old, Goal((1, 1, 1, 1, 4), Fraction(4, 100)))
    halves = sum(hi.bit_length() - (hi - lo).bit_length() for lo, hi in shrunk.allowed[:-1])
    assert shrunk.usual_blocks == max(shrunk.fewest_blocks, halves // 2)
    assert shrunk.spare_units == ceil(Fraction(shrunk.least_moved, 4) * Fraction(4, shrunk.usual_blocks) ** 2)
    left = start(old, Goal((1, 1, 1, 0), Fraction(4, 100)))
    assert left.least_moved == 64
    assert left.spare_units == floor(Fraction(64, 4 * 8) * Fraction(4, left.usual_blocks) ** 2)
    split = Table.of(old, 8)
    for piece in list(split):
        split.remove(piece)
        for unit in range(piece.start, piece.start + piece.size):
            split.put(Piece(unit, 1, piece.owner))
    fragmented = replace(left, table=split)
    assert fragmented.spare_units == floor(Fraction(64, 4 * 8) * Fraction(256, left.usual_blocks) ** 2)


@pytest.mark.parametrize("tolerance", [Fraction(1, 100), Fraction(1, 20), TEN_PERCENT])
def test_a_drain_moves_no_client_of_the_other_backends(tolerance: Fraction) -> None:
    """Weights 3:5:8, and the 8 is drained: its half of the clients moves, and nothing else."""
    old = partition((3, 5, 8), tolerance=tolerance).assignment
    assert 2 * moved(old, update(old, Goal((3, 5, 0), tolerance))) == 1 << max(
        old.width, update(old, Goal((3, 5, 0), tolerance)).width
    )


FIVE_PERCENT = Fraction(5, 100)
QUARTERS = Goal((1,) * 4, FIVE_PERCENT)
HOME = partition(QUARTERS.weights, tolerance=FIVE_PERCENT).assignment


def test_a_failed_backend_is_replaced_by_all_others_and_the_width_grows_for_it() -> None:
    active = failover(HOME, HOME, goal=QUARTERS, down={2})
    assert (HOME.width, active.width) == (2, 6)
    assert sorted(active.spaces()) == [0, 21, 21, 22]
    assert moved(HOME, active) == 16


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
