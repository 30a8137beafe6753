"""Blocks and their owners: who has which clients of one service, in the one form that two equal tables share."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from xenoovs.partition.block import Assignment, Block, reverse_bits
from xenoovs.partition.table import Piece, Table

Owner = str
"""The name of a backend, or `str(next_hop)` where no backend of the config has that next hop."""

Row = tuple[Block, Owner]

Interval = tuple[int, int, Owner]
"""Start, size (a power of two that divides the start) and owner, in a space of `2**width` units."""

_NOBODY = ""


@dataclass(frozen=True, slots=True)
class Blocks:
    """Who owns which block. Clients in no block are dropped.

    The value is canonical: two `Blocks` that send every client to the same owner are equal.

    Attributes:
        rows: Blocks and their owners, sorted by depth and value, prefix-free and coalesced.
    """

    rows: tuple[Row, ...] = ()

    @classmethod
    def of(cls, rows: Iterable[tuple[Block, Owner | None]]) -> Blocks:
        """Return the canonical form of blocks in any order. Where blocks overlap, the last of them wins.

        Args:
            rows: Blocks and their owners; None: their clients are dropped.
        """
        given = tuple(rows)
        width = max((block.depth for block, _ in given), default=0)
        space = Space(width)
        for block, owner in reversed(given):
            for start, size, held in tuple(space.parts(block.start(width), block.size(width))):
                if held is None:
                    space.put(start, size, owner or _NOBODY)
        return cls(_coalesced(width, (part for part in space if part[2] != _NOBODY)))

    @classmethod
    def of_assignment(cls, assignment: Assignment, owners: Iterable[Owner]) -> Blocks:
        """Return the blocks of an assignment; `owners`: the name of each backend index."""
        names = tuple(owners)
        return cls(_sorted((block, names[owner]) for block, owner in assignment.blocks))

    @property
    def depth(self) -> int:
        """Bits of the deepest block."""
        return max((block.depth for block, _ in self.rows), default=0)

    @property
    def owners(self) -> frozenset[Owner]:
        return frozenset(owner for _, owner in self.rows)

    def shares(self) -> dict[Owner, Fraction]:
        """Return each owner's share of the clients, 0 < share <= 1."""
        width, units = self.depth, defaultdict[Owner, int](int)
        for block, owner in self.rows:
            units[owner] += block.size(width)
        return {owner: Fraction(count, 1 << width) for owner, count in units.items()}

    def assignment(self) -> tuple[Assignment, tuple[Owner | None, ...]]:
        """Return an assignment that covers all clients, and the owner of each index in it; None: dropped."""
        names: tuple[Owner | None, ...] = (*sorted(self.owners), None)
        numbers = {name: number for number, name in enumerate(names)}
        width = self.depth
        parts = Space(width, self.rows).parts(0, 1 << width)
        table = Table(width, (Piece(start, size, numbers[owner]) for start, size, owner in parts))
        table.coalesce_all()
        return table.assignment(len(names)), names

    def renamed(self, names: Mapping[Owner, Owner]) -> Blocks:
        """Return the same blocks with other names of owners; owners that `names` lacks keep theirs."""
        return Blocks.of((block, names.get(owner, owner)) for block, owner in self.rows) if names else self

    def over(self, below: Blocks) -> Blocks:
        """Return these blocks, and those of `below` where these have none."""
        return Blocks.of((*below.rows, *self.rows)) if self.rows else below

    def within(self, blocks: Iterable[Block]) -> Iterator[tuple[Block, Block, Owner | None]]:
        """Yield each of `blocks` with its parts here and their owners; None: no block covers the part."""
        asked = tuple(blocks)
        width = max((self.depth, *(block.depth for block in asked)))
        space = Space(width, self.rows)
        for block in asked:
            for start, size, owner in space.parts(block.start(width), block.size(width)):
                yield block, block_at(start, size, width), owner


class Space:
    """Disjoint intervals of a space of `2**width` units, and who owns them."""

    def __init__(self, width: int, rows: Iterable[Row] = ()) -> None:
        """Raises ValueError for rows that overlap."""
        self.width = width
        intervals = sorted((block.start(width), block.size(width), owner) for block, owner in rows)
        if any(start + size > after for (start, size, _), (after, _, _) in pairwise(intervals)):
            raise ValueError("blocks overlap")
        self._held = {start: (size, owner) for start, size, owner in intervals}
        self._starts = [start for start, _, _ in intervals]

    def __iter__(self) -> Iterator[Interval]:
        return ((start, *self._held[start]) for start in self._starts)

    def put(self, start: int, size: int, owner: Owner) -> None:
        """Add an interval that is free."""
        self._held[start] = (size, owner)
        insort(self._starts, start)

    def parts(self, start: int, size: int) -> Iterator[tuple[int, int, Owner | None]]:
        """Yield what an aligned interval holds, cut to it, as aligned intervals; None: nobody owns the part."""
        outer = size
        while outer <= 1 << self.width:
            found = self._held.get(start & -outer)
            if found is not None and found[0] >= outer:
                yield start, size, found[1]
                return
            outer *= 2
        index = bisect_left(self._starts, start)
        if index == len(self._starts) or self._starts[index] >= start + size:
            yield start, size, None
            return
        yield from self.parts(start, size // 2)
        yield from self.parts(start + size // 2, size // 2)


def block_at(start: int, size: int, width: int) -> Block:
    """Return the block of an aligned interval; the inverse of `Block.start` and `Block.size`."""
    depth = width + 1 - size.bit_length()
    return Block(reverse_bits(start >> (width - depth), depth), depth)


def _coalesced(width: int, intervals: Iterable[Interval]) -> tuple[Row, ...]:
    held = tuple(intervals)
    owners = tuple(dict.fromkeys(owner for _, _, owner in held))
    numbers = {owner: number for number, owner in enumerate(owners)}
    table = Table(width, (Piece(start, size, numbers[owner]) for start, size, owner in held))
    table.coalesce_all()
    return _sorted((block_at(piece.start, piece.size, width), owners[piece.owner]) for piece in table)


def _sorted(rows: Iterable[Row]) -> tuple[Row, ...]:
    return tuple(sorted(rows, key=lambda row: (row[0].depth, row[0].value)))
