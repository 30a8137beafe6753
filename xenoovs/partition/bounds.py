"""Lower bounds on the number of blocks, and so of megaflows.

A backend with w units needs at least popcount(w) blocks, because megaflows are disjoint and each holds a power of two.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

from xenoovs.partition.windows import Window


def least_popcount(window: Window) -> int:
    """The least number of 1 bits of any value in a non-empty window."""
    value = window.hi
    while value and value & (value - 1) >= window.lo:
        value &= value - 1
    return value.bit_count()


def lb1(allowed: Sequence[Window]) -> int:
    """Sum of the least popcounts: each backend on its own, without the condition that the spaces add up."""
    return sum(map(least_popcount, allowed))


def lb2(allowed: Sequence[Window], total: int) -> Fraction:
    """The Lagrange bound for spaces that sum to `total`: the popcounts replaced by their lower convex hulls.

    The hulls' edges are taken by rising slope until the sum is reached, which solves the relaxed problem exactly.
    The windows must be feasible, their values at most 2**16.
    """
    bound = Fraction(sum(lo.bit_count() for lo, _ in allowed))
    missing = total - sum(lo for lo, _ in allowed)
    shared = {window: _hull_edges(window) for window in set(allowed)}
    for run, rise in sorted((edge for window in allowed for edge in shared[window]), key=_slope):
        if missing <= run:
            return bound + Fraction(rise * missing, run)
        bound += rise
        missing -= run
    return bound


def _slope(edge: tuple[int, int]) -> int:
    """Orders (run, rise) by slope. Unequal slopes of runs up to 2**16 differ by at least 2**-32: no order is lost."""
    run, rise = edge
    return (rise << 40) // run


def _hull_edges(window: Window) -> list[tuple[int, int]]:
    """(run, rise) of the edges of the lower convex hull of popcount over the window, from left to right."""
    hull: list[tuple[int, int]] = []
    for x in sorted(_record_lows(window)):
        y = x.bit_count()
        while len(hull) > 1 and _above(hull[-2], hull[-1], (x, y)):
            hull.pop()
        hull.append((x, y))
    return [(x1 - x0, y1 - y0) for (x0, y0), (x1, y1) in pairwise(hull)]


def _above(left: tuple[int, int], middle: tuple[int, int], right: tuple[int, int]) -> bool:
    """Whether the middle point lies on or above the line from left to right."""
    return (middle[1] - left[1]) * (right[0] - left[0]) >= (right[1] - left[1]) * (middle[0] - left[0])


def _record_lows(window: Window) -> set[int]:
    """The values with fewer 1 bits than all before them, or than all after them: a hull has no other corners."""
    lows = {window.lo, window.hi}
    value = window.lo
    while value and value <= window.hi:
        lows.add(value)
        value += value & -value
    value = window.hi
    while value >= window.lo and value:
        lows.add(value)
        value &= value - 1
    return lows
