"""Laying out spaces as blocks: the powers of two in each space, largest first, fill the address space without gaps.

Powers of two that sum to `2**width` always fit (equality in Kraft's inequality), so the number of blocks is the sum of
the popcounts. No two buddies get one owner, because a backend has at most one block of each size.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from xenoovs.partition.block import Assignment, Block


def layout(spaces: Sequence[int], width: int) -> Assignment:
    """Blocks for `spaces[i]` units of backend i, shallow blocks first, then by backend. ValueError: wrong sum."""
    if sum(spaces) != 1 << width:
        raise ValueError(f"spaces sum to {sum(spaces)}, not to the {1 << width} units of {width} bits")
    todo = sorted(
        (width - bit, backend)
        for backend, space in enumerate(spaces)
        for bit in range(space.bit_length())
        if space >> bit & 1
    )
    slots, depth = deque([0]), 0
    blocks = []
    for wanted, backend in todo:
        while depth < wanted:
            slots = deque(value | half << depth for value in slots for half in (0, 1))
            depth += 1
        blocks.append((Block(slots.popleft(), depth), backend))
    return Assignment.of(width, blocks, len(spaces))
