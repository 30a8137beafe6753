"""Spaces with the least number of blocks: the bitset solver where it is fast, the (min,+) solver for the rest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil

from xenoovs.partition.bitset import MAX_LEVELS, solve_bitset
from xenoovs.partition.bounds import lb1, lb2
from xenoovs.partition.minplus import Option, solve_min_plus
from xenoovs.partition.windows import Window, feasible

_FEW = 4 * MAX_LEVELS
"""Backends below which the optimum is surely close enough to its bound for the first solver to be tried unasked."""


def block_count(spaces: Iterable[int]) -> int:
    """The least number of blocks, and of megaflows, that give these spaces."""
    return sum(space.bit_count() for space in spaces)


def proves_optimal(count: int, allowed: Sequence[Window], total: int) -> bool:
    """Whether a lower bound for these feasible windows shows that no spaces need fewer than `count` blocks."""
    return lb1(allowed) >= count or lb2(allowed, total) > count - 1


def solve(allowed: Sequence[Window], total: int) -> tuple[int, ...]:
    """Spaces within feasible windows that sum to `total`, with the least number of blocks. ValueError: infeasible."""
    if feasible(allowed, total) and _near_bound(allowed, total):
        spaces = solve_bitset(allowed, total)
        if spaces is not None:
            return spaces
    shared = {window: _popcounts(window) for window in set(allowed)}
    spaces = solve_min_plus([shared[window] for window in allowed], total)
    if spaces is None:
        raise ValueError(f"no spaces within the windows sum to {total}")
    return spaces


def _near_bound(allowed: Sequence[Window], total: int) -> bool:
    """Whether the first solver is likely to reach the optimum within its levels."""
    return len(allowed) < _FEW or ceil(lb2(allowed, total)) - lb1(allowed) < MAX_LEVELS


def _popcounts(window: Window) -> list[Option]:
    return [(value, value.bit_count()) for value in range(window.lo, window.hi + 1)]
