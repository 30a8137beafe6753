"""New weights, backends or tolerance: a new assignment near the old one.

By default the spaces are those that move the fewest units, and among them those with the fewest 1 bits. Then a small
part more is moved where that makes fewer blocks (`spare_units`). With a price, a change minimises units moved + price *
blocks. Old owners that are gone, and backends without a weight, give up all they have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from xenoovs.partition.block import MAX_WIDTH, Assignment
from xenoovs.partition.bounds import lb2
from xenoovs.partition.choose import partition, unreachable
from xenoovs.partition.compact import compact, compact_to, compact_within
from xenoovs.partition.minplus import Option, solve_min_plus
from xenoovs.partition.realise import realise
from xenoovs.partition.solve import solve
from xenoovs.partition.table import Table
from xenoovs.partition.windows import (
    Weight,
    Window,
    first_feasible_width,
    strict_windows,
    whole_weights,
    windows,
)

_FULL_WINDOW = 64
"""Values above which a window is searched at a few likely positions first."""

_USUAL_BLOCKS = 2
"""Blocks that a share needs unless it happens to be close to a power of two."""

_MOST_BLOCKS = 4
"""Blocks, in multiples of the usual number, above which movement no longer counts."""

_SPARE_PART = Fraction(2, 9)
"""Part of the least movement that may be moved as well when a table has the usual number of blocks."""

_LEAVING = Fraction(1, 10)
"""How much of that part the units of a backend that leaves count for."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What a change aims at.

    Attributes:
        weights: The weight of each backend; 0: it gets nothing.
        tolerance: By which part of itself a share may differ from its weight.
        max_width: Bits that may be used.
        block_price: Units that one block less is worth; 0: the fewest units move; None: the default described above.
        max_blocks: Blocks that the change ends with at most, where exchanges can reach that; None: no limit.
    """

    weights: tuple[Weight, ...]
    tolerance: Fraction
    max_width: int = MAX_WIDTH
    block_price: Fraction | None = None
    max_blocks: int | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """An old table in the width and owners of a goal, its spaces and windows; owners that are gone stand at the end."""

    table: Table
    spaces: tuple[int, ...]
    allowed: tuple[Window, ...]

    @property
    def least_moved(self) -> int:
        """The units that any table within the windows must move: what is too much, or what is missing."""
        over = sum(max(0, space - hi) for space, (_, hi) in zip(self.spaces, self.allowed, strict=True))
        under = sum(max(0, lo - space) for space, (lo, _) in zip(self.spaces, self.allowed, strict=True))
        return max(over, under)

    @property
    def fewest_blocks(self) -> int:
        """A bound: no table within the windows has fewer blocks, and nearly always one has as many."""
        return ceil(lb2(self.allowed, 1 << self.table.width))

    @property
    def usual_blocks(self) -> int:
        """The fewest blocks, or what weights of no special kind need: few weights are all near powers of two."""
        return max(self.fewest_blocks, _USUAL_BLOCKS * sum(1 for _, hi in self.allowed if hi))

    @property
    def spare_units(self) -> int:
        """The units that may be moved beyond the least to have fewer blocks.

        They grow with the square of the blocks there are, so that tables do not get more and more of them. A backend
        that leaves is no reason to move the clients of others: its units count little.
        """
        leaving = sum(space for space, (_, hi) in zip(self.spaces, self.allowed, strict=True) if not hi)
        counted = self.least_moved - leaving + _LEAVING * leaving
        return ceil(_SPARE_PART * counted * Fraction(len(self.table), self.usual_blocks) ** 2)


def start(old: Assignment, goal: Goal, *, owners: Sequence[int | None] | None = None) -> Start:
    """`owners[i]`: new index of old backend i, None if it is gone; left out: indices stay.

    The width grows where the goal needs it. Raises ToleranceUnreachable.
    """
    backends = len(goal.weights)
    width = first_feasible_width(goal.weights, goal.tolerance, goal.max_width)
    if width is None:
        raise unreachable(whole_weights(goal.weights), goal.tolerance, goal.max_width)
    width = max(width, min(old.width, goal.max_width), *(block.depth for block, _ in old.blocks))
    table = Table.of(old, width, renumbered(old, backends, owners))
    allowed = (*windows(goal.weights, width, goal.tolerance), Window(0, 0))
    return Start(table, tuple(table.spaces(backends + 1)), allowed)


def renumbered(old: Assignment, backends: int, owners: Sequence[int | None] | None) -> list[int]:
    """The new index of every old backend; `backends`, which is none of them, for those that are gone."""
    kept = range(old.backends) if owners is None else owners
    return [index if index is not None and index < backends else backends for index in kept]


def update(old: Assignment, goal: Goal, *, owners: Sequence[int | None] | None = None) -> Assignment:
    """Return an assignment within the goal's windows that is near the old one.

    `owners` as in `start`. Without a price nothing changes if the old assignment meets the windows and `max_blocks`. If
    the old one uses more bits than the goal allows, the new one is made afresh. Raises ToleranceUnreachable.
    """
    if any(block.depth > goal.max_width for block, _ in old.blocks):
        return partition(goal.weights, tolerance=goal.tolerance, max_width=goal.max_width).assignment
    begin = start(old, goal, owners=owners)
    table = cheapest_change(begin, goal.block_price) if goal.block_price else _nearest(begin, goal)
    if goal.max_blocks is not None:
        compact_to(table, begin.table, goal.max_blocks)
        if len(table) > goal.max_blocks:
            table = cheapest_change(begin, Fraction(1 << begin.table.width))
    return table.assignment(len(goal.weights))


def least_possible_moved(old: Assignment, goal: Goal, *, owners: Sequence[int | None] | None = None) -> int:
    """The units that any assignment within the goal's windows moves, in the width that `start` gives."""
    return start(old, goal, owners=owners).least_moved


