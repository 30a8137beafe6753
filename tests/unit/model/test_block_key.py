"""The bits that choose a block."""

from __future__ import annotations

import pytest

from xenoovs.model.balancer import MAX_KEY_BITS, BlockKey
from xenoovs.partition.block import MAX_WIDTH


@pytest.mark.parametrize(
    ("key", "width"),
    [
        (BlockKey(), 16),
        (BlockKey(width=3), 3),
        (BlockKey(width=0), 0),
        (BlockKey(positions=(5, 6)), 2),
        (BlockKey(positions=(5, 6), width=1), 1),
    ],
)
def test_blocks_are_no_deeper_than_the_bits(key: BlockKey, width: int) -> None:
    assert key.max_width == width


def test_the_partition_has_as_many_bits() -> None:
    assert MAX_KEY_BITS == MAX_WIDTH
