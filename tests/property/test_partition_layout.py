"""Layout: every address has one block, and every backend its units."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tests.tuple_space import Megaflow, Rule, megaflows
from xenoovs.partition.block import Assignment, Block, mask_of, select, spread, unspread
from xenoovs.partition.solve import block_count, layout


@st.composite
def exact_spaces(draw: st.DrawFn) -> tuple[list[int], int]:
    width = draw(st.integers(0, 9))
    spaces: list[int] = []
    for _ in range(draw(st.integers(0, 7))):
        spaces.append(draw(st.integers(0, (1 << width) - sum(spaces))))
    return [*spaces, (1 << width) - sum(spaces)], width


def rules_of(assignment: Assignment) -> list[Rule]:
    return [Rule(block.value, block.depth, owner, 1000 - block.depth) for block, owner in assignment.blocks]


@given(exact_spaces())
def test_every_address_lies_in_exactly_one_block(case: tuple[list[int], int]) -> None:
    spaces, width = case
    blocks = layout(spaces, width).blocks
    owners = [[owner for block, owner in blocks if block.contains(address)] for address in range(1 << width)]
    assert all(len(found) == 1 for found in owners)
    counted = Counter(found[0] for found in owners)
    assert [counted[backend] for backend in range(len(spaces))] == spaces


@given(exact_spaces())
def test_there_are_as_few_blocks_as_one_bits_and_no_mergeable_buddies(case: tuple[list[int], int]) -> None:
    spaces, width = case
    blocks = layout(spaces, width).blocks
    owners = dict(blocks)
    assert len(blocks) == block_count(spaces)
    assert all(owners.get(block.buddy()) != owner for block, owner in blocks if block.depth)


@given(exact_spaces())
def test_one_rule_is_one_megaflow(case: tuple[list[int], int]) -> None:
    rules = rules_of(layout(*case))
    assert megaflows(rules) == {Megaflow(rule.value, rule.depth, rule.backend) for rule in rules}


@given(exact_spaces(), st.data())
def test_splitting_a_block_leaves_the_megaflows_of_the_others(case: tuple[list[int], int], data: st.DataObject) -> None:
    rules = rules_of(layout(*case))
    split = data.draw(st.sampled_from(rules))
    halves = [
        Rule(split.value | half << split.depth, split.depth + 1, split.backend, split.priority - 1) for half in (0, 1)
    ]
    before = megaflows(rules)
    after = megaflows([rule for rule in rules if rule != split] + halves)
    assert before - {Megaflow(split.value, split.depth, split.backend)} <= after
    assert len(after) == len(before) + 1


positions = st.lists(st.integers(0, 127), min_size=8, max_size=16, unique=True)


@st.composite
def blocks(draw: st.DrawFn) -> Block:
    depth = draw(st.integers(0, 8))
    return Block(draw(st.integers(0, (1 << depth) - 1)), depth)


@given(blocks(), positions)
def test_spreading_can_be_undone(block: Block, chosen: list[int]) -> None:
    assert unspread(*spread(block, chosen), chosen) == block
    assert unspread(*spread(block)) == block


@given(blocks(), blocks(), positions)
def test_different_blocks_stay_different(one: Block, other: Block, chosen: list[int]) -> None:
    assert (spread(one, chosen) == spread(other, chosen)) == (one == other)


@given(positions)
def test_masks_are_nested(chosen: list[int]) -> None:
    masks = [mask_of(depth, chosen) for depth in range(9)]
    assert all(shallow & deep == shallow for shallow, deep in pairwise(masks))
    assert [mask.bit_count() for mask in masks] == list(range(9))


@given(blocks(), positions, st.integers(0, 2**128 - 1))
def test_an_address_matches_where_its_selected_bits_do(block: Block, chosen: list[int], address: int) -> None:
    value, mask = spread(block, chosen)
    assert (address & mask == value) == block.contains(select(address, chosen, 8))


@given(blocks(), st.integers(0, 2**128 - 1))
def test_no_list_means_the_low_bits_in_order(block: Block, address: int) -> None:
    assert spread(block) == spread(block, range(16))
    assert select(address, None, 8) == select(address, range(16), 8)
