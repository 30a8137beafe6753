"""Solver A: spaces with the least number of blocks, by dynamic programming over sets of sums.

A set of sums is one big integer (bit r: sum r can be reached). Level e holds the sums reachable with e blocks more than
the bound LB1, so the first level that holds the wanted sum is the optimum. Fast when the optimum is near the bound.
"""

from __future__ import annotations

from collections.abc import Sequence

from xenoovs.partition.bounds import least_popcount
from xenoovs.partition.windows import Window

MAX_LEVELS = 24
"""Levels tried before the caller turns to the other solver; beyond them that one is faster."""

Candidates = list[list[int]]
"""Offsets from the base by excess popcount: `candidates[c]` are those with c blocks more than the least."""


def solve_bitset(allowed: Sequence[Window], total: int, *, levels: int = MAX_LEVELS) -> tuple[int, ...] | None:
    """Spaces within feasible windows that sum to `total` with the least sum of popcounts.

    None if the optimum is `levels` or more above LB1.
    """
    room_low = total - sum(lo for lo, _ in allowed)
    room_high = sum(hi for _, hi in allowed) - total
    reach = min(room_low, room_high)
    sign = 1 if reach == room_low else -1
    spaces = [lo if sign > 0 else hi for lo, hi in allowed]
    free = [index for index, (lo, hi) in enumerate(allowed) if lo < hi]
    shared = {window: _candidates(window, sign, reach) for window in {allowed[index] for index in free}}
    candidates = [shared[allowed[index]] for index in free]
    sums: list[list[int]] = []
    for _ in range(levels):
        sums.append(_next_level(sums, candidates, reach))
        if sums[-1][-1] >> reach & 1:
            for index, offset in zip(free, _trace_back(sums, candidates, reach), strict=True):
                spaces[index] += sign * offset
            return tuple(spaces)
    return None


def _candidates(window: Window, sign: int, reach: int) -> Candidates:
    lo, hi = window
    least = least_popcount(window)
    values = range(lo, min(hi, lo + reach) + 1) if sign > 0 else range(hi, max(lo, hi - reach) - 1, -1)
    by_excess: Candidates = [[] for _ in range(hi.bit_length() - least + 1)]
    for offset, value in enumerate(values):
        by_excess[value.bit_count() - least].append(offset)
    return by_excess


def _next_level(sums: Sequence[list[int]], candidates: Sequence[Candidates], reach: int) -> list[int]:
    """Level e = len(sums): entry i is the set of sums that the first i free backends reach with excess e in all."""
    level = len(sums)
    within = (1 << (reach + 1)) - 1
    row = [0 if level else 1]
    for index, by_excess in enumerate(candidates):
        reached = 0
        for excess, offsets in enumerate(by_excess[: level + 1]):
            before = sums[level - excess][index] if excess else row[index]
            if before:
                for offset in offsets:
                    reached |= before << offset
        row.append(reached & within)
    return row


def _trace_back(sums: Sequence[list[int]], candidates: Sequence[Candidates], reach: int) -> list[int]:
    level, rest = len(sums) - 1, reach
    chosen = []
    for index in range(len(candidates) - 1, -1, -1):
        excess, offset = next(
            (excess, offset)
            for excess, offsets in enumerate(candidates[index][: level + 1])
            for offset in offsets
            if offset <= rest and sums[level - excess][index] >> (rest - offset) & 1
        )
        chosen.append(offset)
        rest -= offset
        level -= excess
    return chosen[::-1]
