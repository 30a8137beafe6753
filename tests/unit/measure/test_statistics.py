"""Confidence intervals against cases whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from xenoovs.measure.statistics import Statistic, change, interval, quantiles


def test_equal_values_have_an_interval_of_no_width() -> None:
    found = interval([7.0] * 5)
    assert (found.estimate, found.low, found.high, found.count) == (7, 7, 7, 5)


def test_a_single_value_has_no_interval() -> None:
    found = interval([3.5])
    assert (found.low, found.high, found.bounds) == (3.5, 3.5, (None, None))


def test_of_few_repeats_the_least_and_the_greatest_are_known_but_no_confidence() -> None:
    few, enough = interval([1, 2, 9, 4]), interval([1, 2, 9, 4, 5])
    assert (few.estimate, few.low, few.high, few.is_confidence) == (4, 1, 9, False)
    assert enough.is_confidence
    assert 1 < enough.low < enough.high < 9


def test_the_same_samples_give_the_same_digits() -> None:
    values = [1.0, 2.5, 3.0, 8.0, 9.25]
    assert interval(values) == interval(list(values))


def test_the_mean_of_many_values_has_the_interval_of_the_normal_distribution() -> None:
    values = list(np.random.default_rng(7).normal(100, 10, size=400))
    found = interval(values)
    # 1.96 standard errors on each side; 4000 resamples are good for some percent of that.
    half = 1.96 * float(np.std(values, ddof=1)) / 20
    assert found.low == pytest.approx(found.estimate - half, abs=0.1)
    assert found.high == pytest.approx(found.estimate + half, abs=0.1)


def test_intervals_hold_the_true_mean_as_often_as_their_confidence() -> None:
    rng = np.random.default_rng(11)
    held = 0
    for _ in range(200):
        found = interval(list(rng.normal(50, 5, size=30)))
        held += found.low <= 50 <= found.high
    # 95 % of 200 is 190, with a standard deviation of 3; of 30 values the bootstrap gives slightly less.
    assert 176 <= held <= 199


def test_the_median_ignores_an_outlier() -> None:
    found = interval([10, 10, 10, 10, 10, 10, 1000], Statistic.MEDIAN)
    assert (found.estimate, found.low) == (10, 10)


def test_a_change_is_relative_to_the_base() -> None:
    found = change([100.0] * 5, [110.0] * 5)
    assert (found.estimate, found.low, found.high) == pytest.approx((0.1, 0.1, 0.1))
    noisy = change([98, 99, 100, 101, 102], [148, 149, 150, 151, 152])
    assert noisy.low < 0.5 < noisy.high


def test_quantiles_of_a_known_list() -> None:
    found = quantiles([float(number) for number in range(101)])
    assert (found.p1, found.p25, found.median, found.p75, found.p99, found.count) == (1, 25, 50, 75, 99, 101)


@pytest.mark.parametrize(
    "call", [lambda: interval([]), lambda: quantiles([]), lambda: change([], [1]), lambda: change([0], [1])]
)
def test_nothing_to_judge_is_an_error(call: object) -> None:
    with pytest.raises(ValueError, match="values"):
        call()  # type: ignore[operator]
