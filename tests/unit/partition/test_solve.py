"""Which solver answers, and what happens when none can."""

from __future__ import annotations

from fractions import Fraction

import pytest

from xenoovs.partition.block import Table
from xenoovs.partition.change import Goal, Start, cheapest_change, update
from xenoovs.partition.solve import Window, block_count, layout, solve, solve_bitset, solve_min_plus, windows


def test_an_optimum_far_above_its_bound_is_left_to_the_second_solver() -> None:
    allowed = windows([1] * 90, 11, Fraction(5, 100))
    assert solve_bitset(allowed, 1 << 11) is None
    # 68 of 23 units and 22 of 22 is the only choice
    assert block_count(solve(allowed, 1 << 11)) == 68 * 4 + 22 * 3


def test_windows_that_cannot_be_met_are_refused() -> None:
    with pytest.raises(ValueError, match="no spaces within the windows"):
        solve((Window(1, 2), Window(1, 2)), 8)
    with pytest.raises(ValueError, match="no spaces within the windows"):
        cheapest_change(Start(Table(3, ()), (0, 0), (Window(1, 2), Window(1, 2))), Fraction(1))


def test_a_sum_that_the_options_skip_has_no_choice() -> None:
    assert solve_min_plus([[(0, 1), (2, 1)], [(0, 1), (4, 1)]], 5) is None
    assert solve_min_plus([[(0, 1)], []], 0) is None
    assert solve_min_plus([[(0, 9), (4, 1)], [(0, 2), (4, 1)]], 4) == (4, 0)


def test_a_wide_window_is_searched_whole_where_the_likely_places_fail() -> None:
    old = layout([512, 512], 10)
    begin = Start(Table.of(old, 10), (512, 512), (Window(333, 333), Window(300, 900)))
    assert cheapest_change(begin, Fraction(1)).assignment(2).spaces() == (333, 691)


def test_spaces_of_another_sum_cannot_be_laid_out() -> None:
    with pytest.raises(ValueError, match="sum to 3, not to the 4 units"):
        layout([1, 2], 2)


def test_a_change_needs_no_more_than_the_windows() -> None:
    assert update(layout([3, 1], 2), Goal((1, 1), Fraction(0))).spaces() == (2, 2)
