"""One subtable of the classifier: the flows of one mask, hashed stage by stage (lib/classifier.c, insert_subtable)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from xenoovs.openflow.field import Field
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.match import Masked, Match
from xenoovs.simulate.headers import ICMP_PROTOCOLS, Headers, Stage, slot_of, stage_of
from xenoovs.simulate.trie import PrefixTrie
from xenoovs.simulate.wildcards import Wildcards

Masks = tuple[tuple[Field, int], ...]
Part = tuple[int | str | None, ...]
"""Masked values, in the order of the subtable's mask, of its first stages or of all."""

_PORTS_BITS = 32


@dataclass(frozen=True, slots=True)
class Mask:
    """What a flow looks at: the ingress port or not, and slots with their masks in the order of their stages."""

    in_port: bool
    masks: Masks

    def ports(self) -> int:
        """The mask of the L4 ports as one number: the source above the destination."""
        masks = dict(self.masks)
        return masks.get(Field.TP_SRC, 0) << 16 | masks.get(Field.TP_DST, 0)

    def part(self, in_port: str | None, values: Mapping[Field, int]) -> Part:
        masked = [values.get(slot, 0) & mask for slot, mask in self.masks]
        return (in_port, *masked) if self.in_port else tuple(masked)


@dataclass(slots=True)
class Subtable:
    """The flows of one mask; build it with `subtable_of`.

    stages:  the mask cut into stages, those without bits left out.
    lengths: how many values the stages up to each one have.
    begun:   for each stage but the last, the values that flows have up to it.
    ports:   the L4 ports of the flows, of which the first `ports_length` bits matter; 0: none do.
    """

    mask: Mask
    stages: tuple[Masks, ...]
    lengths: tuple[int, ...]
    begun: tuple[set[Part], ...]
    ports_length: int
    ports: PrefixTrie = field(default_factory=lambda: PrefixTrie(_PORTS_BITS))
    flows: dict[Part, Flow] = field(default_factory=dict)
    max_priority: int = -1

    def insert(self, flow: Flow) -> None:
        """Add a flow of this mask; of two equal matches the higher priority counts."""
        values = slot_values(flow.match)
        part = self.mask.part(flow.match.in_port, values)
        for begun, length in zip(self.begun, self.lengths, strict=False):
            begun.add(part[:length])
        if part not in self.flows or self.flows[part].priority < flow.priority:
            self.flows[part] = flow
        if self.ports_length:
            self.ports.insert(_ports(values), self.ports_length)
        self.max_priority = max(self.max_priority, flow.priority)

    def note_missed_ports(self, headers: Headers, wildcards: Wildcards) -> None:
        """Look at no more bits of the ports than tell the packet from all flows here."""
        bits = self.ports.bits_to_look_at(_ports(headers.values) & self.mask.ports())
        mask = self.mask.ports() >> _PORTS_BITS - bits << _PORTS_BITS - bits
        wildcards.add(Field.TP_SRC, mask >> 16)
        wildcards.add(Field.TP_DST, mask & 0xFFFF)


def subtable_of(mask: Mask) -> Subtable:
    """An empty subtable."""
    by_stage = {stage: tuple(m for m in mask.masks if stage_of(m[0]) is stage) for stage in Stage}
    # The ingress port belongs to the first stage, even where no other field does.
    kept = [masks for stage, masks in by_stage.items() if masks or (mask.in_port and stage is Stage.METADATA)]
    stages = tuple(kept) or ((),)
    lengths = tuple(int(mask.in_port) + size for size in accumulate(map(len, stages)))
    ports = mask.ports()
    ports_length = _PORTS_BITS + 1 - (ports & -ports).bit_length() if ports else 0
    return Subtable(mask, stages, lengths, tuple(set[Part]() for _ in stages[:-1]), ports_length)


def mask_of(match: Match) -> Mask:
    """The mask of a flow, which names its subtable."""
    protocol = match.get(Field.NW_PROTO)
    is_icmp = protocol is not None and protocol.value in ICMP_PROTOCOLS
    masks = sorted((_slot_mask(c, is_icmp=is_icmp) for c in match.masked), key=lambda m: (stage_of(m[0]), m[0].rank))
    return Mask(match.in_port is not None, tuple(masks))


def slot_values(match: Match) -> dict[Field, int]:
    """The values that a flow wants, by slot."""
    return {slot_of(condition.field): condition.value for condition in match.masked}


def _slot_mask(condition: Masked, *, is_icmp: bool) -> tuple[Field, int]:
    slot = slot_of(condition.field)
    if is_icmp and condition.is_exact and slot in (Field.TP_SRC, Field.TP_DST):
        # Type and code have 8 bits, but an exact match masks all 16 of the port that they are kept in (lib/match.c).
        return slot, slot.all_ones
    return slot, condition.mask & slot.all_ones


def _ports(values: Mapping[Field, int]) -> int:
    return values.get(Field.TP_SRC, 0) << 16 | values.get(Field.TP_DST, 0)


def prefix_length_of(mask: Mask, slot: Field) -> int:
    """The length of a prefix mask on a slot; 0 for none, and for a mask with holes (minimask_get_prefix_len)."""
    bits = dict(mask.masks).get(slot, 0)
    inverse = bits ^ slot.all_ones
    return slot.width - inverse.bit_length() if inverse & (inverse + 1) == 0 else 0


def group_by_mask(flows: Iterable[Flow]) -> list[Subtable]:
    """Subtables in the order in which the classifier visits them: falling top priority, the older one first."""
    subtables: dict[Mask, Subtable] = {}
    for flow in flows:
        mask = mask_of(flow.match)
        if mask not in subtables:
            subtables[mask] = subtable_of(mask)
        subtables[mask].insert(flow)
    return sorted(subtables.values(), key=lambda subtable: -subtable.max_priority)
