"""From weights and a tolerance to an assignment with the fewest blocks: windows, bounds, solvers and layout."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import lru_cache
from importlib.util import find_spec
from itertools import pairwise
from math import ceil, gcd, lcm
from typing import TYPE_CHECKING, Any, NamedTuple

from xenoovs.dataclass import dataclass
from xenoovs.errors import BudgetUnreachable, ToleranceUnreachable
from xenoovs.partition.block import MAX_WIDTH, Assignment, Block

if TYPE_CHECKING:
    from numpy.typing import NDArray


# Windows: the spaces that a weight and a relative tolerance allow, and when they can add up.
#
# For weight q of a sum Q, tolerance e and N units the share asked for is `q*N/Q` units; the window is every whole
# number within `e` of it, relatively, but at least one unit. All arithmetic is exact.


Weight = Fraction | int


class Window(NamedTuple):
    """Units allowed for one backend, `lo..hi` inclusive; empty if `lo > hi`."""

    lo: int
    hi: int


def whole_weights(weights: Iterable[Weight]) -> tuple[int, ...]:
    """The smallest integers in the same proportion. ValueError: a weight is negative or none is positive."""
    given = [weight.as_integer_ratio() for weight in weights]
    scale = lcm(*[below for _, below in given])
    whole = [above * (scale // below) for above, below in given]
    if min(whole, default=0) < 0:
        raise ValueError("a weight is negative")
    if not any(whole):
        raise ValueError("no weight is positive")
    common = gcd(*whole)
    return tuple([weight // common for weight in whole])


def windows(weights: Sequence[Weight], width: int, tolerance: Fraction) -> tuple[Window, ...]:
    """The window of every backend in a space of `2**width` units. Weight 0 gets `(0, 0)`."""
    whole = whole_weights(weights)
    return _windows(whole, sum(whole), width, tolerance)


def _windows(weights: Sequence[int], goal: int, width: int, tolerance: Fraction) -> tuple[Window, ...]:
    """As `windows`, for some of the weights whose sum is `goal`."""
    part, unit = tolerance.numerator, tolerance.denominator
    below, above, scale, total = (unit - part) << width, (unit + part) << width, goal * unit, 1 << width
    found = {0: Window(0, 0)}
    for weight in {*weights} - {0}:  # many are equal
        least = -(-weight * below // scale) if weight * below > scale else 1
        found[weight] = Window(least, min(total, weight * above // scale))
    return tuple([found[weight] for weight in weights])


def _inner_windows(weights: Sequence[int], width: int, tolerance: Fraction) -> tuple[Window, ...]:
    """As `windows`, for deviations strictly less than the tolerance."""
    part, unit = tolerance.numerator, tolerance.denominator
    below, above, scale = (unit - part) << width, (unit + part) << width, sum(weights) * unit
    return tuple(
        Window(max(1, weight * below // scale + 1), -(-weight * above // scale) - 1) if weight else Window(0, 0)
        for weight in weights
    )


def feasible(allowed: Sequence[Window], total: int) -> bool:
    """Return whether one value from each window can sum to `total`."""
    low = high = 0
    for lo, hi in allowed:
        if lo > hi:
            return False
        low += lo
        high += hi
    return low <= total <= high


def strict_windows(
    spaces: Sequence[int], allowed: Sequence[Window], floors: Sequence[int] | None = None
) -> list[Window]:
    """Return the windows cut to the least movement from `spaces`: M units, what is too much or what is missing.

    If M is the surplus, spaces above their windows end at the upper end, and all others only grow; if M is the deficit,
    the other way round. No space goes below its floor; a window is empty if that is impossible. A move of M units
    reaches exactly the spaces within these windows whose sum is that of `spaces`.
    """
    over = sum(max(0, space - hi) for space, (_, hi) in zip(spaces, allowed, strict=True))
    under = sum(max(0, lo - space) for space, (lo, _) in zip(spaces, allowed, strict=True))
    rows = zip(spaces, floors or [0] * len(spaces), allowed, strict=True)
    if over >= under:
        return [Window(max(hi, floor) if space > hi else max(space, lo), hi) for space, floor, (lo, hi) in rows]
    return [Window(max(lo, floor), lo if space < lo else max(min(space, hi), floor)) for space, floor, (lo, hi) in rows]


def first_feasible_width(weights: Sequence[Weight], tolerance: Fraction, max_width: int) -> int | None:
    """Return the smallest width up to `max_width` at which the windows can be met; None if there is none."""
    whole = whole_weights(weights)
    goal, served = sum(whole), [weight for weight in whole if weight]
    smallest = min(served)
    for width in range((len(served) - 1).bit_length(), max_width + 1):
        # a small weight has the narrowest window, and that is what fails at most widths
        [narrowest] = _windows([smallest], goal, width, tolerance)
        if narrowest.lo <= narrowest.hi and feasible(_windows(served, goal, width, tolerance), 1 << width):
            return width
    return None


def deviation(weights: Sequence[Weight], spaces: Sequence[int]) -> Fraction:
    """Return the largest relative difference between a backend's share of the space and its share of the weights."""
    whole = whole_weights(weights)
    goal, total = sum(whole), sum(spaces)
    return max(
        Fraction(abs(space * goal - weight * total), weight * total)
        for weight, space in zip(whole, spaces, strict=True)
        if weight
    )


