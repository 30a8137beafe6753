"""Blocks of client addresses, and assignments of blocks to backends.

The W selected bits of a client address span `2**W` units. A block of depth d holds all addresses whose first d selected
bits equal its value (bit j of the value is selected bit j), so masks of growing depth are nested. Reading the W bits in
reverse turns every block into an aligned interval of positions; two blocks are disjoint exactly if their intervals are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from xenoovs.dataclass import dataclass

MAX_WIDTH = 16
"""Most bits a service may be split over: 65,536 units. The exact solvers are sized for it."""


def reverse_bits(value: int, width: int) -> int:
    """The `width` low bits of `value` in reverse order."""
    return int(f"{value:0{width}b}"[::-1], 2) if width else 0


@dataclass(frozen=True, slots=True, order=True)
class Block:
    """All addresses whose first `depth` selected bits equal `value`; `0 <= value < 2**depth`."""

    value: int
    depth: int

    def __post_init__(self) -> None:
        if self.depth < 0 or not 0 <= self.value < 1 << self.depth:
            raise ValueError(f"block value {self.value} does not fit into {self.depth} bits")

    def size(self, width: int) -> int:
        """Number of units in a space of `width >= depth` bits."""
        return 1 << (width - self.depth)

    def start(self, width: int) -> int:
        """First position of the interval in a space of `width >= depth` bits."""
        return reverse_bits(self.value, self.depth) << (width - self.depth)

    def contains(self, address: int) -> bool:
        """Whether the selected bits `address` (bit j is selected bit j) lie in the block."""
        return address & ((1 << self.depth) - 1) == self.value

    def buddy(self) -> Block:
        """The other half of the parent block. Raises ValueError at depth 0."""
        if self.depth == 0:
            raise ValueError("the block of all addresses has no buddy")
        return Block(self.value ^ 1 << (self.depth - 1), self.depth)


def _block_order(entry: tuple[Block, int]) -> tuple[int, int]:
    """The order of `Block`, without the cost of calling its comparison."""
    return entry[0].value, entry[0].depth


@dataclass(frozen=True, slots=True)
class Assignment:
    """Which backend owns which block, for one service.

    `blocks` pairs each block with a backend index `0 <= i < backends`. It is sorted, prefix-free (no two blocks
    intersect), covering (every address has a block) and coalesced (no two buddies have one owner); anything else raises
    ValueError.
    """

    width: int
    blocks: tuple[tuple[Block, int], ...]
    backends: int

    def __post_init__(self) -> None:
        if any(not 0 <= owner < self.backends for _, owner in self.blocks):
            raise ValueError(f"an owner is not one of {self.backends} backends")
        if any(block.depth > self.width for block, _ in self.blocks):
            raise ValueError(f"a block is deeper than the width {self.width}")
        if any(low >= high for low, high in pairwise(map(_block_order, self.blocks))):
            raise ValueError("blocks are not sorted, or one is listed twice")
        self._check_cover()
        self._check_coalesced()

    def _check_cover(self) -> None:
        end = 0
        for start, size in sorted((block.start(self.width), block.size(self.width)) for block, _ in self.blocks):
            if start != end:
                raise ValueError(f"blocks {'overlap' if start < end else 'leave a gap'} at position {min(start, end)}")
            end += size
        if end != 1 << self.width:
            raise ValueError(f"blocks leave a gap at position {end}")

    def _check_coalesced(self) -> None:
        owners = {(block.value, block.depth): owner for block, owner in self.blocks}
        for (value, depth), owner in owners.items():
            if depth and owners.get((value ^ 1 << (depth - 1), depth)) == owner:
                raise ValueError(f"block {value}/{depth} and its buddy both belong to backend {owner}")

    @classmethod
    def of(cls, width: int, blocks: Iterable[tuple[Block, int]], backends: int) -> Assignment:
        """An assignment of the given blocks in any order."""
        return cls(width=width, blocks=tuple(sorted(blocks, key=_block_order)), backends=backends)

    def spaces(self) -> tuple[int, ...]:
        """Units owned by each backend; they sum to `2**width`."""
        spaces = [0] * self.backends
        for block, owner in self.blocks:
            spaces[owner] += block.size(self.width)
        return tuple(spaces)

    def owner(self, address: int) -> int:
        """The backend index of the selected bits `address` (bit j is selected bit j)."""
        return next(owner for block, owner in self.blocks if block.contains(address))


# Which bits of the client address are selected: an ordered list of positions, by default the low bits 0, 1, 2, ...
#
# The mask of depth d is the first d positions of the list, whatever their order, so masks stay nested. They are not
# CIDR masks: Python's `ipaddress` reads `0.0.0.3` as a host mask, so plain integers are used throughout.


def mask_of(depth: int, positions: Sequence[int] | None = None) -> int:
    """Return the address mask of a depth. The low bits if `positions` is None."""
    if positions is None:
        return (1 << depth) - 1
    return sum(1 << position for position in _first(positions, depth))


def spread(block: Block, positions: Sequence[int] | None = None) -> tuple[int, int]:
    """Return value and mask of a block for a masked match on the address. The low bits if `positions` is None."""
    if positions is None:
        return block.value, (1 << block.depth) - 1
    value = sum((block.value >> bit & 1) << position for bit, position in enumerate(_first(positions, block.depth)))
    return value, mask_of(block.depth, positions)


def unspread(value: int, mask: int, positions: Sequence[int] | None = None) -> Block:
    """Return the block of a masked match, the inverse of `spread`. ValueError: the mask or the value fits no block."""
    depth = mask.bit_count()
    if mask != mask_of(depth, positions) or value & ~mask:
        raise ValueError(f"{value:#x}/{mask:#x} is not a block of the selected bits")
    return Block(select(value, positions, depth), depth)


def select(address: int, positions: Sequence[int] | None, width: int) -> int:
    """The first `width` selected bits of an address: bit j of the result is bit `positions[j]` of the address."""
    if positions is None:
        return address & ((1 << width) - 1)
    return sum((address >> position & 1) << bit for bit, position in enumerate(_first(positions, width)))


def _first(positions: Sequence[int], depth: int) -> Sequence[int]:
    if depth > len(positions):
        raise ValueError(f"{depth} bits are needed and {len(positions)} positions are selected")
    return positions[:depth]


# A working copy of an assignment as intervals of positions, for the algorithms that change one.


class Piece(NamedTuple):
    """An aligned interval of `size` positions, a power of two, and its owner."""

    start: int
    size: int
    owner: int


class Table:
    """Disjoint pieces that are changed in place. An owner is any index; it need not be a backend."""

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
        """Return the starts of the owner's pieces of this size, in order."""
        return sorted(self._starts.get((owner, size), ()))

    def owners_of_several(self, size: int) -> list[int]:
        """Return the owners that have two or more pieces of this size, in order."""
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
        """Return the pieces in an aligned interval, cut to it. The table must cover the interval."""
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
        """Merge a piece with its buddy, and the result with its buddy, as long as both have the same owner."""
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
