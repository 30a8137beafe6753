"""The exact linear program, with answers from textbooks and by hand."""

from __future__ import annotations

from fractions import Fraction

import pytest

from xenoovs.paths.simplex import Unbounded, maximise


def test_a_textbook_problem_has_its_answer() -> None:
    # Chvatal, Linear Programming (1983), chapter 2: maximise 5x + 4y + 3z; the optimum is 13 at (2, 0, 1).
    rows = [[2, 3, 1], [4, 1, 2], [3, 4, 2]]
    solved = maximise(
        [[Fraction(c) for c in (5, 4, 3)]], [[Fraction(a) for a in row] for row in rows], [*map(Fraction, (5, 11, 8))]
    )
    assert solved.x == [2, 0, 1]
    # The dual solution of the same chapter.
    assert solved.prices == [1, 0, 1]


def test_a_problem_that_cycles_without_blands_rule_ends() -> None:
    # Chvatal, chapter 3: the largest coefficient rule cycles here; the optimum is 1 at (1, 0, 1, 0).
    rows = [
        [Fraction(1, 2), Fraction(-11, 2), Fraction(-5, 2), Fraction(9)],
        [Fraction(1, 2), Fraction(-3, 2), Fraction(-1, 2), Fraction(1)],
        [Fraction(1), Fraction(0), Fraction(0), Fraction(0)],
    ]
    solved = maximise([[*map(Fraction, (10, -57, -9, -24))]], rows, [Fraction(0), Fraction(0), Fraction(1)])
    assert solved.x == [1, 0, 1, 0]


def test_thirds_stay_exact() -> None:
    solved = maximise([[Fraction(1)]], [[Fraction(3)]], [Fraction(1)])
    assert solved == ([Fraction(1, 3)], [Fraction(1, 3)])


def test_later_objectives_choose_among_the_best_of_earlier_ones() -> None:
    rows = [[Fraction(1), Fraction(1)], [Fraction(0), Fraction(1)]]
    both, second = [Fraction(1), Fraction(1)], [Fraction(0), Fraction(1)]
    assert maximise([both, second], rows, [Fraction(5), Fraction(2)]).x == [3, 2]
    assert maximise([both, [Fraction(1), Fraction(0)]], rows, [Fraction(5), Fraction(2)]).x == [5, 0]


def test_a_variable_without_a_limit_is_named() -> None:
    with pytest.raises(Unbounded) as caught:
        maximise([[Fraction(1), Fraction(1)]], [[Fraction(1), Fraction(0)]], [Fraction(1)])
    assert caught.value.variable == 1