def _nearest(begin: Start, goal: Goal) -> Table:
    """Return a table within the windows that moves the fewest units, and by default some more to have fewer blocks."""
    total = 1 << begin.table.width
    result = realise(begin.table, solve(strict_windows(begin.spaces, begin.allowed), total))
    spare = 0 if goal.block_price == 0 else begin.spare_units
    # no block is worth more than half a block of mean size
    compact_within(result, begin.table, Fraction(total, 2 * begin.fewest_blocks), units=spare)
    if goal.block_price is None and begin.least_moved:
        compact_to(result, begin.table, _MOST_BLOCKS * begin.usual_blocks)
    return result


def cheapest_change(begin: Start, price: Fraction) -> Table:
    """A table within the windows for which units moved + `price` * blocks is small: the best spaces, then exchanges.

    ValueError: the windows cannot be met.
    """
    result = realise(begin.table, _cheapest_spaces(begin, price))
    compact(result, begin.table, price)
    return result


def _cheapest_spaces(begin: Start, price: Fraction) -> tuple[int, ...]:
    total = 1 << begin.table.width
    for candidates in (_likely_values, _all_values):
        options = [
            _priced(candidates(space, window), space, price)
            for space, window in zip(begin.spaces, begin.allowed, strict=True)
        ]
        spaces = solve_min_plus(options, total)
        if spaces is not None:
            return spaces
    raise ValueError(f"no spaces within the windows sum to {total}")


def _priced(values: Sequence[int], space: int, price: Fraction) -> list[Option]:
    """Units gained plus the price of the blocks, in fractions of a unit that make both whole."""
    return [
        (value, max(0, value - space) * price.denominator + price.numerator * value.bit_count()) for value in values
    ]


def _all_values(space: int, window: Window) -> Sequence[int]:
    return range(window.lo, window.hi + 1)


def _likely_values(space: int, window: Window) -> Sequence[int]:
    """The whole window if it is small, else about 100 values: near its ends and the old space, and round ones."""
    lo, hi = window
    if hi - lo < _FULL_WINDOW:
        return range(lo, hi + 1)
    bases = {lo, hi, space}
    values = bases | set(range(lo, lo + 9))
    for base in bases:
        for bit in range((hi - lo).bit_length() + 1):
            low_bits = (1 << bit) - 1
            for rounded in (base & ~low_bits, (base | low_bits) + 1):
                values.add(rounded)
                values.update(rounded + sign * (1 << lower) for lower in range(bit) for sign in (1, -1))
    return sorted(value for value in values if lo <= value <= hi)
