"""Which block a megaflow belongs to, by its match: first the service that it entered, then the class of its source.

A megaflow's mask covers the masks of all flows that its packets met (lib/classifier.c), and blocks are disjoint, so the
match alone tells. Look-ups by hash, one for each mask in use: never megaflows times blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from xenoovs.datapath.match import match_of
from xenoovs.datapath.megaflow import Megaflow
from xenoovs.datapath.value import MaskedValue
from xenoovs.openflow.match import Match
from xenoovs.verify.expected import ExpectedBlock, ExpectedService

_Masks = tuple[tuple[str, int], ...]
_Entry = tuple[str | None, tuple[int, ...]]
_Fields = Mapping[str, MaskedValue]


@dataclass(frozen=True, slots=True)
class _Sources:
    """The blocks of one service and IP family: (field, mask) -> value -> block, longest masks first."""

    by_mask: tuple[tuple[str, int, dict[int, ExpectedBlock]], ...]

    def find(self, fields: _Fields) -> ExpectedBlock | None:
        for field, mask, blocks in self.by_mask:
            value = _masked(fields, field, mask)
            if value is not None and value in blocks:
                return blocks[value]
        return None


@dataclass(frozen=True, slots=True)
class BlockIndex:
    """Finds the block of a megaflow; build it with `index_blocks`."""

    entries: dict[_Masks, dict[_Entry, _Sources]]

    def find(self, megaflow: Megaflow) -> ExpectedBlock | None:
        """None: the megaflow is of no block."""
        fields = match_of(megaflow)
        for masks, entries in self.entries.items():
            values = tuple(_masked(fields, field, mask) for field, mask in masks)
            if None in values:
                continue
            known = tuple(value for value in values if value is not None)
            sources = entries.get((megaflow.in_port, known)) or entries.get((None, known))
            found = sources.find(fields) if sources else None
            if found is not None:
                return found
        return None


def index_blocks(services: Iterable[ExpectedService]) -> BlockIndex:
    """Index the blocks of all services."""
    entries: dict[_Masks, dict[_Entry, _Sources]] = {}
    for service in services:
        sources = {eth_type: _sources(service.blocks, eth_type) for eth_type in {b.eth_type for b in service.blocks}}
        for match in service.entries:
            masks = tuple((masked.field.ovs_name, masked.mask) for masked in match.masked)
            entry = match.in_port, tuple(masked.value for masked in match.masked)
            entries.setdefault(masks, {})[entry] = sources.get(_eth_type(match), _Sources(()))
    return BlockIndex(entries)


def _sources(blocks: Iterable[ExpectedBlock], eth_type: int) -> _Sources:
    by_mask: dict[tuple[str, int], dict[int, ExpectedBlock]] = {}
    for block in blocks:
        if block.eth_type == eth_type:
            source = block.source
            by_mask.setdefault((source.field.ovs_name, source.mask), {})[source.value] = block
    # Rules of strategy lpm overlap; the longest mask is the one whose flow the packets met.
    longest_first = sorted(by_mask.items(), key=lambda item: -item[0][1].bit_count())
    return _Sources(tuple((field, mask, found) for (field, mask), found in longest_first))


def _eth_type(match: Match) -> int:
    return next((masked.value for masked in match.masked if masked.field.ovs_name == "dl_type"), 0)


def _masked(fields: _Fields, field: str, mask: int) -> int | None:
    """The value under `mask`; None: the megaflow does not match all those bits."""
    if not mask:
        return 0
    found = fields.get(field)
    return found.value & mask if found is not None and found.mask & mask == mask else None
