"""Blocks of client addresses and the assignment of blocks to backends.

The W selected bits of a client address span `2**W` units. A block of depth d holds all addresses whose first d selected
bits equal its value (bit j of the value is selected bit j), so masks of growing depth are nested. Reading the W bits in
reverse turns every block into an aligned interval of positions; two blocks are disjoint exactly if their intervals are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

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
            raise ValueError("blocks are not sorted, or one stands twice")
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
