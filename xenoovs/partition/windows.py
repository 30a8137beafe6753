"""Windows: the spaces that a weight and a relative tolerance allow, and when they can add up.

For weight q of a sum Q, tolerance e and N units the share asked for is `q*N/Q` units; the window is every whole number
within `e` of it, relatively, but at least one unit. All arithmetic is exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import gcd, lcm
from typing import NamedTuple

Weight = Fraction | int


class Window(NamedTuple):
    """Units allowed for one backend, `lo..hi` inclusive; empty if `lo > hi`."""

    lo: int
    hi: int


def whole_weights(weights: Iterable[Weight]) -> tuple[int, ...]:
    """The smallest integers in the same proportion. ValueError: a weight is negative or none is positive."""
    given = tuple(weights)
    if any(weight < 0 for weight in given):
        raise ValueError("a weight is negative")
    if not any(given):
        raise ValueError("no weight is positive")
    scale = lcm(*(weight.denominator for weight in given))
    whole = [weight.numerator * (scale // weight.denominator) for weight in given]
    common = gcd(*whole)
    return tuple(weight // common for weight in whole)


def windows(weights: Sequence[Weight], width: int, tolerance: Fraction) -> tuple[Window, ...]:
    """The window of every backend in a space of `2**width` units. Weight 0 gets `(0, 0)`."""
    whole = whole_weights(weights)
    return _windows(whole, sum(whole), width, tolerance)


def _windows(weights: Sequence[int], goal: int, width: int, tolerance: Fraction) -> tuple[Window, ...]:
    """As `windows`, for some of the weights whose sum is `goal`."""
    part, unit = tolerance.numerator, tolerance.denominator
    below, above, scale, total = (unit - part) << width, (unit + part) << width, goal * unit, 1 << width
    return tuple(
        Window(-(-weight * below // scale) if weight * below > scale else 1, min(total, weight * above // scale))
        if weight
        else Window(0, 0)
        for weight in weights
    )


def _inner_windows(weights: Sequence[int], width: int, tolerance: Fraction) -> tuple[Window, ...]:
    """As `windows`, for deviations strictly less than the tolerance."""
    part, unit = tolerance.numerator, tolerance.denominator
    below, above, scale = (unit - part) << width, (unit + part) << width, sum(weights) * unit
    return tuple(
        Window(max(1, weight * below // scale + 1), -(-weight * above // scale) - 1) if weight else Window(0, 0)
        for weight in weights
    )


def feasible(allowed: Sequence[Window], total: int) -> bool:
    """Whether some choice of one value per window sums to `total`."""
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

    The side that makes M is set right exactly; all others only give, or only take. No space goes below its floor, and
    a window becomes empty where that cannot be. Exactly the spaces within these windows, with the sum of `spaces`, can
    be had by moving M units.
    """
    over = sum(max(0, space - hi) for space, (_, hi) in zip(spaces, allowed, strict=True))
    under = sum(max(0, lo - space) for space, (lo, _) in zip(spaces, allowed, strict=True))
    rows = zip(spaces, floors or [0] * len(spaces), allowed, strict=True)
    if over >= under:
        return [Window(max(hi, floor) if space > hi else max(space, lo), hi) for space, floor, (lo, hi) in rows]
    return [Window(max(lo, floor), lo if space < lo else max(min(space, hi), floor)) for space, floor, (lo, hi) in rows]


def first_feasible_width(weights: Sequence[Weight], tolerance: Fraction, max_width: int) -> int | None:
    """The smallest width at which the windows can be met, at most `max_width`; None if there is none."""
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
    """Largest relative difference between a backend's share of the space and its share of the weights."""
    whole = whole_weights(weights)
    goal, total = sum(whole), sum(spaces)
    return max(
        Fraction(abs(space * goal - weight * total), weight * total)
        for weight, space in zip(whole, spaces, strict=True)
        if weight
    )


def least_tolerance(weights: Sequence[Weight], width: int) -> Fraction | None:
    """The exact least tolerance at which the windows can be met at this width; None if units are fewer than backends.

    Every feasible choice has a deviation that is itself a feasible tolerance, so the search by halves jumps from choice
    to choice and ends at the first one that no choice with a strictly smaller deviation beats.
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
