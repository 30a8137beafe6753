"""What random streams of changes cost by default: clients moved against the least, blocks against the fewest.

The seeds are fixed; docs/explanation/movement.md has more streams.
"""

from __future__ import annotations

from fractions import Fraction

import pytest

from scripts.movement import LIKE, UNLIKE
from scripts.movement_streams import CONFIG, Kind, Step, measure, measure_health

FEW = Kind("few", 2, 8, 20)
WEIGHTS_ONLY = Kind("weights", 8, 20, 20, (Step.WEIGHT,))
SEEDS = range(10, 16)
TOLERANCES = (Fraction(1, 100), Fraction(5, 100), Fraction(10, 100))
REMOVALS, WEIGHTS, BLOCKS = Fraction(110, 100), Fraction(160, 100), Fraction(165, 100)


@pytest.mark.parametrize(("kind", "tolerance"), [(FEW, TOLERANCES[0]), (UNLIKE, TOLERANCES[1])], ids=str)
def test_changes_of_backends_and_weights_move_few_clients_and_make_few_blocks(kind: Kind, tolerance: Fraction) -> None:
    cost = measure(kind, tolerance, seeds=SEEDS, events=40)
    assert {*cost.moved} == {*CONFIG}
    assert cost.movement(Step.REMOVAL) <= REMOVALS
    assert cost.movement(Step.WEIGHT) <= WEIGHTS
    assert cost.movement(Step.ADDITION) <= WEIGHTS
    assert cost.mean_blocks <= BLOCKS


def test_like_backends_come_and_go_with_few_clients_moved() -> None:
    cost = measure(LIKE, TOLERANCES[1], seeds=SEEDS, events=40)
    assert cost.movement(Step.REMOVAL) <= REMOVALS
    # 16 of them need 16 blocks, 17 need 70: blocks that follow at once would move twice the least and more
    assert cost.mean_blocks <= Fraction(250, 100)


@pytest.mark.parametrize(("kind", "tolerance"), [*zip((FEW, UNLIKE, LIKE), TOLERANCES, strict=True)], ids=str)
def test_deaths_and_returns_move_little_more_than_they_must(kind: Kind, tolerance: Fraction) -> None:
    cost = measure_health(kind, tolerance, seeds=SEEDS, events=40)
    assert cost.movement() <= REMOVALS


@pytest.mark.parametrize("kind", [UNLIKE, WEIGHTS_ONLY], ids=lambda kind: kind.name)
def test_blocks_do_not_get_more_and_more(kind: Kind) -> None:
    blocks = measure(kind, Fraction(5, 100), seeds=(11,), events=300).blocks
    assert all(sum(blocks[first : first + 100], Fraction(0)) <= 175 for first in (0, 100, 200))
