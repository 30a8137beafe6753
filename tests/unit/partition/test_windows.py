"""Windows, the first width that works and the least tolerance that does."""

from __future__ import annotations

from fractions import Fraction

import pytest

from xenoovs.partition.solve import (
    Window,
    deviation,
    feasible,
    first_feasible_width,
    least_tolerance,
    whole_weights,
    windows,
)

ONE_PERCENT = Fraction(1, 100)


def test_weights_become_the_smallest_integers_in_proportion() -> None:
    assert whole_weights([Fraction("0.5"), Fraction("0.25"), 0]) == (2, 1, 0)
    assert whole_weights([70, 30]) == (7, 3)
    assert whole_weights([10**30, 10**30]) == (1, 1)


@pytest.mark.parametrize("weights", [[], [0, 0], [1, -1]])
def test_invalid_weights_are_refused(weights: list[int]) -> None:
    with pytest.raises(ValueError, match="weight"):
        whole_weights(weights)


def test_a_window_is_the_whole_numbers_within_the_tolerance() -> None:
    assert windows([1, 1, 1], 8, ONE_PERCENT) == (Window(85, 86),) * 3
    assert windows([1, 1, 1], 4, ONE_PERCENT) == (Window(6, 5),) * 3


def test_a_positive_weight_gets_at_least_one_unit_and_weight_zero_none() -> None:
    assert windows([10**6, 1, 0], 2, Fraction(1))[1:] == (Window(1, 0), Window(0, 0))
    assert windows([10**6, 1, 0], 2, Fraction(10**6))[1:] == (Window(1, 4), Window(0, 0))


def test_a_tolerance_of_zero_requires_exact_shares() -> None:
    assert windows([3, 1], 2, Fraction(0)) == (Window(3, 3), Window(1, 1))
    assert not feasible(windows([2, 1], 2, Fraction(0)), 4)


def test_the_first_feasible_width_is_the_smallest() -> None:
    assert first_feasible_width([1, 1, 1], ONE_PERCENT, 16) == 8
    assert first_feasible_width([5], ONE_PERCENT, 16) == 0
    assert first_feasible_width([1, 1, 1], ONE_PERCENT, 7) is None


def test_the_least_tolerance_is_exact() -> None:
    # thirds of 4 units: 2 + 1 + 1, and 2 is half as much again as 4/3
    assert least_tolerance([1, 1, 1], 2) == Fraction(1, 2)
    # 171 + 85 + ... cannot be better than 86 against 256/3
    assert least_tolerance([1, 1, 1], 8) == Fraction(86 * 3 - 256, 256)
    assert least_tolerance([3, 1], 2) == 0


def test_more_backends_than_units_have_no_tolerance_at_all() -> None:
    assert least_tolerance([1, 1, 1], 1) is None


def test_deviation_is_the_largest_relative_error() -> None:
    assert deviation([70, 30, 0], [3, 1, 0]) == Fraction(1, 6)