def least_tolerance(weights: Sequence[Weight], width: int) -> Fraction | None:
    """The exact least tolerance at which the windows can be met at this width; None if units are fewer than backends.

    Every feasible choice has a deviation that is itself a feasible tolerance, so the binary search goes from choice to
    choice and ends when no choice has a strictly smaller deviation.
    """
    whole = whole_weights(weights)
    total = 1 << width
    served = [weight for weight in whole if weight]
    if len(served) > total:
        return None
    low = Fraction(0)
    high = deviation(whole, _any_choice(windows(whole, width, Fraction(sum(served), min(served))), total))
    while feasible(_inner_windows(whole, width, high), total):
        middle = (low + high) / 2
        allowed = windows(whole, width, middle)
        if feasible(allowed, total):
            high = deviation(whole, _any_choice(allowed, total))
        else:
            low = middle
    return high


def _any_choice(allowed: Sequence[Window], total: int) -> list[int]:
    spaces = [lo for lo, _ in allowed]
    missing = total - sum(spaces)
    for index, (lo, hi) in enumerate(allowed):
        more = min(missing, hi - lo)
        spaces[index] += more
        missing -= more
    return spaces


# Lower bounds on the number of blocks, and so of megaflows.
#
# A backend with w units needs at least popcount(w) blocks, because megaflows are disjoint and each holds a power of
# two.


def least_popcount(window: Window) -> int:
    """The least number of 1 bits of any value in a non-empty window."""
    value = window.hi
    while value and value & (value - 1) >= window.lo:
        value &= value - 1
    return value.bit_count()


def lb1(allowed: Sequence[Window]) -> int:
    """Return the sum of the least popcounts: a lower bound that ignores that the spaces must sum to the total."""
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
    """Order (run, rise) by slope. Unequal slopes of runs up to 2**16 differ by 2**-32 or more."""
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
    """Return the values with fewer 1 bits than all before, or than all after them: all corners of a hull are."""
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


# Solver A: spaces with the least number of blocks, by dynamic programming over sets of sums.
#
# A set of sums is one big integer (bit r: sum r can be reached). Level e holds the sums reachable with e blocks more
# than the bound LB1, so the first level that holds the wanted sum is the optimum. Fast when the optimum is near the
# bound.


MAX_LEVELS = 24
"""Levels tried before the caller uses the other solver, which is faster beyond them."""

Candidates = list[list[int]]
"""Offsets from the base by excess popcount: `candidates[c]` need c blocks more than the least."""


def solve_bitset(allowed: Sequence[Window], total: int, *, levels: int = MAX_LEVELS) -> tuple[int, ...] | None:
    """Return spaces with sum `total` and the least popcounts; None if these are `levels` or more above LB1."""
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
            for index, offset in zip(free, _chosen_candidates(sums, candidates, reach), strict=True):
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
    """Return level e = len(sums): entry i is the set of sums that the first i backends reach with excess e."""
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


def _chosen_candidates(sums: Sequence[list[int]], candidates: Sequence[Candidates], reach: int) -> list[int]:
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


# Solver B: one value per backend with a given sum and the least cost, by (min,+) dynamic programming.
#
# Works for any cost. Vectors are numpy arrays where numpy is installed and plain lists where it is not; the result is
# the same. numpy is imported on first use, because most services never need it.


Option = tuple[int, int]
"""(value, cost) of a choice for a backend. Values are >= 0; costs have any sign."""

_SMALL_WORK = 50_000
"""Steps below which plain lists beat the import of numpy."""


