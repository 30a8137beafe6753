"""Which expected blocks share packets with a match: that of a megaflow, or of a rule of another program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from xenoovs.datapath.megaflow import MaskedValue
from xenoovs.verify.expected import ANY, BlockIndex, BlocksByMask, ExpectedBlock, Fields, ServiceEntry

_MAX_INDEXED = 500_000
"""Entries and blocks in all tables together, about 100 MB. Matches with further masks are compared one by one."""

_PortAndValues = tuple[str | None, tuple[int, ...]]
_Entries = dict[_PortAndValues, list[ServiceEntry]]
_Blocks = dict[int, list[ExpectedBlock]]


class OverlapIndex:
    """Finds the entries and blocks that share a packet with a match.

    It looks them up under the bits that both match. A real dump has few such masks, so their tables are built once.
    """

    def __init__(self, index: BlockIndex) -> None:
        self._by_mask = tuple(index.entries.items())
        self._entries: dict[tuple[int, tuple[int, ...]], _Entries] = {}
        self._blocks: dict[tuple[int, int, int], _Blocks] = {}
        self._room = _MAX_INDEXED

    def entries(self, in_port: str | None, fields: Fields) -> Iterator[ServiceEntry]:
        """Yield the entries that match some packet of this match, whatever its source."""
        if "dl_type" not in fields:
            return
        for number, (masks, entries) in enumerate(self._by_mask):
            found = [fields.get(name, ANY) for name, _ in masks]
            common = tuple([one.mask & mask for one, (_, mask) in zip(found, masks, strict=True)])
            table = self._entries.get((number, common))
            if table is None:
                table = _under_mask(common, entries)
                if self._has_room(len(entries)):
                    self._entries[number, common] = table
            values = tuple([one.value & bits for one, bits in zip(found, common, strict=True)])
            yield from table.get((in_port, values), ())
            if in_port is not None:
                yield from table.get((None, values), ())

    def blocks(self, blocks: BlocksByMask, source: MaskedValue) -> Iterable[ExpectedBlock]:
        """Return the blocks that match some packet of this source."""
        return [block for _, mask, by_value in blocks.by_mask for block in self._overlapping(mask, by_value, source)]

    def _overlapping(
        self, mask: int, by_value: Mapping[int, ExpectedBlock], source: MaskedValue
    ) -> Iterable[ExpectedBlock]:
        common = mask & source.mask
        if common == mask:
            block = by_value.get(source.value & mask)
            return () if block is None else (block,)
        key = id(by_value), mask, common
        table = self._blocks.get(key)
        if table is None:
            if not self._has_room(len(by_value)):
                return (block for value, block in by_value.items() if not (value ^ source.value) & common)
            table = self._blocks[key] = {}
            for value, block in by_value.items():
                table.setdefault(value & common, []).append(block)
        return table.get(source.value & common, ())

    def _has_room(self, size: int) -> bool:
        self._room -= size
        return self._room >= 0


def _under_mask(common: tuple[int, ...], entries: Mapping[_PortAndValues, ServiceEntry]) -> _Entries:
    table: _Entries = {}
    for (port, values), entry in entries.items():
        masked = tuple([value & bits for value, bits in zip(values, common, strict=True)])
        table.setdefault((port, masked), []).append(entry)
    return table
