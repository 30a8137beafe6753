"""Megaflows that take packets of our blocks elsewhere, and the flows of others that made them so.

Megaflows are disjoint, and all packets of one are treated alike (lib/classifier.c). So one that overlaps a block and
does not lie in it holds packets of the block. Where it does not deliver them as the block does, a flow of others does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from xenoovs.compile.pipeline import Stage
from xenoovs.datapath.megaflow import Megaflow
from xenoovs.datapath.value import MaskedValue
from xenoovs.openflow.field import Field
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.match import Masked, Match, match_of
from xenoovs.verify.delivery import delivers
from xenoovs.verify.expected import ExpectedBlock, ExpectedService
from xenoovs.verify.findings import OffloadFindings, Taking
from xenoovs.verify.ignore import Reason
from xenoovs.verify.join import BlockIndex, Place, Sources

_REASONS = (Reason.DROP, Reason.INTERNAL_PORT, Reason.OTHER)
"""Of megaflows that no block explains, those that a flow of somebody else may have made of a block's packets."""

_UNTOLD = ("recirc(", "slow_path(", "clone(", "check_pkt_len(")
"""Actions behind which the packets may yet go where they should."""

_ANY = MaskedValue(0, 0)
_BY_NAME = {field.ovs_name: field for field in Field}

_Fields = Mapping[str, MaskedValue]
_Groups = tuple[tuple[ExpectedBlock, ...], ...]
"""Blocks, grouped by where their packets go."""


@dataclass(slots=True)
class _Tally:
    service: ExpectedService
    match: Match
    megaflows: int = 0
    packets: int = 0
    groups: dict[int, tuple[ExpectedBlock, ...]] = field(default_factory=dict)

    @property
    def blocks(self) -> tuple[ExpectedBlock, ...]:
        """In the order of the program."""
        found = {id(block) for group in self.groups.values() for block in group}
        return tuple(block for block in self.service.blocks if id(block) in found)


class TakenCounter:
    """Gathers such megaflows, by service, ingress port and actions."""

    def __init__(self, index: BlockIndex) -> None:
        self.entries = tuple(index.entries.items())
        self._places: dict[tuple[int, tuple[int, ...]], dict[tuple[str | None, tuple[int, ...]], list[Place]]] = {}
        self._groups: dict[tuple[int, int, int], _Groups] = {}
        self._tallies: dict[tuple[str, str | None, tuple[str, ...]], _Tally] = {}

    def may_take(self, megaflow: Megaflow, fields: _Fields, reason: Reason) -> bool:
        """Whether a megaflow of no block, or one that differs in its source alone, can hold packets of a block."""
        if reason not in _REASONS or megaflow.recirc_id:
            return False
        if not any(True for _ in self.overlapping(megaflow.in_port, fields)):
            return False
        # A later fragment shows no port, so that it is of no service with ports; of others it is left out as well.
        return not _is_untold(megaflow.actions) and not any("frag=later" in key.inner for key in megaflow.keys)

    def add(self, megaflow: Megaflow, fields: _Fields) -> bool:
        """Count a megaflow that may take packets; False: it takes none, so nothing was counted."""
        is_taken = False
        for place in self.overlapping(megaflow.in_port, fields):
            groups = [
                group for group in self._blocks(place.sources, fields) if not delivers(megaflow, fields, group[0])
            ]
            if groups:
                self._count(megaflow, fields, place, groups)
                is_taken = True
        return is_taken

    def overlapping(self, in_port: str | None, fields: _Fields) -> Iterator[Place]:
        """The entries by which some packet of this match comes, whatever its source."""
        if "dl_type" not in fields:
            return
        for number, (masks, entries) in enumerate(self.entries):
            found = [fields.get(name, _ANY) for name, _ in masks]
            common = tuple(one.mask & mask for one, (_, mask) in zip(found, masks, strict=True))
            places = self._places.get((number, common))
            if places is None:
                places = self._places[number, common] = {}
                for (port, values), place in entries.items():
                    kept = tuple(value & bits for value, bits in zip(values, common, strict=True))
                    places.setdefault((port, kept), []).append(place)
            seen = tuple(one.value & bits for one, bits in zip(found, common, strict=True))
            yield from places.get((in_port, seen), ())
            if in_port is not None:
                yield from places.get((None, seen), ())

    def _blocks(self, sources: Sources, fields: _Fields) -> _Groups:
        """The blocks that share a packet with this match; megaflows that agree on all their bits share the answer."""
        if not sources.by_mask:
            return ()
        name = sources.by_mask[0][0]
        looked_at = 0
        for _, mask, _ in sources.by_mask:
            looked_at |= mask
        source = fields.get(name, _ANY)
        source = MaskedValue(source.value & looked_at, source.mask & looked_at)
        key = id(sources), source.value, source.mask
        groups = self._groups.get(key)
        if groups is None:
            groups = self._groups[key] = _grouped(_overlapped(sources, name, source, looked_at))
        return groups

    def _count(
        self, megaflow: Megaflow, fields: _Fields, place: Place, groups: Iterable[tuple[ExpectedBlock, ...]]
    ) -> None:
        key = place.service.name, megaflow.in_port, megaflow.actions
        tally = self._tallies.get(key)
        if tally is None:
            tally = self._tallies[key] = _Tally(place.service, _known_match(megaflow.in_port, fields))
        tally.megaflows += 1
        tally.packets += megaflow.packets
        tally.groups.update((id(group), group) for group in groups)

    def result(self) -> tuple[Taking, ...]:
        """In the order in which they were met."""
        return tuple(
            Taking(
                service,
                tally.blocks,
                megaflows=tally.megaflows,
                packets=tally.packets,
                match=tally.match,
                actions=",".join(actions),
            )
            for (service, _, actions), tally in self._tallies.items()
        )


