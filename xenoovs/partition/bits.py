"""Which bits of the client address are selected: an ordered list of positions, by default the low bits 0, 1, 2, ...

The mask of depth d is the first d positions of the list, whatever their order, so masks stay nested. They are not CIDR
masks: Python's `ipaddress` reads `0.0.0.3` as a host mask, so plain integers are used throughout.
"""

from __future__ import annotations

from collections.abc import Sequence

from xenoovs.partition.block import Block


def mask_of(depth: int, positions: Sequence[int] | None = None) -> int:
    """The address mask of a depth. `positions` None: the low bits."""
    if positions is None:
        return (1 << depth) - 1
    return sum(1 << position for position in _first(positions, depth))


def spread(block: Block, positions: Sequence[int] | None = None) -> tuple[int, int]:
    """(value, mask) of the block as address bits, ready for a masked match. `positions` None: the low bits."""
    if positions is None:
        return block.value, (1 << block.depth) - 1
    value = sum((block.value >> bit & 1) << position for bit, position in enumerate(_first(positions, block.depth)))
    return value, mask_of(block.depth, positions)


def unspread(value: int, mask: int, positions: Sequence[int] | None = None) -> Block:
    """The block behind a masked match: the inverse of `spread`.

    ValueError: the mask is not one of a depth, or the value has bits outside it.
    """
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
