"""Simulates the tuple-space classifier of Open vSwitch: which flow a packet meets, and which bits it un-wildcards.

Written after lib/classifier.c and lib/classifier.h (Open vSwitch 3.1.0 to 4.0, with the fix of CVE-2023-5366, which
packages of 2.15.0 have too), "Staged lookup", "Prefix tracking" and "Performance": subtables are visited by descending
highest priority until none can win. Each visited one, hit or miss, adds its mask up to the stage where it failed.
Prefix tries save bits of addresses, port tries of ports.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate, chain

from xenoovs.compile.offloadable.table import IPV6_PREFIXES_SINCE, parse_version
from xenoovs.dataclass import dataclass, field
from xenoovs.judge.simulate.walk import ICMP_PROTOCOLS, Headers, Segment, segment_of, slot_of
from xenoovs.openflow.flow import Field, Flow, Masked, Match


class Wildcards(dict[Field, int]):
    """The mask of a megaflow: slot -> un-wildcarded bits (`struct flow_wildcards`, include/openvswitch/flow.h)."""

    def add(self, slot: Field, mask: int) -> None:
        """Un-wildcard bits of a slot."""
        if mask:
            self[slot] = self.get(slot, 0) | mask

    def add_all(self, masks: Iterable[tuple[Field, int]]) -> None:
        """Un-wildcard bits of several slots."""
        for slot, mask in masks:
            self.add(slot, mask)


@dataclass(slots=True)
class PrefixTrie:
    """Prefixes of `width`-bit values, each at least one bit long.

    OVS has path-compressed tries (lib/classifier.c). How many bits a lookup needs depends only on the set of prefixes,
    so sets of all their beginnings give the same result.
    """

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
        """Return whether the first `length` bits of `value` are a prefix (trie_lookup_value: the bit in `plens`)."""
        return (length, value >> self.width - length) in self.ends

    def bits_needed(self, value: int) -> int:
        """Return how many leading bits distinguish `value` from prefixes that it does not have (trie_lookup_value)."""
        matched = 0
        while matched < self.width and (matched + 1, value >> self.width - matched - 1) in self.beginnings:
            matched += 1
        if matched == self.width:
            return matched
        # The first different bit distinguishes it from the other branch, if that exists.
        other = (value >> self.width - matched - 1) ^ 1
        return matched + 1 if (matched + 1, other) in self.beginnings else matched


Masks = tuple[tuple[Field, int], ...]
Part = tuple[int | str | None, ...]
"""Masked values of the first stages of a subtable, or of all, in the order of its mask."""

_PORTS = (Field.TP_SRC, Field.TP_DST)
_PORTS_BITS = 32


@dataclass(frozen=True, slots=True)
class Mask:
    """The mask of a flow. `in_port`: whether it matches the ingress port. `masks`: by slot, ordered by segment."""

    in_port: bool
    masks: Masks

    def ports(self) -> int:
        """Return the mask of the L4 ports as one number: source above destination."""
        masks = dict(self.masks)
        return masks.get(Field.TP_SRC, 0) << 16 | masks.get(Field.TP_DST, 0)

    def part(self, in_port: str | None, values: Mapping[Field, int]) -> Part:
        masked = [values.get(slot, 0) & mask for slot, mask in self.masks]
        return (in_port, *masked) if self.in_port else tuple(masked)


@dataclass(slots=True)
class Subtable:
    """The flows of one mask, hashed stage by stage (insert_subtable); build it with `subtable_of`. `stages`: the mask
    by segment; empty segments are left out. `lengths`: number of values in the stages up to each one. `begun`: for each
    stage but the last, the values of flows up to it. `ports_length`: number of leading bits of the L4 ports in the
    mask; 0 if none. `prefixes`: length of the mask of each slot with a prefix trie, if it is a prefix."""

    mask: Mask
    stages: tuple[Masks, ...]
    lengths: tuple[int, ...]
    begun: tuple[set[Part], ...]
    ports_length: int
    ports: PrefixTrie = field(default_factory=lambda: PrefixTrie(_PORTS_BITS))
    flows: dict[Part, Flow] = field(default_factory=dict)
    prefixes: dict[Field, int] = field(default_factory=dict)
    max_priority: int = -1

    def insert(self, flow: Flow) -> None:
        """Add a flow of this mask; of two equal matches the one with higher priority stays."""
        values = slot_values(flow.match)
        part = self.mask.part(flow.match.in_port, values)
        for begun, length in zip(self.begun, self.lengths, strict=False):
            begun.add(part[:length])
        if part not in self.flows or self.flows[part].priority < flow.priority:
            self.flows[part] = flow
        if self.ports_length:
            self.ports.insert(_ports(values), self.ports_length)
        self.max_priority = max(self.max_priority, flow.priority)

    def add_missed_ports(self, headers: Headers, wildcards: Wildcards) -> None:
        """Un-wildcard only the bits of the ports that distinguish the packet from all flows here."""
        bits = self.ports.bits_needed(_ports(headers.values) & self.mask.ports())
        mask = self.mask.ports() >> _PORTS_BITS - bits << _PORTS_BITS - bits
        wildcards.add(Field.TP_SRC, mask >> 16)
        wildcards.add(Field.TP_DST, mask & 0xFFFF)


def subtable_of(mask: Mask) -> Subtable:
    by_stage = {stage: tuple(m for m in mask.masks if segment_of(m[0]) is stage) for stage in Segment}
    # The ingress port belongs to the first segment, even if no other field does.
    parts = [masks for stage, masks in by_stage.items() if masks or (mask.in_port and stage is Segment.METADATA)]
    stages = tuple(parts) or ((),)
    lengths = tuple(int(mask.in_port) + size for size in accumulate(map(len, stages)))
    ports = mask.ports()
    ports_length = _PORTS_BITS + 1 - (ports & -ports).bit_length() if ports else 0
    return Subtable(mask, stages, lengths, tuple(set[Part]() for _ in stages[:-1]), ports_length)


def mask_of(match: Match) -> Mask:
    """Return the mask of a flow, which determines its subtable."""
    protocol = match.get(Field.NW_PROTO)
    is_icmp = protocol is not None and protocol.value in ICMP_PROTOCOLS
    masks = (_slot_mask(c, is_icmp=is_icmp) for c in match.masked)
    ordered = sorted(masks, key=lambda m: (segment_of(m[0]), m[0].rank))
    return Mask(match.in_port is not None, tuple(ordered))


def slot_values(match: Match) -> dict[Field, int]:
    return {slot_of(condition.field): condition.value for condition in match.masked}


def _slot_mask(condition: Masked, *, is_icmp: bool) -> tuple[Field, int]:
    slot = slot_of(condition.field)
    if is_icmp and condition.is_exact and slot in _PORTS:
        # Type and code have 8 bits, but an exact match masks all 16 bits of the port that stores them (lib/match.c).
        return slot, slot.all_ones
    return slot, condition.mask & slot.all_ones


def _ports(values: Mapping[Field, int]) -> int:
    return values.get(Field.TP_SRC, 0) << 16 | values.get(Field.TP_DST, 0)


def prefix_length_of(mask: Mask, slot: Field) -> int:
    """Return the length of a prefix mask on a slot; 0 for none or a mask with holes (minimask_get_prefix_len)."""
    bits = dict(mask.masks).get(slot, 0)
    inverse = bits ^ slot.all_ones
    return slot.width - inverse.bit_length() if inverse & (inverse + 1) == 0 else 0


def group_by_mask(flows: Iterable[Flow]) -> list[Subtable]:
    """Return the subtables in the order of visits: by descending highest priority, older ones first."""
    subtables: dict[Mask, Subtable] = {}
    for flow in flows:
        mask = mask_of(flow.match)
        if mask not in subtables:
            subtables[mask] = subtable_of(mask)
        subtables[mask].insert(flow)
    return sorted(subtables.values(), key=lambda subtable: -subtable.max_priority)


PREFIX_FIELDS = (Field.NW_DST, Field.NW_SRC)
PREFIX_FIELDS_3_5 = (*PREFIX_FIELDS, Field.IPV6_DST, Field.IPV6_SRC)
"""Default `prefixes` of a Flow_Table in order (ovs-vswitchd.conf.db(5)), before and since IPV6_PREFIXES_SINCE."""


def prefix_fields_of(version: str | None) -> tuple[Field, ...]:
    """Return the fields for a version such as `3.5.0`; those up to 3.4 if it is None or no version."""
    try:
        return PREFIX_FIELDS_3_5 if parse_version(version or "") >= IPV6_PREFIXES_SINCE else PREFIX_FIELDS
    except ValueError:
        return PREFIX_FIELDS


@dataclass(frozen=True, slots=True)
class Classifier:
    """One OpenFlow table; build it with `classifier_of`. `tries`: by slot, in the order of lookups."""

    subtables: tuple[Subtable, ...]
    tries: dict[Field, PrefixTrie]

    def lookup(self, headers: Headers, wildcards: Wildcards) -> Flow | None:
        """Return the flow that the packet meets, or None (find_match_wc). Add all un-wildcarded bits to `wildcards`."""
        best: Flow | None = None
        for subtable in self.subtables:
            if best is not None and subtable.max_priority <= best.priority:
                break
            found = self._find(subtable, headers, wildcards)
            if found is not None and (best is None or found.priority > best.priority):
                best = found
        return best

    def _find(self, subtable: Subtable, headers: Headers, wildcards: Wildcards) -> Flow | None:
        part = subtable.mask.part(headers.in_port, headers.values)
        for i, stage in enumerate(subtable.stages):
            if subtable.prefixes and self._is_ruled_out(subtable, stage, headers, wildcards):
                wildcards.add_all(chain(*subtable.stages[:i]))
                return None
            if i < len(subtable.begun) and part[: subtable.lengths[i]] not in subtable.begun[i]:
                wildcards.add_all(chain(*subtable.stages[: i + 1]))
                return None
        flow = subtable.flows.get(part)
        if flow is None and subtable.ports_length:
            subtable.add_missed_ports(headers, wildcards)
            wildcards.add_all(chain(*subtable.stages[:-1]))
            wildcards.add_all(each for each in subtable.stages[-1] if each[0] not in _PORTS)
            return None
        wildcards.add_all(subtable.mask.masks)
        return flow

    def _is_ruled_out(self, subtable: Subtable, stage: Masks, headers: Headers, wildcards: Wildcards) -> bool:
        """Return whether a prefix trie shows that no flow of this stage matches; un-wildcard the bits that show it
        (check_tries)."""
        here = {slot for slot, _ in stage}
        for slot, trie in self.tries.items():
            length = subtable.prefixes.get(slot, 0)
            if not length or slot not in here or not headers.has(slot):
                continue
            value = headers.get(slot)
            if trie.has_prefix(value, length):
                continue
            bits = trie.bits_needed(value)
            mask = slot.all_ones >> slot.width - bits << slot.width - bits
            # The trie covers the whole table, so it may need more bits than this subtable matches.
            if bits <= length:
                wildcards.add(slot, mask)
                return True
            if wildcards.get(slot, 0) & mask == mask:
                return True
        return False


def classifier_of(flows: Iterable[Flow], *, prefix_fields: Iterable[Field]) -> Classifier:
    """Build a table's classifier. `flows`: in the order of installation, which decides between equal top priorities."""
    subtables = group_by_mask(flows)
    tries = {slot: PrefixTrie(slot.width) for slot in prefix_fields}
    for subtable in subtables:
        subtable.prefixes = {slot: length for slot in tries if (length := prefix_length_of(subtable.mask, slot))}
        for slot, length in subtable.prefixes.items():
            for flow in subtable.flows.values():
                tries[slot].insert(slot_values(flow.match)[slot], length)
    return Classifier(tuple(subtables), tries)
