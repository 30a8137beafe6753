"""Masks that are wider than our flows make them, and the flows of others that made them so.

A packet's megaflow gets the mask of every subtable that the classifier looked into on its way (lib/classifier.c), so a
flow of somebody else narrows our megaflows without ever matching our packets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from xenoovs.compile.pipeline import Stage
from xenoovs.datapath.megaflow import Megaflow
from xenoovs.datapath.value import MaskedValue
from xenoovs.openflow.action import SetField
from xenoovs.openflow.field import Field
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.match import Match
from xenoovs.verify.expected import ExpectedBlock, ExpectedService
from xenoovs.verify.findings import OffloadFindings, Widening
from xenoovs.verify.join import Place

ExtraBits = tuple[tuple[str, int], ...]
"""Field name and the bits that none of our flows looks at; sorted, none 0."""

OwnMask = Callable[[Megaflow], Mapping[str, int] | None]
"""Field -> mask that a megaflow would have with our flows alone; None: not known."""

WideningKey = tuple[str, tuple[str, ...]]
"""Service and names of fields."""

_Kind = tuple[int, int, int]
"""Ids of an entry's place and of a block, and the number of the entry."""

_MOST_SIMULATED = 2_000
"""Kinds of megaflows that are simulated. Of further ones, in a dump of more masks than a datapath is fast with, what
our flows look at is taken from those of the same block."""

_CONNECTION = (
    Field.DL_SRC,
    Field.DL_DST,
    Field.NW_SRC,
    Field.NW_DST,
    Field.IPV6_SRC,
    Field.IPV6_DST,
    Field.NW_PROTO,
    Field.TP_SRC,
    Field.TP_DST,
    Field.TCP_FLAGS,
)
"""What the flows of a block that moves may look at."""

_BY_NAME = {field.ovs_name: field for field in Field}


def known_mask(entry: Match, block: ExpectedBlock) -> dict[str, int]:
    """What a megaflow of the block matches at least: its entry, its key, and the MACs that are rewritten."""
    mask: dict[str, int] = {field.ovs_name: field.all_ones for field in _CONNECTION} if block.is_moving else {}
    rewritten = (
        (action.field.ovs_name, action.field.all_ones)
        for action in block.flow.actions
        if isinstance(action, SetField) and action.field in (Field.DL_SRC, Field.DL_DST)
    )
    matched = ((masked.field.ovs_name, masked.mask) for masked in (*entry.masked, block.key))
    for name, bits in (*matched, *rewritten):
        mask[name] = mask.get(name, 0) | bits
    return mask


def extra_bits(fields: Mapping[str, MaskedValue], known: Mapping[str, int]) -> ExtraBits:
    """The bits that a megaflow matches beyond `known`."""
    extra = [(name, bits) for name, found in fields.items() if (bits := found.mask & ~known.get(name, 0))]
    return tuple(sorted(extra)) if extra else ()


def widened_by(
    extra: ExtraBits, foreign: Iterable[Flow], *, service: ExpectedService, in_port: str | None
) -> tuple[Flow, ...]:
    """The flows of others that look at any of these bits, in their order.

    First those that the service's packets surely meet: in its tables, on its port, in a subtable with a flow at or
    above the priority of ours (the classifier stops below it). Where there is none, all that look at such bits.
    """
    candidates = [flow for flow in foreign if any(_looks_at(flow.match, name, bits) for name, bits in extra)]
    floors = {Stage.CLASSIFY.table: service.priority}
    for block in service.blocks:
        table, priority = block.flow.table, block.flow.priority
        floors[table] = min(priority, floors.get(table, priority))
    tops: dict[object, int] = {}
    for flow in candidates:
        tops[_subtable(flow)] = max(flow.priority, tops.get(_subtable(flow), 0))
    met = (
        flow
        for flow in candidates
        if flow.table in floors
        and tops[_subtable(flow)] >= floors[flow.table]
        and flow.match.in_port in (None, in_port)
    )
    return tuple(met) or tuple(candidates)


