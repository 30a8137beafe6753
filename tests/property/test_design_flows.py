"""Longest match over nested rules sends every client where the blocks send it, by the fewest rules."""

from __future__ import annotations

from functools import cache
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from xenoovs.decision.decision import Blocks
from xenoovs.measure.design_flows import nested_rules
from xenoovs.partition.block import Block


@given(st.lists(st.sampled_from("abc"), min_size=16, max_size=16))
def test_the_longest_rule_sends_clients_to_the_owner_of_their_block(owners: list[str]) -> None:
    blocks = Blocks.of((Block(value, 4), owner) for value, owner in enumerate(owners))
    rules = nested_rules(blocks)
    assert [_longest(rules, address) for address in range(16)] == owners
    assert len(rules) <= len(blocks.rows)


@given(st.lists(st.sampled_from("abc"), min_size=4, max_size=4))
def test_no_fewer_rules_do(owners: list[str]) -> None:
    blocks = Blocks.of((Block(value, 2), owner) for value, owner in enumerate(owners))
    assert len(nested_rules(blocks)) == _fewest()[tuple(owners)]


@cache
def _fewest() -> dict[tuple[str | None, ...], int]:
    """The least number of rules for everything that rules of depth 0 to 2 can do, by trying all."""
    nodes = [Block(value, depth) for depth in range(3) for value in range(1 << depth)]
    found: dict[tuple[str | None, ...], int] = {}
    for choice in product((None, "a", "b", "c"), repeat=len(nodes)):
        rules = tuple((block, owner) for block, owner in zip(nodes, choice, strict=True) if owner is not None)
        sends = tuple(_longest(rules, address) for address in range(4))
        found[sends] = min(len(rules), found.get(sends, len(nodes)))
    return found


def _longest(rules: tuple[tuple[Block, str], ...], address: int) -> str | None:
    matching = [(block.depth, owner) for block, owner in rules if block.contains(address)]
    return max(matching)[1] if matching else None
