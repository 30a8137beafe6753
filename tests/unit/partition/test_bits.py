"""Blocks as masked address bits."""

from __future__ import annotations

import pytest

from xenoovs.partition.block import Block, select, spread, unspread


def test_the_low_bits_are_the_default() -> None:
    assert spread(Block(0b101, 3)) == (0b101, 0b111)
    assert spread(Block(0, 0)) == (0, 0)


def test_bits_follow_the_order_of_the_list() -> None:
    assert spread(Block(0b01, 2), [0, 8, 1]) == (0x001, 0x101)
    assert spread(Block(0b10, 2), [0, 8, 1]) == (0x100, 0x101)
    assert select(0x100, [0, 8, 1], 2) == 0b10


def test_ipv6_positions_reach_the_top_bit() -> None:
    assert spread(Block(1, 1), [127]) == (1 << 127, 1 << 127)


@pytest.mark.parametrize(("value", "mask"), [(0, 0b110), (0b100, 0b11), (0b1000, 0b111)])
def test_what_is_no_block_is_refused(value: int, mask: int) -> None:
    with pytest.raises(ValueError, match="not a block"):
        unspread(value, mask)


def test_a_depth_beyond_the_list_is_refused() -> None:
    with pytest.raises(ValueError, match="3 bits are needed and 2 positions"):
        spread(Block(0, 3), [4, 5])
