"""The example of the Niagara authors: weights .3 .2 .4 .1 on four shared default rules; twice the imbalance per rule.

Source: README of https://github.com/knx1029/niagara-load-balancer.
"""

from __future__ import annotations

from fractions import Fraction

from xenoovs.partition.lpm import niagara

WEIGHTS = [3, 2, 4, 1]
UNITS = 1 << 16
PUBLISHED = [".15", ".075", ".0375", ".01875", ".009375", ".0046875", ".00234375", ".001171875"]


def twice_imbalance(spaces: list[int]) -> Fraction:
    return sum(
        (abs(Fraction(space, UNITS) - Fraction(weight, 10)) for space, weight in zip(spaces, WEIGHTS, strict=True)),
        Fraction(0),
    )


def test_every_rule_halves_the_imbalance_as_published() -> None:
    steps = [twice_imbalance(spaces) for _, spaces in niagara(WEIGHTS, 16, [0, 1, 2, 3])]
    assert steps[: len(PUBLISHED)] == [Fraction(text) for text in PUBLISHED]


def test_four_default_rules_alone_start_at_the_published_value() -> None:
    assert twice_imbalance([UNITS // 4] * 4) == Fraction(".4")


def test_eleven_rules_are_within_a_thousandth() -> None:
    spaces = [spaces for _, spaces in niagara(WEIGHTS, 16, [0, 1, 2, 3])][11 - 4 - 1]
    errors = [abs(Fraction(space, UNITS) - Fraction(weight, 10)) for space, weight in zip(spaces, WEIGHTS, strict=True)]
    assert max(errors) <= Fraction(1, 1000)
