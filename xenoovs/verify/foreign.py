"""What flows of others do to our megaflows: they override our blocks, or widen the masks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from xenoovs.compile.pipeline import Stage
from xenoovs.datapath.megaflow import MaskedValue, Megaflow
from xenoovs.openflow.flow import Field, Flow, Masked, Match, SetField, match_of
from xenoovs.verify.expected import BlockIndex, ExpectedBlock, ExpectedService, Place, Sources, delivers, is_untold
from xenoovs.verify.findings import OffloadFindings, Reason, Taking, Widening

# Which entries and blocks share a packet with a match: looked up under the bits that both ask for.
#
# The bits in common are few masks in any real dump, so what is built for each of them is used again and again, and
# then a match is compared with what it overlaps alone.


Fields = Mapping[str, MaskedValue]
ANY = MaskedValue(0, 0)

_MOST_KEPT = 500_000
"""Entries and blocks in all tables together, some 100 MB. A dump with more masks is compared one by one."""

_Places = dict[tuple[str | None, tuple[int, ...]], list[Place]]
_Blocks = dict[int, list[ExpectedBlock]]


class OverlapIndex:
    """Of all services; built as matches come."""

    def __init__(self, index: BlockIndex) -> None:
        self._entries = tuple(index.entries.items())
        self._places: dict[tuple[int, tuple[int, ...]], _Places] = {}
        self._blocks: dict[tuple[int, int, int], _Blocks] = {}
        self._left = _MOST_KEPT

    def places(self, in_port: str | None, fields: Fields) -> Iterator[Place]:
        """The entries by which some packet of this match comes, whatever its source."""
        if "dl_type" not in fields:
            return
        for number, (masks, entries) in enumerate(self._entries):
            found = [fields.get(name, ANY) for name, _ in masks]
            common = tuple([one.mask & mask for one, (_, mask) in zip(found, masks, strict=True)])
            places = self._places.get((number, common))
            if places is None:
                places = _under(common, entries)
                if self._keep(len(entries)):
                    self._places[number, common] = places
            seen = tuple([one.value & bits for one, bits in zip(found, common, strict=True)])
            yield from places.get((in_port, seen), ())
            if in_port is not None:
                yield from places.get((None, seen), ())

    def blocks(self, sources: Sources, source: MaskedValue) -> Iterable[ExpectedBlock]:
        """The blocks that some packet of this source meets."""
        return [block for _, mask, blocks in sources.by_mask for block in self._agreeing(mask, blocks, source)]

    def _agreeing(self, mask: int, blocks: Mapping[int, ExpectedBlock], source: MaskedValue) -> Iterable[ExpectedBlock]:
        common = mask & source.mask
        if common == mask:
            block = blocks.get(source.value & mask)
            return () if block is None else (block,)
        key = id(blocks), mask, common
        table = self._blocks.get(key)
        if table is None:
            if not self._keep(len(blocks)):
                return (block for value, block in blocks.items() if not (value ^ source.value) & common)
            table = self._blocks[key] = {}
            for value, block in blocks.items():
                table.setdefault(value & common, []).append(block)
        return table.get(source.value & common, ())

    def _keep(self, size: int) -> bool:
        self._left -= size
        return self._left >= 0


def _under(common: tuple[int, ...], entries: Mapping[tuple[str | None, tuple[int, ...]], Place]) -> _Places:
    places: _Places = {}
    for (port, values), place in entries.items():
        kept = tuple([value & bits for value, bits in zip(values, common, strict=True)])
        places.setdefault((port, kept), []).append(place)
    return places


# Megaflows that take packets of our blocks elsewhere, and the flows of others that made them so.
#
# Megaflows are disjoint, and all packets of one are treated alike (lib/classifier.c). So one that overlaps a block and
# does not lie in it holds packets of the block. Where it does not deliver them as the block does, a flow of others
# does.


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


# Masks that are wider than our flows make them, and the flows of others that made them so.
#
# A packet's megaflow gets the mask of every subtable that the classifier looked into on its way (lib/classifier.c), so
# a flow of somebody else narrows our megaflows without ever matching our packets.


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
