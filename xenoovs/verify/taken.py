"""Megaflows that take packets of our blocks elsewhere, and the flows of others that made them so.

Megaflows are disjoint, and all packets of one are treated alike (lib/classifier.c). So one that overlaps a block and
does not lie in it holds packets of the block. Where it does not deliver them as the block does, a flow of others does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from xenoovs.compile.pipeline import Stage
from xenoovs.datapath.megaflow import Megaflow
from xenoovs.datapath.value import MaskedValue
from xenoovs.openflow.field import Field
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.match import Masked, Match, match_of
from xenoovs.verify.delivery import delivers, is_untold
from xenoovs.verify.expected import ExpectedBlock, ExpectedService
from xenoovs.verify.findings import OffloadFindings, Taking
from xenoovs.verify.ignore import Reason
from xenoovs.verify.join import BlockIndex, Place, Sources
from xenoovs.verify.overlap import ANY, Fields, OverlapIndex

_REASONS = (Reason.DROP, Reason.INTERNAL_PORT, Reason.OTHER)
"""Of megaflows that no block explains, those that a flow of somebody else may have made of a block's packets."""

OTHER_WAYS = "(other actions)"
"""Stands for the actions of megaflows that take packets in yet another way than the first ones."""

_LATER = "frag=later"
_MOST_WAYS = 500
_MOST_GROUPS = 50_000

_BY_NAME = {field.ovs_name: field for field in Field}

_Groups = tuple[tuple[ExpectedBlock, ...], ...]
"""Blocks, grouped by where their packets go."""


@dataclass(slots=True)
class _Tally:
    service: ExpectedService
    match: Match
    megaflows: int = 0
    packets: int = 0
    lost: dict[int, ExpectedBlock] = field(default_factory=dict)
    added: set[int] = field(default_factory=set)

    def add(self, packets: int, groups: Iterable[tuple[ExpectedBlock, ...]], *, lasting: object) -> None:
        """`lasting`: whether the groups live as long as this, so that each needs to be added only once."""
        self.megaflows += 1
        self.packets += packets
        for group in groups:
            if id(group) in self.added:
                continue
            self.lost.update((id(block), block) for block in group)
            if lasting:
                self.added.add(id(group))

    @property
    def blocks(self) -> tuple[ExpectedBlock, ...]:
        """In the order of the program."""
        return tuple(block for block in self.service.blocks if id(block) in self.lost)


class TakenCounter:
    """Gathers such megaflows, by service, ingress port and actions. What it keeps is bounded, whatever the dump."""

    def __init__(self, index: BlockIndex) -> None:
        self.index = OverlapIndex(index)
        self._groups: dict[tuple[int, int, int], _Groups] = {}
        self._tallies: dict[tuple[str, str | None, tuple[str, ...]], _Tally] = {}

    def places(self, megaflow: Megaflow, fields: Fields, reason: Reason) -> tuple[Place, ...]:
        """By which packets of a block may come that this megaflow of no block holds, whatever its source."""
        if reason not in _REASONS or megaflow.recirc_id:
            return ()
        places = tuple(self.index.places(megaflow.in_port, fields))
        # A later fragment shows no port, so that it is of no service with ports; of others it is left out as well.
        # Behind some actions the packets may yet go where they should.
        is_open = not places or is_untold(megaflow.actions) or any(_LATER in key.inner for key in megaflow.keys)
        return () if is_open else places

    def add(self, megaflow: Megaflow, fields: Fields, places: Iterable[Place], *, packets: int) -> bool:
        """Count a megaflow of these fields that may take packets; False: it takes none, so nothing was counted."""
        is_taken = False
        for place in places:
            found, lasting = self._blocks(place.sources, fields)
            groups = [group for group in found if not delivers(megaflow, fields, group[0])]
            if groups:
                self._tally(megaflow, fields, place.service).add(packets, groups, lasting=lasting)
                is_taken = True
        return is_taken

    def _blocks(self, sources: Sources, fields: Fields) -> tuple[_Groups, bool]:
        """The blocks that share a packet with this match, and whether they are kept for others that do."""
        if not sources.by_mask:
            return (), True
        name = sources.by_mask[0][0]
        looked_at = 0
        for _, mask, _ in sources.by_mask:
            looked_at |= mask
        source = fields.get(name, ANY)
        source = MaskedValue(source.value & looked_at, source.mask & looked_at)
        key = id(sources), source.value, source.mask
        groups = self._groups.get(key)
        if groups is not None:
            return groups, True
        groups = _grouped(self.index.blocks(sources, source))
        if len(self._groups) >= _MOST_GROUPS:
            return groups, False
        self._groups[key] = groups
        return groups, True

    def _tally(self, megaflow: Megaflow, fields: Fields, service: ExpectedService) -> _Tally:
        key = service.name, megaflow.in_port, megaflow.actions
        if key not in self._tallies and len(self._tallies) >= _MOST_WAYS:
            # More ways than anybody reads: what is dropped stays apart, as that alone is no failure.
            key = service.name, None, megaflow.actions if megaflow.actions == ("drop",) else (OTHER_WAYS,)
        tally = self._tallies.get(key)
        if tally is None:
            tally = self._tallies[key] = _Tally(service, _known_match(megaflow.in_port, fields))
        return tally

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


def _grouped(blocks: Iterable[ExpectedBlock]) -> _Groups:
    groups: dict[object, list[ExpectedBlock]] = {}
    for block in blocks:
        groups.setdefault(block.hops, []).append(block)
    return tuple(map(tuple, groups.values()))


def _known_match(in_port: str | None, fields: Fields) -> Match:
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
