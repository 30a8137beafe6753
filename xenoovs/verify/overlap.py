"""Which entries and blocks share a packet with a match: looked up under the bits that both ask for.

The bits in common are few masks in any real dump, so what is built for each of them is used again and again, and then
a match is compared with what it overlaps alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from xenoovs.datapath.value import MaskedValue
from xenoovs.verify.expected import ExpectedBlock
from xenoovs.verify.join import BlockIndex, Place, Sources

Fields = Mapping[str, MaskedValue]
ANY = MaskedValue(0, 0)

_MOST_KEPT = 500_000
"""Entries and blocks in all tables together, some 100 MB. A dump with more masks is compared one by one."""

_Places = dict[tuple[str | None, tuple[int, ...]], list[Place]]
_Blocks = dict[int, list[ExpectedBlock]]


class OverlapIndex:
    """Of all services; built as matches come."""

    def __init__(self, index: BlockIndex) -> None:
        self._entries = tuple(index.entries.items())
        self._places: dict[tuple[int, tuple[int, ...]], _Places] = {}
        self._blocks: dict[tuple[int, int, int], _Blocks] = {}
        self._left = _MOST_KEPT

    def places(self, in_port: str | None, fields: Fields) -> Iterator[Place]:
        """The entries by which some packet of this match comes, whatever its source."""
        if "dl_type" not in fields:
            return
        for number, (masks, entries) in enumerate(self._entries):
            found = [fields.get(name, ANY) for name, _ in masks]
            common = tuple([one.mask & mask for one, (_, mask) in zip(found, masks, strict=True)])
            places = self._places.get((number, common))
            if places is None:
                places = _under(common, entries)
                if self._keep(len(entries)):
                    self._places[number, common] = places
            seen = tuple([one.value & bits for one, bits in zip(found, common, strict=True)])
            yield from places.get((in_port, seen), ())
            if in_port is not None:
                yield from places.get((None, seen), ())

    def blocks(self, sources: Sources, source: MaskedValue) -> Iterable[ExpectedBlock]:
        """The blocks that some packet of this source meets."""
        return [block for _, mask, blocks in sources.by_mask for block in self._agreeing(mask, blocks, source)]

    def _agreeing(self, mask: int, blocks: Mapping[int, ExpectedBlock], source: MaskedValue) -> Iterable[ExpectedBlock]:
        common = mask & source.mask
        if common == mask:
            block = blocks.get(source.value & mask)
            return () if block is None else (block,)
        key = id(blocks), mask, common
        table = self._blocks.get(key)
        if table is None:
            if not self._keep(len(blocks)):
                return (block for value, block in blocks.items() if not (value ^ source.value) & common)
            table = self._blocks[key] = {}
            for value, block in blocks.items():
                table.setdefault(value & common, []).append(block)
        return table.get(source.value & common, ())

    def _keep(self, size: int) -> bool:
        self._left -= size
        return self._left >= 0


def _under(common: tuple[int, ...], entries: Mapping[tuple[str | None, tuple[int, ...]], Place]) -> _Places:
    places: _Places = {}
    for (port, values), place in entries.items():
        kept = tuple([value & bits for value, bits in zip(values, common, strict=True)])
        places.setdefault((port, kept), []).append(place)
    return places
