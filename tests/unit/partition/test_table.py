"""Pieces of the address space, and what it takes to move them."""

from __future__ import annotations

from xenoovs.partition.block import Assignment, Block, Piece, Table, moved
from xenoovs.partition.change import FreeSpace, keep_set, realise

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
