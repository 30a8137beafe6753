"""Confidence intervals by the bootstrap. The only module here that imports numpy, which takes a tenth of a second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

CONFIDENCE = 0.95
_RESAMPLES = 4_000
_SEED = 1
"""A report of the same samples is the same, down to the last digit."""


class Statistic(Enum):
    """What is said about the values of one point."""

    MEAN = "mean"
    MEDIAN = "median"


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its confidence interval; of a single value there is none, so that low and high are it."""

    estimate: float
    low: float
    high: float
    count: int

    @property
    def is_known(self) -> bool:
        """Whether there were values enough for an interval."""
        return self.count > 1


@dataclass(frozen=True, slots=True)
class Quantiles:
    """The five numbers of a box plot, and the tails. Whiskers are the 1 % and 99 % quantiles."""

    p1: float
    p25: float
    median: float
    p75: float
    p99: float
    p999: float
    count: int


def interval(values: Sequence[float], statistic: Statistic = Statistic.MEAN) -> Interval:
    """Return the mean or the median of independent repeats, with the percentile bootstrap interval of 95 %.

    B. Efron and R. Tibshirani, An Introduction to the Bootstrap (1993), chapter 13.

    Raises:
        ValueError: There are no values.
    """
    if not values:
        raise ValueError("there are no values")
    data = np.asarray(values, dtype=float)
    means = _resampled(data, statistic)
    low, high = _bounds(means)
    return Interval(float(_of(data[None, :], statistic)[0]), low, high, len(values))


def change(base: Sequence[float], other: Sequence[float], statistic: Statistic = Statistic.MEAN) -> Interval:
    """Return by which share of `base` the repeats of `other` differ from it, with its interval of 95 %.

    Raises:
        ValueError: There are no values, or those of `base` are not above 0.
    """
    if not base or not other:
        raise ValueError("there are no values")
    if min(base) <= 0:
        raise ValueError("values that others are compared with must be above 0")
    one, two = np.asarray(base, dtype=float), np.asarray(other, dtype=float)
    ratios = _resampled(two, statistic, seed=_SEED + 1) / _resampled(one, statistic) - 1
    low, high = _bounds(ratios)
    estimate = float(_of(two[None, :], statistic)[0] / _of(one[None, :], statistic)[0]) - 1
    return Interval(estimate, low, high, min(len(base), len(other)))


def quantiles(values: Sequence[float]) -> Quantiles:
    """Return the quantiles of single measurements, such as round-trip times. Raises ValueError without values."""
    if not values:
        raise ValueError("there are no values")
    p1, p25, median, p75, p99, p999 = np.quantile(np.asarray(values, dtype=float), (0.01, 0.25, 0.5, 0.75, 0.99, 0.999))
    return Quantiles(float(p1), float(p25), float(median), float(p75), float(p99), float(p999), len(values))


def median(values: Sequence[float]) -> float:
    """Return the middle value. Raises ValueError without values."""
    return quantiles(values).median


Array = npt.NDArray[np.float64]


def _resampled(data: Array, statistic: Statistic, *, seed: int = _SEED) -> Array:
    picked = np.random.default_rng(seed).integers(0, len(data), size=(_RESAMPLES, len(data)))
    return _of(data[picked], statistic)


def _of(rows: Array, statistic: Statistic) -> Array:
    found: Array = rows.mean(axis=1) if statistic is Statistic.MEAN else np.median(rows, axis=1)
    return found


def _bounds(resampled: Array) -> tuple[float, float]:
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(resampled, (tail, 1 - tail))
    return float(low), float(high)