def _looks_at(match: Match, name: str, bits: int) -> bool:
    field = _BY_NAME.get(name)
    masked = None if field is None else match.get(field)
    if masked is not None:
        return masked.mask & bits != 0
    return any(text.partition("=")[0] == name for text in match.foreign)


def _subtable(flow: Flow) -> object:
    """Flows that match the same bits share a subtable of the classifier."""
    match = flow.match
    masks = tuple((masked.field.ovs_name, masked.mask) for masked in match.masked)
    return flow.table, match.in_port is None, masks, tuple(text.partition("=")[0] for text in match.foreign)


class WideningCounter:
    """Gathers masks that are wider than planned, by service and fields."""

    def __init__(self, own_mask: OwnMask | None) -> None:
        self.own_mask = own_mask
        self.owns: dict[_Kind, dict[str, int]] = {}
        self.known: dict[_Kind, dict[str, int]] = {}
        self.extras: dict[tuple[int, int, int, ExtraBits], ExtraBits] = {}
        self.counts = Counter[WideningKey]()
        self.bits: dict[WideningKey, dict[str, int]] = {}
        self.in_ports: dict[str, str | None] = {}

    def key_of(
        self, megaflow: Megaflow, fields: Mapping[str, MaskedValue], place: Place, block: ExpectedBlock
    ) -> WideningKey | None:
        """What to count the megaflow under in `counts`; None: our flows look at all bits of its mask."""
        extra = self.extra_of(megaflow, fields, place, block)
        return self._merge(extra, place.service.name, place.service.entries[place.entry].in_port) if extra else None

    def extra_of(
        self, megaflow: Megaflow, fields: Mapping[str, MaskedValue], place: Place, block: ExpectedBlock
    ) -> ExtraBits:
        """The bits of the megaflow's mask at which none of our flows looks."""
        key = id(place), place.entry, id(block)
        known = self.known.get(key)
        if known is None:
            known = self.known[key] = known_mask(place.service.entries[place.entry], block)
        extra = extra_bits(fields, known)
        if not extra:
            return ()
        # Megaflows of one block and mask are alike: one of them tells for all.
        again = (*key, extra)
        if again in self.extras:
            extra = self.extras[again]
        elif key in self.owns and len(self.extras) >= _MOST_SIMULATED:
            extra = extra_bits(fields, self.owns[key])
        else:
            extra = self.extras[again] = extra_bits(fields, self._own(megaflow, key))
        return extra

    def _own(self, megaflow: Megaflow, key: _Kind) -> Mapping[str, int]:
        own = (self.own_mask(megaflow) if self.own_mask else None) or self.known[key]
        all_own = self.owns.setdefault(key, {})
        for name, bits in own.items():
            all_own[name] = all_own.get(name, 0) | bits
        return own

    def _merge(self, extra: ExtraBits, service: str, in_port: str | None) -> WideningKey:
        key = service, tuple(name for name, _ in extra)
        self.in_ports.setdefault(service, in_port)
        merged = self.bits.setdefault(key, {})
        for name, mask in extra:
            merged[name] = merged.get(name, 0) | mask
        return key

    def result(self) -> tuple[Widening, ...]:
        """In the order in which they were met."""
        return tuple(
            Widening(key[0], tuple(sorted(self.bits[key].items())), count, self.in_ports[key[0]])
            for key, count in self.counts.items()
        )


def name_foreign(findings: OffloadFindings, foreign: Iterable[Flow]) -> OffloadFindings:
    """The same findings with the flows of others that widened our megaflows."""
    flows, services = tuple(foreign), {service.name: service for service in findings.services}
    named = (
        replace(found, flows=widened_by(found.fields, flows, service=services[found.service], in_port=found.in_port))
        for found in findings.widenings
    )
    return replace(findings, widenings=tuple(named))
