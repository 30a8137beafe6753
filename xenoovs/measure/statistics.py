"""Confidence intervals by the bootstrap. The only module here that imports numpy, of the extra `xenoovs[measure]`.

numpy is imported on first use: that takes a tenth of a second, and commands that only measure do not need it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from enum import Enum
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeAlias

from xenoovs.dataclass import dataclass
from xenoovs.errors import MeasureError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array: TypeAlias = npt.NDArray[np.float64]

CONFIDENCE = 0.95
FEWEST_REPEATS = 5
"""Minimum for a confidence interval; with fewer repeats the bootstrap's is much too narrow."""
_RESAMPLES = 4_000
_SEED = 1
"""Fixed, so that reports of the same samples are equal to the last digit."""


class Statistic(Enum):
    """A summary of the values of one point."""

    MEAN = "mean"
    MEDIAN = "median"


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its confidence interval, or with minimum and maximum of fewer than FEWEST_REPEATS values."""

    estimate: float
    low: float
    high: float
    count: int

    @property
    def is_confidence(self) -> bool:
        """Return whether there were enough values for a confidence interval."""
        return self.count >= FEWEST_REPEATS

    @property
    def bounds(self) -> tuple[float, float] | tuple[None, None]:
        """Return low and high; None for both if there is a single value."""
        return (self.low, self.high) if self.count > 1 else (None, None)


@dataclass(frozen=True, slots=True)
class Quantiles:
    """The five numbers of a box plot, whose whiskers are the 1 % and 99 % quantiles, and the 99.9 % quantile."""

    p1: float
    p25: float
    median: float
    p75: float
    p99: float
    p999: float
    count: int


def require_libraries(*names: str) -> None:
    """Raise MeasureError with the first of these libraries that is not installed."""
    for name in names:
        if find_spec(name) is None:
            raise MeasureError(
                f"this needs {name}, which is not installed: `{sys.executable} -m pip install matplotlib numpy`"
            )


def interval(values: Sequence[float], statistic: Statistic = Statistic.MEAN) -> Interval:
    """Return the mean or the median of independent repeats, with the percentile bootstrap interval of 95 %.

    With fewer than FEWEST_REPEATS values the bounds are minimum and maximum.

    B. Efron and R. Tibshirani, An Introduction to the Bootstrap (1993), chapter 13. Raises ValueError without values.
    """
    if not values:
        raise ValueError("there are no values")
    import numpy as np

    data = np.asarray(values, dtype=float)
    enough = len(values) >= FEWEST_REPEATS
    low, high = _bounds(_resampled(data, statistic)) if enough else (float(min(values)), float(max(values)))
    return Interval(float(_of(data[None, :], statistic)[0]), low, high, len(values))


def change(base: Sequence[float], other: Sequence[float], statistic: Statistic = Statistic.MEAN) -> Interval:
    """Return the relative change from `base` to `other`, with its interval of 95 %.

    Raises ValueError without values, or if one of `base` is not above 0.
    """
    if not base or not other:
        raise ValueError("there are no values")
    if min(base) <= 0:
        raise ValueError("values that others are compared with must be above 0")
    import numpy as np

    one, two = np.asarray(base, dtype=float), np.asarray(other, dtype=float)
    ratios = _resampled(two, statistic, seed=_SEED + 1) / _resampled(one, statistic) - 1
    low, high = _bounds(ratios)
    estimate = float(_of(two[None, :], statistic)[0] / _of(one[None, :], statistic)[0]) - 1
    return Interval(estimate, low, high, min(len(base), len(other)))


def quantiles(values: Sequence[float]) -> Quantiles:
    """Return the quantiles of single measurements, such as round-trip times. Raises ValueError without values."""
    p1, p25, median, p75, p99, p999 = (quantile(values, share) for share in (0.01, 0.25, 0.5, 0.75, 0.99, 0.999))
    return Quantiles(p1, p25, median, p75, p99, p999, len(values))


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which this share of the values lies, interpolated. Raises ValueError without values."""
    if not values:
        raise ValueError("there are no values")
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _resampled(data: Array, statistic: Statistic, *, seed: int = _SEED) -> Array:
    import numpy as np

    picked = np.random.default_rng(seed).integers(0, len(data), size=(_RESAMPLES, len(data)))
    return _of(data[picked], statistic)


def _of(rows: Array, statistic: Statistic) -> Array:
    import numpy as np

    found: Array = rows.mean(axis=1) if statistic is Statistic.MEAN else np.median(rows, axis=1)
    return found


def _bounds(resampled: Array) -> tuple[float, float]:
    import numpy as np

    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(resampled, (tail, 1 - tail))
    return float(low), float(high)