def solve_min_plus(options: Sequence[Sequence[Option]], total: int) -> tuple[int, ...] | None:
    """Return one value per backend with sum `total` and the least sum of costs; None if no choice has that sum.

    Ties are broken towards the option that stands first, for the last backend first.
    """
    if not all(options):
        return None
    lowest = [min(value for value, _ in choice) for choice in options]
    highest = [max(value for value, _ in choice) for choice in options]
    room_low, room_high = total - sum(lowest), sum(highest) - total
    if room_low < 0 or room_high < 0:
        return None
    reach = min(room_low, room_high)
    sign, base = (1, lowest) if reach == room_low else (-1, highest)
    steps = [
        [(offset, cost) for value, cost in choice if (offset := sign * (value - start)) <= reach]
        for choice, start in zip(options, base, strict=True)
    ]
    work = sum(map(len, steps)) * (reach + 1)
    solver = _solve_numpy if work > _SMALL_WORK and find_spec("numpy") is not None else _solve_lists
    offsets = solver(steps, reach)
    if offsets is None:
        return None
    return tuple(start + sign * offset for start, offset in zip(base, offsets, strict=True))


def _worst(steps: Sequence[Sequence[Option]]) -> int:
    """Return a cost that no choice reaches."""
    return sum(max(abs(cost) for _, cost in choice) for choice in steps) + 1


