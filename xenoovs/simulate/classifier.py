"""The tuple-space classifier of Open vSwitch: which flow a packet meets, and which of its bits showed it.

Written after lib/classifier.c and lib/classifier.h (Open vSwitch 3.1.0; the same in 4.0), "Staged lookup", "Prefix
tracking" and "Performance": subtables are visited by falling top priority until none can win; each visited one, hit or
miss, adds its mask up to the stage where it failed; prefix tries spare bits of addresses, port tries bits of ports.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from xenoovs.openflow.field import Field
from xenoovs.openflow.flow import Flow
from xenoovs.simulate.headers import Headers
from xenoovs.simulate.subtable import Masks, Subtable, group_by_mask, prefix_length_of, slot_values
from xenoovs.simulate.trie import PrefixTrie
from xenoovs.simulate.wildcards import Wildcards

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
