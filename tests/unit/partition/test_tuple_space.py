"""The megaflow model on the nine backends 128:64:32:16:8:4:2:1:1, whose counts were measured on Open vSwitch 3.1."""

from __future__ import annotations

from fractions import Fraction

from tests.tuple_space import Megaflow, Rule, megaflows
from xenoovs.partition.solve import partition

SPACES = [128, 64, 32, 16, 8, 4, 2, 1, 1]
BLOCKS = partition(SPACES, tolerance=Fraction(0)).assignment.blocks


def test_short_masks_first_give_one_megaflow_a_rule() -> None:
    rules = [Rule(block.value, block.depth, owner, 1000 - block.depth) for block, owner in BLOCKS]
    assert len(megaflows(rules)) == 9


def test_long_masks_first_give_one_megaflow_an_address() -> None:
    rules = [Rule(block.value, block.depth, owner, 10 + block.depth) for block, owner in BLOCKS]
    assert len(megaflows(rules)) == 256


def test_longest_match_rules_give_one_megaflow_an_address() -> None:
    rules = [Rule((1 << depth) - 1, depth, owner, 10 + depth) for owner, depth in enumerate(range(9))]
    assert len(megaflows(rules)) == 256


def test_addresses_without_a_rule_count_too() -> None:
    assert megaflows([Rule(1, 2, 0, 5)]) == {
        Megaflow(0, 2, None),
        Megaflow(1, 2, 0),
        Megaflow(2, 2, None),
        Megaflow(3, 2, None),
    }
    assert megaflows([]) == {Megaflow(0, 0, None)}
