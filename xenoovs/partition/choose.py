"""The one call of the compiler: weights and a tolerance, or a budget of flows, to an assignment.

The number of blocks never rises with the width (doubling all spaces keeps it), and nearly all of the gain lies in the
first widths at which the windows can be met; so the first one and the next two are solved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from xenoovs.errors import BudgetUnreachable, ToleranceUnreachable
from xenoovs.partition.block import MAX_WIDTH, Assignment
from xenoovs.partition.layout import layout
from xenoovs.partition.solve import block_count, proves_optimal, solve
from xenoovs.partition.windows import (
    Weight,
    deviation,
    first_feasible_width,
    least_tolerance,
    whole_weights,
    windows,
)

_WIDTHS_TRIED = 3
_BUDGET_STEPS = 12
"""Halvings of the search for a tolerance; each ends at the deviation of a real solution, so few are needed."""


@dataclass(frozen=True, slots=True)
class Partition:
    """An assignment, the tolerance that was used and the largest relative deviation that it has."""

    assignment: Assignment
    tolerance: Fraction
    deviation: Fraction

    @property
    def spaces(self) -> tuple[int, ...]:
        """Units of each backend, out of `2**assignment.width`."""
        return self.assignment.spaces()


@dataclass(frozen=True, slots=True)
class _Widths:
    """The widths that may be used, `least..most` inclusive."""

    least: int
    most: int


def partition(
    weights: Sequence[Weight],
    *,
    tolerance: Fraction,
    max_width: int = MAX_WIDTH,
    width: int | None = None,
    max_flows: int | None = None,
) -> Partition:
    """The assignment with the fewest blocks in which every share is within `tolerance`, relative to its weight.

    `width` fixes the number of bits; otherwise the smallest of the best widths up to `max_width` is taken. With
    `max_flows` the given tolerance plays no part: the least tolerance whose blocks fit is used.

    Raises ValueError for weights that are negative or all 0, or a width outside 0..16; ToleranceUnreachable if the
    widths are too small; BudgetUnreachable if `max_flows` is below the number of backends with a weight.
    """
    most = max_width if width is None else width
    if not 0 <= most <= MAX_WIDTH:
        raise ValueError(f"a width of {most} bits is not within 0..{MAX_WIDTH}")
    if tolerance < 0:
        raise ValueError(f"the tolerance {tolerance} is negative")
    widths = _Widths(least=0 if width is None else width, most=most)
    whole = whole_weights(weights)
    if max_flows is None:
        return _within_tolerance(whole, tolerance, widths)
    return _within_budget(whole, max_flows, widths)


@lru_cache(maxsize=256)
def _within_tolerance(weights: tuple[int, ...], tolerance: Fraction, widths: _Widths) -> Partition:
    first = first_feasible_width(weights, tolerance, widths.most)
    if first is None:
        raise unreachable(weights, tolerance, widths.most)
    spaces = _fewest_blocks(weights, tolerance, _Widths(max(first, widths.least), widths.most))
    width = sum(spaces).bit_length() - 1
    return Partition(layout(spaces, width), tolerance, deviation(weights, spaces))


def unreachable(weights: Sequence[int], tolerance: Fraction, width: int) -> ToleranceUnreachable:
    """The error for windows that cannot be met up to `width`, with what would help."""
    smallest = min((weight, index) for index, weight in enumerate(weights) if weight)[1]
    least = least_tolerance(weights, width)
    return ToleranceUnreachable(tolerance=tolerance, least=least, smallest=smallest, max_width=width)


def _fewest_blocks(weights: Sequence[int], tolerance: Fraction, widths: _Widths) -> tuple[int, ...]:
    """Spaces at the smallest of the best widths among the first ones; the widest is solved before those between."""
    last = min(widths.least + _WIDTHS_TRIED - 1, widths.most)
    best = solve(windows(weights, widths.least, tolerance), 1 << widths.least)
    at_last = windows(weights, last, tolerance)
    if last == widths.least or proves_optimal(block_count(best), at_last, 1 << last):
        return best
    widest = solve(at_last, 1 << last)
    if block_count(widest) == block_count(best):
        return best
    for width in range(widths.least + 1, last):
        spaces = solve(windows(weights, width, tolerance), 1 << width)
        if block_count(spaces) == block_count(widest):
            return spaces
    return widest


@lru_cache(maxsize=256)
def _within_budget(weights: tuple[int, ...], max_flows: int, widths: _Widths) -> Partition:
    served = sum(1 for weight in weights if weight)
    low = least_tolerance(weights, widths.most)
    if low is None:
        raise unreachable(weights, Fraction(0), widths.most)
    if max_flows < served:
        raise BudgetUnreachable(max_flows=max_flows, least=served)
    best = _within_tolerance(weights, low, widths)
    while len(best.assignment.blocks) > max_flows:
        low, best = best.tolerance, _within_tolerance(weights, max(2 * best.tolerance, Fraction(1, 1024)), widths)
    for _ in range(_BUDGET_STEPS):
        middle = (low + best.deviation) / 2
        if middle <= low:
            break
        found = _within_tolerance(weights, middle, widths)
        if len(found.assignment.blocks) <= max_flows:
            best = found
        else:
            low = middle
    return Partition(best.assignment, best.deviation, best.deviation)
