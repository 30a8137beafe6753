"""The partition of 1,000 backends."""

from __future__ import annotations

import random
from collections.abc import Iterator
from fractions import Fraction

from scripts.bench.measure import Row, function
from xenoovs.partition.choose import partition

_BACKENDS = 1000
_TOLERANCE = Fraction(1, 10)


def rows() -> Iterator[Row]:
    """W = 16, 10 %: three kinds of weights, each solved afresh."""
    for name, weights in _instances().items():
        taken_s = function(lambda weights=weights: partition.__wrapped__(weights, tolerance=_TOLERANCE, width=16))  # type: ignore[attr-defined,misc]
        yield Row(f"partition of {_BACKENDS} backends, W = 16, 10 %, weights {name}", taken_s, "s", 0.5)


def _instances() -> dict[str, tuple[int, ...]]:
    source = random.Random(1)
    return {
        "equal": (1,) * _BACKENDS,
        "zipf": tuple(round(10**6 / i) for i in range(1, _BACKENDS + 1)),
        "gauss": tuple(max(1, round(1000 * max(0.05, source.gauss(4, 1)))) for _ in range(_BACKENDS)),
    }