def _is_untold(actions: tuple[str, ...]) -> bool:
    return any(text in action for action in actions for text in _UNTOLD)


def _overlapped(sources: Sources, name: str, source: MaskedValue, looked_at: int) -> Iterator[ExpectedBlock]:
    for _, mask, blocks in sources.by_mask:
        if source.mask & mask == mask:
            agreeing = [found] if (found := blocks.get(source.value & mask)) is not None else []
        else:
            agreeing = [b for value, b in blocks.items() if not (value ^ source.value) & mask & source.mask]
        for block in agreeing:
            shared = source.value | block.source.value & ~source.mask
            # Rules of strategy lpm overlap: the packets of the longer one inside are not of this one.
            if sources.find({name: MaskedValue(shared, looked_at)}) is block:
                yield block


def _grouped(blocks: Iterable[ExpectedBlock]) -> _Groups:
    groups: dict[object, list[ExpectedBlock]] = {}
    for block in blocks:
        groups.setdefault((block.dl_dst, block.egress, block.others), []).append(block)
    return tuple(map(tuple, groups.values()))


def _known_match(in_port: str | None, fields: _Fields) -> Match:
    known = (Masked(_BY_NAME[name], found.value, found.mask) for name, found in fields.items() if name in _BY_NAME)
    return match_of(known, in_port=in_port)


def name_takers(findings: OffloadFindings, foreign: Iterable[Flow]) -> OffloadFindings:
    """The same findings with the flows of others that took the packets."""
    flows, services = tuple(foreign), {service.name: service for service in findings.services}
    named = (
        replace(found, flows=taken_by(found.match, flows, service=services[found.service])) for found in findings.taken
    )
    return replace(findings, taken=tuple(named))


def taken_by(match: Match, foreign: Sequence[Flow], *, service: ExpectedService) -> tuple[Flow, ...]:
    """Of the flows of others that every packet of the megaflow matches, at or above ours, the highest one.

    In the first table that has any; several where some ask for what xenoovs does not know.
    """
    floors = {Stage.CLASSIFY.table: service.priority}
    for block in service.blocks:
        table, priority = block.flow.table, block.flow.priority
        floors[table] = min(priority, floors.get(table, priority))
    for table in sorted(floors):
        met = [f for f in foreign if f.table == table and f.priority >= floors[table] and _covers(f.match, match)]
        sure = max((flow.priority for flow in met if not flow.match.foreign), default=0)
        if met:
            return tuple(flow for flow in met if flow.priority >= sure)
    return ()


def _covers(wide: Match, narrow: Match) -> bool:
    if wide.in_port not in (None, narrow.in_port):
        return False
    for asked in wide.masked:
        found = narrow.get(asked.field)
        if found is None or found.mask & asked.mask != asked.mask or found.value & asked.mask != asked.value:
            return False
    return True
