"""What to do to blocks so that one assignment becomes another, in an order that never leaves an address to a stranger.

With priorities that fall with depth, a deeper new block is shadowed until the old shallow one goes, and a shallow new
one shadows the finer ones at once; so adds and changes go before removals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from xenoovs.partition.block import Assignment, Block


@dataclass(frozen=True, slots=True)
class Change:
    """One flow-mod: add a block, give it another owner, or remove it (`owner` is then the old one)."""

    kind: Literal["add", "modify", "remove"]
    block: Block
    owner: int


def diff(old: Assignment, new: Assignment) -> tuple[Change, ...]:
    """The changes from old to new: adds, then modifies, then removals, each by block."""
    before, after = dict(old.blocks), dict(new.blocks)
    return (
        *(Change("add", block, owner) for block, owner in new.blocks if block not in before),
        *(Change("modify", block, owner) for block, owner in new.blocks if before.get(block, owner) != owner),
        *(Change("remove", block, owner) for block, owner in old.blocks if block not in after),
    )
