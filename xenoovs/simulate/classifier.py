"""The tuple-space classifier of Open vSwitch: which flow a packet meets, and which of its bits showed it.

Written after lib/classifier.c and lib/classifier.h (Open vSwitch 3.1.0; the same in 4.0), "Staged lookup", "Prefix
tracking" and "Performance": subtables are visited by falling top priority until none can win; each visited one, hit or
miss, adds its mask up to the stage where it failed; prefix tries spare bits of addresses, port tries bits of ports.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from xenoovs.openflow.flow import Field, Flow, Masked, Match
from xenoovs.simulate.headers import ICMP_PROTOCOLS, Headers, Stage, slot_of, stage_of

# The bits of a packet that decided over it: the mask that its megaflow gets.


@dataclass(slots=True)
class Wildcards:
    """Slot -> bits looked at so far (`struct flow_wildcards`, include/openvswitch/flow.h)."""

    masks: dict[Field, int] = field(default_factory=dict)

    def add(self, slot: Field, mask: int) -> None:
        if mask:
            self.masks[slot] = self.masks.get(slot, 0) | mask

    def add_all(self, masks: Iterable[tuple[Field, int]]) -> None:
        for slot, mask in masks:
            self.add(slot, mask)

    def holds(self, slot: Field, mask: int) -> bool:
        """Whether all bits of `mask` were looked at already."""
        return self.masks.get(slot, 0) & mask == mask


# Prefix tries: how many leading bits of a value show that it has no prefix of a given length here (lib/classifier.c).
#
# OVS keeps path-compressed tries; the number of bits to look at depends on the set of prefixes alone, so plain sets of
# all their beginnings answer the same.


@dataclass(slots=True)
class PrefixTrie:
    """Prefixes of `width`-bit values, each at least one bit long."""

    width: int
    ends: set[tuple[int, int]] = field(default_factory=set)
    beginnings: set[tuple[int, int]] = field(default_factory=set)

    def insert(self, value: int, length: int) -> None:
        """Add the first `length` bits of `value`."""
        self.ends.add((length, value >> self.width - length))
        for shorter in range(length, 0, -1):
            beginning = (shorter, value >> self.width - shorter)
            if beginning in self.beginnings:
                break
            self.beginnings.add(beginning)

    def has_prefix(self, value: int, length: int) -> bool:
        """Whether the first `length` bits of `value` are a prefix here (trie_lookup_value: the bit in `plens`)."""
        return (length, value >> self.width - length) in self.ends

    def bits_to_look_at(self, value: int) -> int:
        """Leading bits of `value` that tell it from all prefixes that it does not have (trie_lookup_value)."""
        matched = 0
        while matched < self.width and (matched + 1, value >> self.width - matched - 1) in self.beginnings:
            matched += 1
        if matched == self.width:
            return matched
        # The other branch, if it exists, is told apart by the first bit that differs.
        other = (value >> self.width - matched - 1) ^ 1
        return matched + 1 if (matched + 1, other) in self.beginnings else matched


# One subtable of the classifier: the flows of one mask, hashed stage by stage (lib/classifier.c, insert_subtable).


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


PREFIX_FIELDS_2_X = (Field.NW_DST, Field.NW_SRC)
PREFIX_FIELDS_3_5 = (Field.NW_DST, Field.NW_SRC, Field.IPV6_DST, Field.IPV6_SRC)
"""Default `prefixes` of a Flow_Table (ovs-vswitchd.conf.db(5), default_prefix_fields in ofproto/ofproto.c), in order:
up to 3.4, and since 3.5."""


@dataclass(frozen=True, slots=True)
class Classifier:
    """One OpenFlow table; build it with `classifier_of`. `tries`: by slot, in the order in which they are asked."""

    subtables: tuple[Subtable, ...]
    tries: dict[Field, PrefixTrie]
    lengths: dict[int, dict[Field, int]]

    def lookup(self, headers: Headers, wildcards: Wildcards) -> Flow | None:
        """The flow that the packet meets, or None; adds to `wildcards` all bits that were looked at."""
        best: Flow | None = None
        search = _Search(self, headers, wildcards)
        for index, subtable in enumerate(self.subtables):
            if best is not None and subtable.max_priority <= best.priority:
                break
            found = search.find(subtable, self.lengths[index])
            if found is not None and (best is None or found.priority > best.priority):
                best = found
        return best


@dataclass(slots=True)
class _Search:
    """One look-up (find_match_wc, check_tries). `bits`: what each trie said, asked at most once."""

    classifier: Classifier
    headers: Headers
    wildcards: Wildcards
    bits: dict[Field, int] = field(default_factory=dict)

    def find(self, subtable: Subtable, prefix_lengths: dict[Field, int]) -> Flow | None:
        part = subtable.mask.part(self.headers.in_port, self.headers.values)
        for i, stage in enumerate(subtable.stages):
            if prefix_lengths and self.is_ruled_out(stage, prefix_lengths):
                self.look_at(subtable.stages[:i])
                return None
            if i < len(subtable.begun) and part[: subtable.lengths[i]] not in subtable.begun[i]:
                self.look_at(subtable.stages[: i + 1])
                return None
        flow = subtable.flows.get(part)
        if flow is None and subtable.ports_length:
            subtable.note_missed_ports(self.headers, self.wildcards)
            self.look_at(subtable.stages[:-1])
            return None
        self.wildcards.add_all(subtable.mask.masks)
        return flow

    def look_at(self, stages: Iterable[Masks]) -> None:
        for stage in stages:
            self.wildcards.add_all(stage)

    def is_ruled_out(self, stage: Masks, prefix_lengths: dict[Field, int]) -> bool:
        """Whether a prefix trie shows that no flow of this stage matches; adds the bits that show it."""
        here = {slot for slot, _ in stage}
        for slot, trie in self.classifier.tries.items():
            length = prefix_lengths.get(slot, 0)
            if not length or slot not in here or not self.headers.has(slot):
                continue
            value = self.headers.get(slot)
            if slot not in self.bits:
                self.bits[slot] = trie.bits_to_look_at(value)
            if trie.has_prefix(value, length):
                continue
            mask = slot.all_ones >> slot.width - self.bits[slot] << slot.width - self.bits[slot]
            # The trie serves the whole table: it may ask for more bits than this subtable would ever look at.
            if self.bits[slot] <= length:
                self.wildcards.add(slot, mask)
                return True
            if self.wildcards.holds(slot, mask):
                return True
        return False


def classifier_of(flows: Iterable[Flow], *, prefix_fields: Iterable[Field]) -> Classifier:
    """The flows of one table, in the order in which the switch got them.

    That order decides only between masks of equal top priority. `prefix_fields`: see PREFIX_FIELDS_2_X.
    """
    subtables = group_by_mask(flows)
    tries = {slot: PrefixTrie(slot.width) for slot in prefix_fields}
    lengths: dict[int, dict[Field, int]] = {}
    for index, subtable in enumerate(subtables):
        found = {slot: prefix_length_of(subtable.mask, slot) for slot in tries}
        lengths[index] = {slot: length for slot, length in found.items() if length}
        for slot, length in lengths[index].items():
            for flow in subtable.flows.values():
                tries[slot].insert(slot_values(flow.match)[slot], length)
    return Classifier(tuple(subtables), tries, lengths)
