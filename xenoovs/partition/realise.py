"""Turning a table into one with other spaces: keep large pieces, merge free buddies, fill the rest best fit first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

from xenoovs.partition.table import Piece, Table


class FreeSpace:
    """Free aligned intervals; free buddies are merged."""

    __slots__ = ("_starts", "_total")

    def __init__(self, width: int, pieces: Iterable[Piece]) -> None:
        self._total = 1 << width
        self._starts: dict[int, set[int]] = {1 << bit: set() for bit in range(width + 1)}
        for piece in pieces:
            self._add(piece.start, piece.size)

    def take(self, start: int, size: int) -> bool:
        """Take exactly this interval if it is wholly free."""
        outer = size
        while outer <= self._total:
            holder = start & -outer
            if holder in self._starts[outer]:
                self._starts[outer].remove(holder)
                while outer > size:
                    outer //= 2
                    self._starts[outer].add((start & -outer) ^ outer)
                return True
            outer *= 2
        return False

    def take_any(self, size: int) -> int | None:
        """Take `size` units at the start of the smallest interval that holds them, lowest first; None: none does."""
        outer = size
        while outer <= self._total:
            if self._starts[outer]:
                start = min(self._starts[outer])
                self.take(start, size)
                return start
            outer *= 2
        return None

    def _add(self, start: int, size: int) -> None:
        while start ^ size in self._starts[size]:
            self._starts[size].remove(start ^ size)
            start, size = start & ~size, 2 * size
        self._starts[size].add(start)


def keep_set(pieces: Sequence[Piece], space: int) -> tuple[list[Piece], list[Piece]]:
    """Keep exactly `space` units in as few pieces as possible: (kept, released).

    `pieces` belong to one owner and stand largest first, then by position.
    """
    kept, skipped = [], []
    for piece in pieces:
        if piece.size <= space:
            kept.append(piece)
            space -= piece.size
        else:
            skipped.append(piece)
    if not space:
        return kept, skipped
    cut = min(skipped, key=lambda piece: (piece.size, piece.start))
    released = [piece for piece in skipped if piece != cut]
    return kept + _first_units(cut, space), released + _other_units(cut, space)


def _first_units(piece: Piece, count: int) -> list[Piece]:
    """The first `count` units of a piece, largest part first."""
    parts = [1 << bit for bit in range(count.bit_length() - 1, -1, -1) if count >> bit & 1]
    return [Piece(piece.start + sum(parts[:index]), part, piece.owner) for index, part in enumerate(parts)]


def _other_units(piece: Piece, count: int) -> list[Piece]:
    """The units of a piece after the first `count > 0`, smallest part first."""
    found = []
    while count < piece.size:
        part = count & -count
        found.append(Piece(piece.start + count, part, piece.owner))
        count += part
    return found


def kept_count(pieces: Sequence[Piece], space: int) -> int:
    """The number of pieces that `keep_set` keeps."""
    count = 0
    for piece in pieces:
        if piece.size <= space:
            count += 1
            space -= piece.size
    return count + space.bit_count()


def realise(table: Table, wanted: Sequence[int]) -> Table:
    """A coalesced table in which owner i has `wanted[i]` units; the sum is that of the table's units.

    Owners that shrink only give, owners that grow only take.
    """
    result = table.copy()
    released = []
    for pieces, space in zip(table.by_owner(len(wanted)), wanted, strict=True):
        if sum(piece.size for piece in pieces) > space:
            kept, given = keep_set(pieces, space)
            released += given
            for piece in pieces:
                result.remove(piece)
            for piece in kept:
                result.put(piece)
    fill(result, released, wanted)
    return result


def fill(table: Table, released: Sequence[Piece], wanted: Sequence[int]) -> None:
    """Give the released intervals, which the table no longer holds, to the owners that have less than `wanted`."""
    free = FreeSpace(table.width, released)
    needs = [space - held for space, held in zip(wanted, table.spaces(len(wanted)), strict=True)]
    _merge_buddies(table, free, needs)
    _place_pieces(table, free, needs)
    table.coalesce_all()


def _merge_buddies(table: Table, free: FreeSpace, needs: list[int]) -> None:
    """Growing owners double their pieces into free buddies, largest first: space without a new block."""
    queue = [(-piece.size, piece) for piece in table if needs[piece.owner] >= piece.size]
    heapify(queue)
    while queue:
        _, piece = heappop(queue)
        start, size, owner = piece
        if needs[owner] >= size and piece in table and free.take(start ^ size, size):
            table.remove(piece)
            double = Piece(start & ~size, 2 * size, owner)
            table.put(double)
            needs[owner] -= size
            heappush(queue, (-double.size, double))


def _place_pieces(table: Table, free: FreeSpace, needs: Sequence[int]) -> None:
    """The powers of two of every need, largest first, into the smallest free intervals that hold them."""
    queue = [
        (-(1 << bit), owner) for owner, need in enumerate(needs) for bit in range(need.bit_length()) if need >> bit & 1
    ]
    heapify(queue)
    while queue:
        size, owner = heappop(queue)
        start = free.take_any(-size)
        if start is None:
            heappush(queue, (size // 2, owner))
            heappush(queue, (size // 2, owner))
        else:
            table.put(Piece(start, -size, owner))
