"""Blocks as intervals, and what an assignment refuses."""

from __future__ import annotations

import pytest

from xenoovs.partition.block import Assignment, Block, Piece, Table, moved, reverse_bits, select, spread, unspread
from xenoovs.partition.change import FreeSpace, keep_set, realise

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


EIGHTHS = Assignment.of(3, [(Block(0, 1), 0), (Block(1, 2), 1), (Block(3, 3), 0), (Block(7, 3), 1)], 2)


def test_a_table_gives_its_assignment_back() -> None:
    assert Table.of(EIGHTHS, 3).assignment(2) == EIGHTHS
    assert Table.of(EIGHTHS, 5).assignment(2).blocks == EIGHTHS.blocks


def test_what_an_interval_holds_is_cut_to_it() -> None:
    table = Table.of(EIGHTHS, 3)
    assert table.within(4, 4) == [Piece(4, 2, 1), Piece(6, 1, 0), Piece(7, 1, 1)]
    assert table.within(2, 2) == [Piece(2, 2, 0)]


def test_buddies_of_one_owner_merge_as_far_as_they_can() -> None:
    table = Table(3, [Piece(0, 4, 1), Piece(4, 2, 1), Piece(6, 1, 1), Piece(7, 1, 1)])
    table.coalesce(Piece(7, 1, 1))
    assert list(table) == [Piece(0, 8, 1)]


def test_moved_counts_units_of_the_wider_space() -> None:
    halves = Assignment.of(1, [(Block(0, 1), 0), (Block(1, 1), 1)], 2)
    assert moved(halves, halves) == 0
    assert moved(halves, EIGHTHS) == moved(EIGHTHS, halves) == 1


def test_keep_set_prefers_whole_pieces() -> None:
    pieces = [Piece(0, 8, 0), Piece(16, 4, 0), Piece(24, 2, 0)]
    assert keep_set(pieces, 10) == ([pieces[0], pieces[2]], [pieces[1]])


def test_keep_set_cuts_the_smallest_piece_it_skipped() -> None:
    pieces = [Piece(0, 8, 0), Piece(16, 8, 0)]
    kept, released = keep_set(pieces, 11)
    assert kept == [Piece(0, 8, 0), Piece(16, 2, 0), Piece(18, 1, 0)]
    assert released == [Piece(19, 1, 0), Piece(20, 4, 0)]


def test_free_buddies_become_one_interval() -> None:
    free = FreeSpace(3, [Piece(0, 2, 0), Piece(2, 1, 0), Piece(3, 1, 0), Piece(6, 1, 0)])
    assert free.take_any(4) == 0
    assert free.take_any(1) == 6
    assert free.take_any(1) is None


def test_free_space_is_cut_from_the_smallest_interval_that_fits() -> None:
    free = FreeSpace(4, [Piece(0, 8, 0), Piece(12, 2, 0)])
    assert free.take_any(1) == 12
    assert free.take(13, 1)
    assert not free.take(13, 1)
    assert free.take_any(2) == 0
    assert free.take(4, 4)


def test_an_owner_grows_into_the_free_buddy_without_a_new_block() -> None:
    quarters = Table(2, [Piece(0, 1, 0), Piece(1, 1, 1), Piece(2, 2, 2)])
    assert list(realise(quarters, [2, 0, 2])) == [Piece(0, 2, 0), Piece(2, 2, 2)]
