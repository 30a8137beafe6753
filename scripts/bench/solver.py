"""The partition of 1,000 backends, and a change of it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from scripts.bench.measure import Row, function
from xenoovs.partition.change import Goal, update
from xenoovs.partition.solve import partition, solve, whole_weights, windows

_BACKENDS = 1000
_WIDTH = 16
_TOLERANCE = Fraction(1, 10)
_OF = f"of {_BACKENDS} backends, W = {_WIDTH}, 10%, weights"


def rows() -> Iterator[Row]:
    """Three kinds of weights, each solved without and with installed blocks."""
    for name, weights in _instances().items():
        goal = windows(whole_weights(weights), _WIDTH, _TOLERANCE)
        taken_s = function(lambda goal=goal: solve(goal, 1 << _WIDTH))  # type: ignore[misc]
        yield Row(f"partition {_OF} {name}", taken_s, "s", 0.5)
    for name, weights in _instances().items():
        yield from _removal(name, weights)


def _removal(name: str, weights: tuple[int, ...]) -> Iterator[Row]:
    """The first backend leaves: by default, and at a price of a quarter of a mean share for a block."""
    old = partition(weights, tolerance=_TOLERANCE, width=_WIDTH).assignment
    goal = Goal(weights[1:], _TOLERANCE)
    priced = replace(goal, block_price=Fraction(1 << _WIDTH, 4 * _BACKENDS))
    owners = [None, *range(_BACKENDS - 1)]
    taken_s = function(lambda: update(old, goal, owners=owners))
    priced_s = function(lambda: update(old, priced, owners=owners))
    yield Row(f"removal {_OF} {name}", taken_s, "s", 0.5)
    yield Row("  in multiples of that at a fixed price", taken_s / priced_s, "x", 1.5)


def _instances() -> dict[str, tuple[int, ...]]:
    source = random.Random(1)
    return {
        "equal": (1,) * _BACKENDS,
        "zipf": tuple(round(10**6 / i) for i in range(1, _BACKENDS + 1)),
        "gauss": tuple(max(1, round(1000 * max(0.05, source.gauss(4, 1)))) for _ in range(_BACKENDS)),
    }
