"""The partition of 1,000 backends."""

from __future__ import annotations

import random
from collections.abc import Iterator
from fractions import Fraction

from scripts.bench.measure import Row, function
from xenoovs.partition.solve import solve, whole_weights, windows

_BACKENDS = 1000
_WIDTH = 16
_TOLERANCE = Fraction(1, 10)


def rows() -> Iterator[Row]:
    """Three kinds of weights, each solved anew."""
    for name, weights in _instances().items():
        goal = windows(whole_weights(weights), _WIDTH, _TOLERANCE)
        taken_s = function(lambda goal=goal: solve(goal, 1 << _WIDTH))  # type: ignore[misc]
        yield Row(f"partition of {_BACKENDS} backends, W = {_WIDTH}, 10 %, weights {name}", taken_s, "s", 0.5)


def _instances() -> dict[str, tuple[int, ...]]:
    source = random.Random(1)
    return {
        "equal": (1,) * _BACKENDS,
        "zipf": tuple(round(10**6 / i) for i in range(1, _BACKENDS + 1)),
        "gauss": tuple(max(1, round(1000 * max(0.05, source.gauss(4, 1)))) for _ in range(_BACKENDS)),
    }
