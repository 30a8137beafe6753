"""Blocks by the clients that they have in common: found by hash, never by asking each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class Overlaps(Generic[T]):
    """Things that stand for blocks: value, mask, thing; no two for one block. All masks are nested."""

    def __init__(self, blocks: Iterable[tuple[int, int, T]]) -> None:
        self._by_mask = defaultdict[int, dict[int, T]](dict)
        for value, mask, thing in blocks:
            self._by_mask[mask][value] = thing
        self._inside: dict[int, dict[int, list[T]]] = {}

    def meeting(self, value: int, mask: int) -> list[T]:
        """The things whose block shares clients with this one."""
        around = (blocks.get(value & known) for known, blocks in self._by_mask.items() if not known & ~mask)
        return [*(thing for thing in around if thing is not None), *self._smaller(mask).get(value, ())]

    def _smaller(self, mask: int) -> dict[int, list[T]]:
        """Things of longer masks by their value under this one."""
        if mask not in self._inside:
            found = self._inside[mask] = defaultdict[int, list[T]](list)
            for known, blocks in self._by_mask.items():
                if known != mask and not mask & ~known:
                    for value, thing in blocks.items():
                        found[value & mask].append(thing)
        return self._inside[mask]
