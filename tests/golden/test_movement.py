"""docs/explanation/movement.md shows what is measured; `scripts/movement.py --write` writes it."""

from __future__ import annotations

from fractions import Fraction

import pytest

from scripts.movement import KINDS, LIKE, PAGE, curve_of, curve_table, default_row
from scripts.movement_streams import Kind

SEEDS, EVENTS = range(1, 4), 60
"""The defaults of the script."""


@pytest.mark.long
def test_the_page_has_the_curve_of_like_backends() -> None:
    assert curve_table(curve_of(LIKE, SEEDS, EVENTS)) in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", KINDS[:2], ids=lambda kind: kind.name)
def test_the_page_has_the_costs_of_the_default(kind: Kind) -> None:
    row = default_row(kind, Fraction(5, 100), SEEDS, EVENTS)
    assert f"| {' | '.join(row)} |" in PAGE.read_text(encoding="utf-8")
