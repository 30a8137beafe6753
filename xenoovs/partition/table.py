"""A working copy of an assignment as intervals of positions, for the algorithms that change one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from xenoovs.partition.block import Assignment, Block, reverse_bits


class Piece(NamedTuple):
    """An aligned interval of `size` positions, a power of two, and its owner."""

    start: int
    size: int
    owner: int


class Table:
    """Disjoint pieces that are changed in place. An owner is any index, also one that stands for no backend."""

    __slots__ = ("_pieces", "_starts", "width")

    def __init__(self, width: int, pieces: Iterable[Piece]) -> None:
        self.width = width
        self._pieces: dict[int, Piece] = {}
        self._starts: dict[tuple[int, int], set[int]] = {}
        for piece in pieces:
            self.put(piece)

    @classmethod
    def of(cls, assignment: Assignment, width: int, owners: Sequence[int] | None = None) -> Table:
        """The assignment in a space of `width >= assignment.width` bits; backend i becomes `owners[i]`."""
        return cls(
            width,
            (
                Piece(block.start(width), block.size(width), owner if owners is None else owners[owner])
                for block, owner in assignment.blocks
            ),
        )

    def copy(self) -> Table:
        return Table(self.width, self._pieces.values())

    def assignment(self, backends: int) -> Assignment:
        """The coalesced pieces as blocks. ValueError: they do not cover the space, or an owner is not a backend."""
        blocks = (
            (Block(reverse_bits(start, self.width), self.width + 1 - size.bit_length()), owner)
            for start, size, owner in self._pieces.values()
        )
        return Assignment.of(self.width, blocks, backends)

    def put(self, piece: Piece) -> None:
        self._pieces[piece.start] = piece
        self._starts.setdefault((piece.owner, piece.size), set()).add(piece.start)

    def remove(self, piece: Piece) -> None:
        del self._pieces[piece.start]
        self._starts[piece.owner, piece.size].remove(piece.start)

    def __contains__(self, piece: Piece) -> bool:
        return self._pieces.get(piece.start) == piece

    def __len__(self) -> int:
        return len(self._pieces)

    def __iter__(self) -> Iterator[Piece]:
        """All pieces by position."""
        return iter([self._pieces[start] for start in sorted(self._pieces)])

    def starts(self, owner: int, size: int) -> list[int]:
        """Where the owner has pieces of this size, in order."""
        return sorted(self._starts.get((owner, size), ()))

    def owners_of_several(self, size: int) -> list[int]:
        """The owners that have two or more pieces of this size, in order."""
        return sorted(owner for (owner, held), starts in self._starts.items() if held == size and len(starts) > 1)

    def by_owner(self, owners: int) -> list[list[Piece]]:
        """The pieces of the owners `0..owners-1`, largest first, then by position."""
        held: list[list[Piece]] = [[] for _ in range(owners)]
        for piece in self._pieces.values():
            held[piece.owner].append(piece)
        return [sorted(pieces, key=lambda piece: (-piece.size, piece.start)) for pieces in held]

    def spaces(self, owners: int) -> list[int]:
        """Units of the owners `0..owners-1`."""
        spaces = [0] * owners
        for piece in self._pieces.values():
            spaces[piece.owner] += piece.size
        return spaces

    def within(self, start: int, size: int) -> list[Piece]:
        """What an aligned interval holds, cut to it. The table must cover the interval."""
        outer = size
        while outer <= 1 << self.width:
            piece = self._pieces.get(start & -outer)
            if piece is not None and piece.size >= outer:
                return [Piece(start, size, piece.owner)]
            outer *= 2
        found = []
        position = start
        while position < start + size:
            found.append(self._pieces[position])
            position += self._pieces[position].size
        return found

    def coalesce(self, piece: Piece) -> None:
        """Merge a piece with its buddy, and the result again, while they have one owner."""
        start, size, owner = piece
        while Piece(start ^ size, size, owner) in self:
            self.remove(Piece(start, size, owner))
            self.remove(Piece(start ^ size, size, owner))
            start, size = start & ~size, 2 * size
            self.put(Piece(start, size, owner))

    def coalesce_all(self) -> None:
        for piece in self:
            if piece in self:
                self.coalesce(piece)


def moved(old: Assignment, new: Assignment) -> int:
    """Units whose owner differs, in a space of the larger of both widths."""
    width = max(old.width, new.width)
    later = Table.of(new, width)
    return sum(
        part.size
        for piece in Table.of(old, width)
        for part in later.within(piece.start, piece.size)
        if part.owner != piece.owner
    )
