"""The least possible movement at any price in blocks."""

from __future__ import annotations

from collections.abc import Sequence

from xenoovs.partition.block import Assignment
from xenoovs.partition.minplus import Option, solve_min_plus
from xenoovs.partition.realise import kept_count, realise
from xenoovs.partition.table import Piece
from xenoovs.partition.update import Goal, start
from xenoovs.partition.windows import Window


def repair(old: Assignment, goal: Goal, *, owners: Sequence[int | None] | None = None) -> Assignment:
    """An assignment within the goal's windows that moves exactly `least_possible_moved`, in few blocks.

    `owners` as in `update.start`. Raises ToleranceUnreachable. Repeated repairs make the number of blocks drift up.
    """
    begin = start(old, goal, owners=owners)
    held = begin.table.by_owner(len(begin.spaces))
    ranges = strict_windows(begin.spaces, begin.allowed, [0] * len(held))
    options = [
        _options(pieces, space, window) for pieces, space, window in zip(held, begin.spaces, ranges, strict=True)
    ]
    spaces = solve_min_plus(options, 1 << begin.table.width)
    if spaces is None:
        raise ValueError("the windows of the least movement do not sum to the space")
    return realise(begin.table, spaces).assignment(len(goal.weights))


def strict_windows(spaces: Sequence[int], allowed: Sequence[Window], floors: Sequence[int]) -> list[Window]:
    """Windows cut to the least movement: one side is set right exactly, the other gives or takes no more than that.

    Nobody goes below its floor; a window becomes empty where that cannot be.
    """
    over = sum(max(0, space - hi) for space, (_, hi) in zip(spaces, allowed, strict=True))
    under = sum(max(0, lo - space) for space, (lo, _) in zip(spaces, allowed, strict=True))
    rows = zip(spaces, floors, allowed, strict=True)
    if over >= under:
        return [Window(max(hi, floor) if space > hi else max(space, lo), hi) for space, floor, (lo, hi) in rows]
    return [Window(max(lo, floor), lo if space < lo else max(min(space, hi), floor)) for space, floor, (lo, hi) in rows]


def _options(pieces: Sequence[Piece], space: int, window: Window) -> list[Option]:
    """Blocks more than now, for every value of a window."""
    return [
        (value, (value - space).bit_count() if value >= space else kept_count(pieces, value) - len(pieces))
        for value in range(window.lo, window.hi + 1)
    ]
