"""The numbers of flows that are known to be optimal, for weights that are easy to reproduce.

`equal`: k weights of 1. `zipf`: weight i is round(10**6 / i), i = 1..k.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import pytest

from xenoovs.partition.solve import block_count, lb1, partition, solve, windows


def equal(count: int) -> list[int]:
    return [1] * count


def zipf(count: int) -> list[int]:
    return [round(10**6 / rank) for rank in range(1, count + 1)]


class Row(NamedTuple):
    weights: list[int]
    percent: int
    flows: int
    lb1: int
    masks: int


TABLE = [
    Row(zipf(10), 5, 26, 26, 7),
    Row(zipf(100), 5, 223, 220, 13),
    Row(zipf(1000), 10, 1878, 1877, 14),
    Row(equal(3), 1, 12, 12, 5),
    Row(equal(10), 1, 44, 40, 5),
    Row(equal(10), 10, 24, 20, 3),
    Row(equal(100), 5, 248, 200, 3),
]
NAMES = ["zipf10", "zipf100", "zipf1000", "equal3-1%", "equal10-1%", "equal10-10%", "equal100"]


@pytest.mark.parametrize("row", TABLE, ids=NAMES)
def test_flows_are_as_few_as_can_be(row: Row) -> None:
    tolerance = Fraction(row.percent, 100)
    chosen = partition(row.weights, tolerance=tolerance).assignment
    at_sixteen = windows(row.weights, 16, tolerance)
    assert len(chosen.blocks) == row.flows
    assert block_count(solve(at_sixteen, 1 << 16)) == row.flows
    assert lb1(at_sixteen) == row.lb1
    assert len({block.depth for block, _ in chosen.blocks}) <= row.masks


@pytest.mark.parametrize(
    ("count", "percent", "flows"),
    [(200, 5, 496), (200, 10, 448), (500, 5, 692), (500, 10, 596), (1000, 1, 2000), (1000, 5, 1384), (1000, 10, 1192)],
)
def test_many_equal_backends(count: int, percent: int, flows: int) -> None:
    assert len(partition(equal(count), tolerance=Fraction(percent, 100)).assignment.blocks) == flows
