"""Blocks as intervals, and what an assignment refuses."""

from __future__ import annotations

import pytest

from xenoovs.partition.block import Assignment, Block, reverse_bits

HALVES = ((Block(0, 1), 0), (Block(1, 1), 1))


def test_bits_are_reversed_within_the_width() -> None:
    assert [reverse_bits(value, 3) for value in range(8)] == [0, 4, 2, 6, 1, 5, 3, 7]
    assert reverse_bits(0, 0) == 0


def test_a_block_is_an_interval_of_positions() -> None:
    odd = Block(1, 1)
    assert (odd.start(4), odd.size(4)) == (8, 8)
    assert Block(0, 0).size(4) == 16
    assert (Block(0b01, 2).start(4), Block(0b10, 2).start(4)) == (8, 4)


def test_a_block_contains_the_addresses_that_end_in_its_value() -> None:
    assert [address for address in range(16) if Block(0b10, 2).contains(address)] == [2, 6, 10, 14]


def test_the_buddy_is_the_other_half_of_the_parent() -> None:
    assert Block(0b101, 3).buddy() == Block(0b001, 3)
    with pytest.raises(ValueError, match="no buddy"):
        Block(0, 0).buddy()


@pytest.mark.parametrize(("value", "depth"), [(2, 1), (-1, 3), (0, -1), (1, 0)])
def test_a_value_must_fit_its_depth(value: int, depth: int) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        Block(value, depth)


def test_an_assignment_counts_units_and_finds_owners() -> None:
    split = Assignment.of(3, [(Block(1, 1), 1), (Block(0, 2), 0), (Block(2, 2), 2)], 4)
    assert split.spaces() == (2, 4, 2, 0)
    assert [split.owner(address) for address in range(8)] == [0, 1, 2, 1, 0, 1, 2, 1]


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        (HALVES[::-1], "sorted"),
        (HALVES[:1], "gap at position 4"),
        ((*HALVES, (Block(3, 2), 0)), "overlap"),
        ((HALVES[1],), "gap at position 0"),
        (((Block(0, 1), 0), (Block(1, 1), 0)), "both belong to backend 0"),
        (((Block(0, 0), 2),), "not one of 2 backends"),
        (((Block(0, 4), 0),), "deeper than the width"),
        ((), "gap at position 0"),
    ],
)
def test_an_assignment_refuses_what_is_not_one(blocks: tuple[tuple[Block, int], ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Assignment(width=3, blocks=blocks, backends=2)