def _solve_lists(steps: Sequence[Sequence[Option]], reach: int) -> list[int] | None:
    never = 2 * _worst(steps)
    rows = [[0] + [never] * reach]
    for choice in steps:
        before, row = rows[-1], [never] * (reach + 1)
        for offset, cost in choice:
            row[offset:] = [
                old if old <= (new := known + cost) else new for old, known in zip(row[offset:], before, strict=False)
            ]
        rows.append(row)
    return _cheapest_path(steps, reach, lambda index, rest: rows[index][rest], never // 2)


def _solve_numpy(steps: Sequence[Sequence[Option]], reach: int) -> list[int] | None:
    import numpy as np  # takes a tenth of a second, and most services never get here

    never = 2 * _worst(steps)
    kind = next(dtype for dtype in (np.int16, np.int32, np.int64) if 2 * never < np.iinfo(dtype).max)
    rows: list[NDArray[Any]] = [np.full(reach + 1, never, dtype=kind)]
    rows[0][0] = 0
    shifted = np.empty(reach + 1, dtype=kind)
    for choice in steps:
        row = np.full(reach + 1, never, dtype=kind)
        for offset, cost in choice:
            length = reach + 1 - offset
            np.add(rows[-1][:length], cost, out=shifted[:length])
            np.minimum(row[offset:], shifted[:length], out=row[offset:])
        rows.append(row)
    return _cheapest_path(steps, reach, lambda index, rest: int(rows[index][rest]), never // 2)


def _cheapest_path(
    steps: Sequence[Sequence[Option]], reach: int, cost_at: Callable[[int, int], int], never: int
) -> list[int] | None:
    """Return the offsets of a cheapest choice. `cost_at(i, r)`: the least cost of sum r with the first i backends."""
    rest, due = reach, cost_at(len(steps), reach)
    if due >= never:
        return None
    chosen = []
    for index in range(len(steps) - 1, -1, -1):
        offset, cost = next(
            (offset, cost)
            for offset, cost in steps[index]
            if offset <= rest and cost_at(index, rest - offset) + cost == due
        )
        chosen.append(offset)
        rest -= offset
        due -= cost
    return chosen[::-1]


_FEW = 4 * MAX_LEVELS
"""Below this number of backends the optimum is always so near its bound that the first solver is tried."""


def block_count(spaces: Iterable[int]) -> int:
    """The least number of blocks, and of megaflows, that give these spaces."""
    return sum(space.bit_count() for space in spaces)


def proves_optimal(count: int, allowed: Sequence[Window], total: int) -> bool:
    """Return whether a lower bound for these feasible windows proves that all spaces need at least `count` blocks."""
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
    """Return whether the first solver is likely to reach the optimum within its levels."""
    return len(allowed) < _FEW or ceil(lb2(allowed, total)) - lb1(allowed) < MAX_LEVELS


def _popcounts(window: Window) -> list[Option]:
    return [(value, value.bit_count()) for value in range(window.lo, window.hi + 1)]


# Laying out spaces as blocks: the powers of two in each space, largest first, fill the address space without gaps.
#
# Powers of two that sum to `2**width` always fit (equality in Kraft's inequality), so the number of blocks is the sum
# of the popcounts. No two buddies get one owner, because a backend has at most one block of each size.


def layout(spaces: Sequence[int], width: int) -> Assignment:
    """Blocks for `spaces[i]` units of backend i, shallow blocks first, then by backend. ValueError: wrong sum."""
    if sum(spaces) != 1 << width:
        raise ValueError(f"spaces sum to {sum(spaces)}, not to the {1 << width} units of {width} bits")
    todo = sorted(
        (width - bit, backend)
        for backend, space in enumerate(spaces)
        for bit in range(space.bit_length())
        if space >> bit & 1
    )
    slots, depth = deque([0]), 0
    blocks = []
    for wanted, backend in todo:
        while depth < wanted:
            slots = deque(value | half << depth for value in slots for half in (0, 1))
            depth += 1
        blocks.append((Block(slots.popleft(), depth), backend))
    return Assignment.of(width, blocks, len(spaces))


# The one call of the compiler: weights and a tolerance, or a budget of flows, to an assignment.
#
# The number of blocks never rises with the width, because doubling all spaces keeps it. So the widest width has the
# fewest blocks, and a lower bound for it proves most solutions of the first width optimal.


_BUDGET_STEPS = 12
"""Steps of the binary search for a tolerance. Each ends at the deviation of a real solution, so few are needed."""


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


def partition(
    weights: Sequence[Weight],
    *,
    tolerance: Fraction,
    max_width: int = MAX_WIDTH,
    width: int | None = None,
    max_flows: int | None = None,
) -> Partition:
    """Return the assignment with the fewest blocks in which every share is within `tolerance`, relative to its weight.
    `width` fixes the number of bits; otherwise the smallest of the best widths up to `max_width` is used. With
    `max_flows` the tolerance is ignored: the least tolerance whose blocks fit is used.

    Raises ValueError for weights that are negative or all 0, or a width outside 0..16; ToleranceUnreachable if the
    widths are too small; BudgetUnreachable if `max_flows` is below the number of backends with a weight.
    """
    most = max_width if width is None else width
    if not 0 <= most <= MAX_WIDTH:
        raise ValueError(f"a width of {most} bits is not within 0..{MAX_WIDTH}")
    if tolerance < 0:
        raise ValueError(f"the tolerance {tolerance} is negative")
    whole, least = whole_weights(weights), width or 0
    if max_flows is None:
        return _within_tolerance(whole, tolerance, least, most)
    return _within_budget(whole, max_flows, least, most)


@lru_cache(maxsize=256)
def _within_tolerance(weights: tuple[int, ...], tolerance: Fraction, least: int, most: int) -> Partition:
    first = first_feasible_width(weights, tolerance, most)
    if first is None:
        raise unreachable(weights, tolerance, most)
    spaces = _fewest_blocks(weights, tolerance, max(first, least), most)
    width = sum(spaces).bit_length() - 1
    return Partition(layout(spaces, width), tolerance, deviation(weights, spaces))


def unreachable(weights: Sequence[int], tolerance: Fraction, width: int) -> ToleranceUnreachable:
    """Return the error for windows that cannot be met up to `width`; it says what would help."""
    smallest = min((weight, index) for index, weight in enumerate(weights) if weight)[1]
    least = least_tolerance(weights, width)
    return ToleranceUnreachable(tolerance=tolerance, least=least, smallest=smallest, max_width=width)


def _fewest_blocks(weights: Sequence[int], tolerance: Fraction, least: int, most: int) -> tuple[int, ...]:
    """Return spaces with the fewest blocks that any of the widths `least..most` allows, at the smallest width that has
    them."""

    def at(width: int) -> tuple[int, ...]:
        return solve(windows(weights, width, tolerance), 1 << width)

    spaces = at(least)
    widest = windows(weights, most, tolerance)
    if least == most or proves_optimal(block_count(spaces), widest, 1 << most):
        return spaces
    best = solve(widest, 1 << most)
    if block_count(spaces) == block_count(best):
        return spaces
    wider = map(at, range(least + 1, most))
    return next((found for found in wider if block_count(found) == block_count(best)), best)


@lru_cache(maxsize=256)
def _within_budget(weights: tuple[int, ...], max_flows: int, least: int, most: int) -> Partition:
    served = sum(1 for weight in weights if weight)
    low = least_tolerance(weights, most)
    if low is None:
        raise unreachable(weights, Fraction(0), most)
    if max_flows < served:
        raise BudgetUnreachable(max_flows=max_flows, least=served)
    best = _within_tolerance(weights, low, least, most)
    while len(best.assignment.blocks) > max_flows:
        low, best = best.tolerance, _within_tolerance(weights, max(2 * best.tolerance, Fraction(1, 1024)), least, most)
    for _ in range(_BUDGET_STEPS):
        middle = (low + best.deviation) / 2
        if middle <= low:
            break
        found = _within_tolerance(weights, middle, least, most)
        if len(found.assignment.blocks) <= max_flows:
            best = found
        else:
            low = middle
    return Partition(best.assignment, best.deviation, best.deviation)
