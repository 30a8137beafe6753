"""Any ordered list of bits does what the low bits do."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from xenoovs.partition.block import Block, mask_of, select, spread, unspread

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
