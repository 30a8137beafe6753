"""New weights, backends or tolerance: a new assignment near the old one.

The price of a change is the units moved plus `block_price` times the number of blocks. Old owners that are gone, and
backends without a weight, give up all they have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from xenoovs.partition.block import MAX_WIDTH, Assignment
from xenoovs.partition.choose import partition, unreachable
from xenoovs.partition.compact import compact
from xenoovs.partition.minplus import Option, solve_min_plus
from xenoovs.partition.realise import realise
from xenoovs.partition.table import Table
from xenoovs.partition.windows import Weight, Window, first_feasible_width, whole_weights, windows

_FULL_WINDOW = 64
"""Values above which a window is searched at a few likely places first."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What shares are wanted. `block_price`: units that one block less is worth; None: a quarter of a mean share."""

    weights: tuple[Weight, ...]
    tolerance: Fraction
    max_width: int = MAX_WIDTH
    block_price: Fraction | None = None

    def price(self, width: int) -> Fraction:
        """Units of a space of `width` bits that one block less is worth: `2**width / 4k` for k backends, at least 1."""
        if self.block_price is not None:
            return self.block_price
        return max(Fraction(1), Fraction(1 << width, 4 * sum(1 for weight in self.weights if weight)))


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
    """An assignment within the goal's windows that costs little: units moved plus the price of its blocks.

    `owners` as in `start`. Nothing changes if the old assignment is optimal for the goal. If the old one uses more bits
    than the goal allows, the new one is made afresh. Raises ToleranceUnreachable.
    """
    if any(block.depth > goal.max_width for block, _ in old.blocks):
        return partition(goal.weights, tolerance=goal.tolerance, max_width=goal.max_width).assignment
    begin = start(old, goal, owners=owners)
    return cheapest_change(begin, goal.price(begin.table.width)).assignment(len(goal.weights))


def cheapest_change(begin: Start, price: Fraction) -> Table:
    """A table within the windows for which units moved + `price` * blocks is small: the best spaces, then exchanges.

    ValueError: the windows cannot be met.
    """
    result = realise(begin.table, _cheapest_spaces(begin, price))
    compact(result, begin.table, price)
    return result


def least_possible_moved(old: Assignment, goal: Goal, *, owners: Sequence[int | None] | None = None) -> int:
    """The units that any assignment within the goal's windows moves, in the width that `start` gives."""
    return start(old, goal, owners=owners).least_moved


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
