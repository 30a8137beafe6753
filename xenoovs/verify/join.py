"""Which block a megaflow belongs to, by its match: first the service that it entered, then the block.

A megaflow's mask covers the masks of all flows that its packets met (lib/classifier.c), and blocks are disjoint, so the
match alone tells. Look-ups by hash, one for each mask in use: never megaflows times blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_

from xenoovs.datapath.match import match_of
from xenoovs.datapath.megaflow import Megaflow
from xenoovs.datapath.value import MaskedValue
from xenoovs.verify.expected import ExpectedBlock, ExpectedService, eth_type_of

_Masks = tuple[tuple[str, int], ...]
_Entry = tuple[str | None, tuple[int, ...]]
_Fields = Mapping[str, MaskedValue]
_ANY = MaskedValue(0, 0)


@dataclass(frozen=True, slots=True)
class Sources:
    """The blocks of one service and IP family: (field, mask) -> value -> block."""

    by_mask: tuple[tuple[str, int, dict[int, ExpectedBlock]], ...]

    def find(self, fields: _Fields) -> ExpectedBlock | None:
        for field, mask, blocks in self.by_mask:
            source = fields.get(field, _ANY)
            if source.mask & mask == mask and (block := blocks.get(source.value & mask)) is not None:
                return block
        return None


@dataclass(frozen=True, slots=True)
class Place:
    """One entry of one service: `entry` is its index in `service.entries`."""

    service: ExpectedService
    entry: int
    sources: Sources


@dataclass(frozen=True, slots=True)
class BlockIndex:
    """Finds the block of a megaflow; build it with `index_blocks`."""

    entries: dict[_Masks, dict[_Entry, Place]]

    def find(self, megaflow: Megaflow) -> ExpectedBlock | None:
        """None: the megaflow is of no block."""
        found = self.locate(megaflow.in_port, match_of(megaflow))
        return found[1] if found else None

    def locate(self, in_port: str | None, fields: _Fields) -> tuple[Place, ExpectedBlock] | None:
        """The block and the entry by which its packets came. `fields`: the match of the megaflow."""
        for place in self.places(in_port, fields):
            found = place.sources.find(fields)
            if found is not None:
                return place, found
        return None

    def looks_at(self, fields: Iterable[str]) -> bool:
        """Whether any entry asks for one of these fields."""
        return not {field for masks in self.entries for field, _ in masks}.isdisjoint(fields)

    def bits_of(self, field: str) -> int:
        """Return all bits of a field that choose the blocks of any service."""
        places = (place for entries in self.entries.values() for place in entries.values())
        masks = (mask for place in places for looked_at, mask, _ in place.sources.by_mask if looked_at == field)
        return reduce(or_, masks, 0)

    def places(self, in_port: str | None, fields: _Fields) -> Iterator[Place]:
        """The entries by which such packets may have come, whatever their source."""
        for masks, entries in self.entries.items():
            values = _values(fields, masks)
            place = (entries.get((in_port, values)) or entries.get((None, values))) if values is not None else None
            if place is not None:
                yield place


def index_blocks(services: Iterable[ExpectedService]) -> BlockIndex:
    """Index the blocks of all services."""
    entries: dict[_Masks, dict[_Entry, Place]] = {}
    for service in services:
        sources = {eth_type: _sources(service.blocks, eth_type) for eth_type in {b.eth_type for b in service.blocks}}
        for number, match in enumerate(service.entries):
            masks = tuple((masked.field.ovs_name, masked.mask) for masked in match.masked)
            entry = match.in_port, tuple(masked.value for masked in match.masked)
            place = Place(service, number, sources.get(eth_type_of(match), Sources(())))
            entries.setdefault(masks, {})[entry] = place
    return BlockIndex(entries)


def _sources(blocks: Iterable[ExpectedBlock], eth_type: int) -> Sources:
    by_mask: dict[tuple[str, int], dict[int, ExpectedBlock]] = {}
    for block in blocks:
        if block.eth_type == eth_type:
            key = block.key
            by_mask.setdefault((key.field.ovs_name, key.mask), {})[key.value] = block
    return Sources(tuple((field, mask, found) for (field, mask), found in by_mask.items()))


def _values(fields: _Fields, masks: _Masks) -> tuple[int, ...] | None:
    """The values under all masks; None: the megaflow does not match all those bits."""
    values = []
    for field, mask in masks:
        found = fields.get(field)
        if found is None or found.mask & mask != mask:
            return None
        values.append(found.value & mask)
    return tuple(values)
