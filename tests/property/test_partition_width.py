"""How the optimum depends on the width, and on the form of the weights."""

from __future__ import annotations

from fractions import Fraction
from random import Random

from hypothesis import assume, given
from hypothesis import strategies as st

from xenoovs.partition.solve import block_count, first_feasible_width, partition, solve, windows

tolerances = st.fractions(min_value=Fraction(1, 50), max_value=Fraction(1, 4), max_denominator=100)
some_weights = st.lists(st.integers(0, 60), min_size=1, max_size=8).filter(any)


@given(some_weights, tolerances)
def test_more_bits_never_need_more_blocks(weights: list[int], tolerance: Fraction) -> None:
    first = first_feasible_width(weights, tolerance, 16)
    assert first is not None
    assume(first <= 10)
    counts = [block_count(solve(windows(weights, width, tolerance), 1 << width)) for width in range(first, first + 4)]
    assert counts == sorted(counts, reverse=True)


@given(some_weights, tolerances)
def test_the_choice_is_the_smallest_of_the_best_first_three_widths(weights: list[int], tolerance: Fraction) -> None:
    first = first_feasible_width(weights, tolerance, 16)
    assert first is not None
    tried = [
        (block_count(solve(windows(weights, width, tolerance), 1 << width)), width)
        for width in range(first, min(first + 2, 16) + 1)
    ]
    chosen = partition(weights, tolerance=tolerance).assignment
    assert (len(chosen.blocks), chosen.width) == min(tried)


@given(
    some_weights,
    tolerances,
    st.fractions(min_value=Fraction(1, 9), max_value=100, max_denominator=9),
    st.randoms(use_true_random=False),
)
def test_neither_scale_nor_order_of_the_weights_matters(
    weights: list[int], tolerance: Fraction, scale: Fraction, random: Random
) -> None:
    mixed = list(weights)
    random.shuffle(mixed)
    given_count = len(partition(weights, tolerance=tolerance).assignment.blocks)
    assert len(partition(mixed, tolerance=tolerance).assignment.blocks) == given_count
    assert partition([weight * scale for weight in weights], tolerance=tolerance) == partition(
        weights, tolerance=tolerance
    )
