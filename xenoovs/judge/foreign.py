"""Effects of other programs' flows and rules on our packets: overrides, un-wildcarded bits, preempting rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set

from xenoovs.compile.pipeline import Stage
from xenoovs.dataclass import dataclass, field, replace
from xenoovs.datapath.megaflow import MaskedValue, Megaflow, match_of
from xenoovs.datapath.tc import ForeignRule, TcFilter
from xenoovs.judge.expected import (
    ANY,
    FIELD_BY_NAME,
    BlockIndex,
    BlocksByMask,
    ExpectedBlock,
    ExpectedService,
    Fields,
    OutsideKind,
    OverlapIndex,
    ServiceEntry,
    delivers,
    index_blocks,
    is_undetermined,
    match_of_fields,
    outside_kind_of,
)
from xenoovs.judge.findings import OffloadFindings, OverriddenBlocks, PreemptingRule, Unwildcarding
from xenoovs.openflow.flow import TAGGED, Field, Flow, Match, SetField, alternatives

# Overrides. Megaflows are disjoint, and the datapath treats all packets of one alike (lib/classifier.c). So a megaflow
# that overlaps a block without lying in it holds packets of the block. If it does not deliver them as the block does,
# a foreign flow overrides the block.


_KINDS = (OutsideKind.DROP, OutsideKind.INTERNAL_PORT, OutsideKind.OTHER)
"""Kinds of megaflows outside all blocks that a foreign flow may have made from packets of a block."""

OTHER_ACTIONS = "(other actions)"
"""Stands for the actions of megaflows beyond the first _MAX_OVERRIDES different ones."""

_LATER_FRAGMENT = "frag=later"
_MAX_OVERRIDES = 500
_MAX_GROUPS = 50_000

_Groups = tuple[tuple[ExpectedBlock, ...], ...]
"""Blocks, grouped by their next hops."""


@dataclass(slots=True)
class _OverrideCounters:
    service: ExpectedService
    match: Match
    megaflows: int = 0
    packets: int = 0
    blocks_by_id: dict[int, ExpectedBlock] = field(default_factory=dict)
    group_ids: set[int] = field(default_factory=set)

    def add(self, packets: int, groups: Iterable[tuple[ExpectedBlock, ...]], *, are_cached: bool) -> None:
        """Count a megaflow. `are_cached`: the groups exist as long as this object, so their ids stay unique."""
        self.megaflows += 1
        self.packets += packets
        for group in groups:
            if id(group) in self.group_ids:
                continue
            self.blocks_by_id.update((id(block), block) for block in group)
            if are_cached:
                self.group_ids.add(id(group))

    @property
    def blocks(self) -> tuple[ExpectedBlock, ...]:
        """The overridden blocks in the order of the program."""
        return tuple(block for block in self.service.blocks if id(block) in self.blocks_by_id)


class OverrideCounter:
    """Counts overrides by service, ingress port and actions. Its memory is bounded for any dump."""

    def __init__(self, index: BlockIndex) -> None:
        self.index = OverlapIndex(index)
        self._groups: dict[tuple[int, int, int], _Groups] = {}
        self._counters: dict[tuple[str, str | None, tuple[str, ...]], _OverrideCounters] = {}

    def entries(self, megaflow: Megaflow, fields: Fields, kind: OutsideKind) -> tuple[ServiceEntry, ...]:
        """Return the entries whose packets this megaflow outside all blocks may hold, whatever their source."""
        if kind not in _KINDS or megaflow.recirc_id:
            return ()
        entries = tuple(self.index.entries(megaflow.in_port, fields))
        # Later fragments show no ports, so they belong to no service with ports; they are ignored for other services
        # too. Behind some actions the packets may still be delivered correctly.
        is_open = is_undetermined(megaflow.actions) or any(_LATER_FRAGMENT in key.inner for key in megaflow.keys)
        return () if is_open else entries

    def add(self, megaflow: Megaflow, fields: Fields, entries: Iterable[ServiceEntry]) -> bool:
        """Count a megaflow with these fields. Return False, and count nothing, if it overrides no block."""
        is_override = False
        for entry, groups, are_cached in self._overridden(megaflow, fields, entries):
            self._counters_of(megaflow, fields, entry.service).add(megaflow.packets, groups, are_cached=are_cached)
            is_override = True
        return is_override

    def overridden(self, megaflow: Megaflow, internal_ports: Set[str]) -> tuple[tuple[ServiceEntry, int], ...]:
        """Return the entries whose blocks a megaflow overrides, with the number of blocks. Counts nothing."""
        fields = match_of(megaflow)
        entries = self.entries(megaflow, fields, outside_kind_of(megaflow, internal_ports, fields))
        found = self._overridden(megaflow, fields, entries)
        return tuple((entry, sum(map(len, groups))) for entry, groups, _ in found)

    def _overridden(
        self, megaflow: Megaflow, fields: Fields, entries: Iterable[ServiceEntry]
    ) -> Iterator[tuple[ServiceEntry, list[tuple[ExpectedBlock, ...]], bool]]:
        for entry in entries:
            found, are_cached = self._overlapping(entry.blocks, fields)
            groups = [group for group in found if not delivers(megaflow, fields, group[0])]
            if groups:
                yield entry, groups, are_cached

    def _overlapping(self, blocks: BlocksByMask, fields: Fields) -> tuple[_Groups, bool]:
        """Return the blocks that share a packet with this match, and whether the result is cached."""
        if not blocks:
            return (), True
        name = blocks[0][0]
        key_bits = 0
        for _, mask, _ in blocks:
            key_bits |= mask
        source = fields.get(name, ANY)
        source = MaskedValue(source.value & key_bits, source.mask & key_bits)
        key = id(blocks), source.value, source.mask
        groups = self._groups.get(key)
        if groups is not None:
            return groups, True
        groups = _by_next_hops(self.index.blocks(blocks, source))
        if len(self._groups) >= _MAX_GROUPS:
            return groups, False
        self._groups[key] = groups
        return groups, True

    def _counters_of(self, megaflow: Megaflow, fields: Fields, service: ExpectedService) -> _OverrideCounters:
        key = service.name, megaflow.in_port, megaflow.actions
        if key not in self._counters and len(self._counters) >= _MAX_OVERRIDES:
            # Drops stay separate, as only they are no failure.
            key = service.name, None, megaflow.actions if megaflow.actions == ("drop",) else (OTHER_ACTIONS,)
        counters = self._counters.get(key)
        if counters is None:
            match = match_of_fields(megaflow.in_port, fields)
            counters = self._counters[key] = _OverrideCounters(service, match)
        return counters

    def result(self) -> tuple[OverriddenBlocks, ...]:
        """Return all overrides in the order of the dump."""
        return tuple(
            OverriddenBlocks(
                service,
                counters.blocks,
                megaflows=counters.megaflows,
                packets=counters.packets,
                match=counters.match,
                actions=",".join(actions),
            )
            for (service, _, actions), counters in self._counters.items()
        )


def _by_next_hops(blocks: Iterable[ExpectedBlock]) -> _Groups:
    groups: dict[object, list[ExpectedBlock]] = {}
    for block in blocks:
        groups.setdefault(block.hops, []).append(block)
    return tuple(map(tuple, groups.values()))


# Un-wildcarded bits. A packet's megaflow gets the mask of every subtable that the classifier visited
# (lib/classifier.c), so a foreign flow narrows our megaflows without ever matching our packets.


ExtraBits = tuple[tuple[str, int], ...]
"""Field name and the bits that none of our flows matches; sorted, without fields that have none."""

OwnMask = Callable[[Megaflow], Mapping[str, int] | None]
"""Field -> mask that a megaflow would have with our flows alone; None if unknown."""

UnwildcardKey = tuple[str, tuple[str, ...]]
"""Service and names of fields."""

_Kind = tuple[int, int, int]
"""Ids of a service entry and of a block, and the number of the entry."""

_MAX_SIMULATED = 2_000
"""Kinds of megaflows that are simulated. Further ones use the masks of simulated megaflows of the same block."""

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
"""Fields that the flows of a moving block may match."""


def minimum_mask(entry: Match, block: ExpectedBlock) -> dict[str, int]:
    """Return the smallest mask of a megaflow of the block: its entry, its key, and rewritten MACs and tags."""
    actions = alternatives(block.flow.actions)[0]
    mask: dict[str, int] = {field.ovs_name: field.all_ones for field in _CONNECTION} if block.is_moving else {}
    mask[Field.VLAN.ovs_name] = TAGGED
    rewritten = (
        (action.field.ovs_name, action.field.all_ones)
        for action in actions
        if isinstance(action, SetField) and action.field in (Field.DL_SRC, Field.DL_DST, Field.VLAN)
    )
    matched = ((masked.field.ovs_name, masked.mask) for masked in (*entry.masked, block.key))
    copied = (
        (Field.NW_TOS.ovs_name, ECN_BITS)
        for each in actions
        if isinstance(each, SetField) and each.field is Field.TUN_ID
    )
    for name, bits in (*matched, *rewritten, *copied):
        mask[name] = mask.get(name, 0) | bits
    return mask


ECN_BITS = 3
"""Bits of the type of service. Open vSwitch copies them to the outer header, and matches what it copies (tnl_wc_init()
of ofproto/tunnel.c)."""


def extra_bits(fields: Fields, own_mask: Mapping[str, int]) -> ExtraBits:
    """Return the bits that a megaflow matches beyond `own_mask`."""
    return tuple(
        sorted([(name, bits) for name, found in fields.items() if (bits := found.mask & ~own_mask.get(name, 0))])
    )


class UnwildcardCounter:
    """Counts megaflows with un-wildcarded bits, by service and fields."""

    def __init__(self, own_mask: OwnMask | None) -> None:
        self.own_mask = own_mask
        self.simulated: dict[_Kind, dict[str, int]] = {}
        self.minimum: dict[_Kind, dict[str, int]] = {}
        self.extras: dict[tuple[int, int, int, ExtraBits], ExtraBits] = {}
        self.counts = Counter[UnwildcardKey]()
        self.bits: dict[UnwildcardKey, dict[str, int]] = {}
        self.in_ports: dict[str, str | None] = {}

    def add(self, megaflow: Megaflow, fields: Fields, entry: ServiceEntry, block: ExpectedBlock) -> bool:
        """Count a megaflow. Return False, and count nothing, if our flows match all bits of its mask."""
        extra = self.extra_of(megaflow, fields, entry, block)
        if extra:
            self._count(extra, entry.service.name, entry.match.in_port)
        return bool(extra)

    def extra_of(self, megaflow: Megaflow, fields: Fields, entry: ServiceEntry, block: ExpectedBlock) -> ExtraBits:
        """Return the bits of the megaflow's mask that none of our flows matches."""
        kind = id(entry), entry.number, id(block)
        minimum = self.minimum.get(kind)
        if minimum is None:
            minimum = self.minimum[kind] = minimum_mask(entry.match, block)
        extra = extra_bits(fields, minimum)
        if not extra:
            return ()
        # Megaflows of one block with the same mask have the same extra bits.
        key = (*kind, extra)
        if key in self.extras:
            extra = self.extras[key]
        elif kind in self.simulated and len(self.extras) >= _MAX_SIMULATED:
            extra = extra_bits(fields, self.simulated[kind])
        else:
            extra = self.extras[key] = extra_bits(fields, self._simulate(megaflow, kind))
        return extra

    def _simulate(self, megaflow: Megaflow, kind: _Kind) -> Mapping[str, int]:
        own = (self.own_mask(megaflow) if self.own_mask else None) or self.minimum[kind]
        merged = self.simulated.setdefault(kind, {})
        for name, bits in own.items():
            merged[name] = merged.get(name, 0) | bits
        return own

    def _count(self, extra: ExtraBits, service: str, in_port: str | None) -> None:
        key = service, tuple(name for name, _ in extra)
        self.counts[key] += 1
        self.in_ports.setdefault(service, in_port)
        merged = self.bits.setdefault(key, {})
        for name, mask in extra:
            merged[name] = merged.get(name, 0) | mask

    def result(self) -> tuple[Unwildcarding, ...]:
        """Return all findings in the order of the dump."""
        return tuple(
            Unwildcarding(key[0], tuple(sorted(self.bits[key].items())), count, self.in_ports[key[0]])
            for key, count in self.counts.items()
        )


# Attribution: the foreign flows behind overrides and un-wildcarded bits.


def attribute(findings: OffloadFindings, foreign: Iterable[Flow]) -> OffloadFindings:
    """Return the findings with the foreign flows that override blocks or un-wildcard bits."""
    flows, services = tuple(foreign), {service.name: service for service in findings.services}
    overrides = (
        replace(found, flows=overriding_flows(found.match, flows, service=services[found.service]))
        for found in findings.overrides
    )
    unwildcardings = (
        replace(
            found,
            flows=unwildcarding_flows(found.fields, flows, service=services[found.service], in_port=found.in_port),
        )
        for found in findings.unwildcardings
    )
    return replace(findings, overrides=tuple(overrides), unwildcardings=tuple(unwildcardings))


def overriding_flows(match: Match, foreign: Sequence[Flow], *, service: ExpectedService) -> tuple[Flow, ...]:
    """Return the highest foreign flow, at or above our priorities, that every packet of the megaflow matches.

    The first table with such a flow decides. Several are returned if some have conditions that xenoovs does not know.
    """
    lowest = _lowest_priorities(service)
    for table in sorted(lowest):
        met = [f for f in foreign if f.table == table and f.priority >= lowest[table] and _covers(f.match, match)]
        certain = max((flow.priority for flow in met if not flow.match.foreign), default=0)
        if met:
            return tuple(flow for flow in met if flow.priority >= certain)
    return ()


def unwildcarding_flows(
    extra: ExtraBits, foreign: Iterable[Flow], *, service: ExpectedService, in_port: str | None
) -> tuple[Flow, ...]:
    """Return the foreign flows that match any of these bits, in their order.

    Only those that packets of the service certainly meet, if there are any: in its tables, for its ingress port, in a
    subtable with a flow at or above our priorities (the classifier stops below them). Else all candidates.
    """
    candidates = [flow for flow in foreign if any(_matches_bits(flow.match, name, bits) for name, bits in extra)]
    lowest = _lowest_priorities(service)
    highest: dict[object, int] = {}
    for flow in candidates:
        highest[_subtable(flow)] = max(flow.priority, highest.get(_subtable(flow), 0))
    met = (
        flow
        for flow in candidates
        if flow.table in lowest
        and highest[_subtable(flow)] >= lowest[flow.table]
        and flow.match.in_port in (None, in_port)
    )
    return tuple(met) or tuple(candidates)


def _lowest_priorities(service: ExpectedService) -> dict[int, int]:
    """Return the lowest priority of the service's flows in each of its tables."""
    lowest = {Stage.CLASSIFY.table: service.priority}
    for block in service.blocks:
        table, priority = block.flow.table, block.flow.priority
        lowest[table] = min(priority, lowest.get(table, priority))
    return lowest


def _covers(wide: Match, narrow: Match) -> bool:
    return wide.in_port in (None, narrow.in_port) and all(
        (found := narrow.get(c.field)) is not None and found.mask & c.mask == c.mask and found.value & c.mask == c.value
        for c in wide.masked
    )


def _matches_bits(match: Match, name: str, bits: int) -> bool:
    field = FIELD_BY_NAME.get(name)
    masked = None if field is None else match.get(field)
    if masked is not None:
        return masked.mask & bits != 0
    return any(text.partition("=")[0] == name for text in match.foreign)


def _subtable(flow: Flow) -> object:
    """Return the subtable of the classifier: flows that match the same bits share one."""
    match = flow.match
    masks = tuple((masked.field.ovs_name, masked.mask) for masked in match.masked)
    return flow.table, match.in_port is None, masks, tuple(text.partition("=")[0] for text in match.foreign)


# Rules of other programs in traffic control that packets of blocks meet before the rules of Open vSwitch.


_FAMILIES = (0x0800, 0x86DD)


def preempting_rules(
    services: Sequence[ExpectedService], filters: Iterable[tuple[str, TcFilter]]
) -> tuple[PreemptingRule, ...]:
    """Return the rules of other programs that packets of blocks meet first. `filters`: (device, filter) of all ingress
    ports."""
    listed = tuple(filters)
    others = [(device, one, one.foreign) for device, one in listed if one.foreign is not None and one.chain == 0]
    if not others:
        return ()
    last: dict[str, int] = {}
    for device, one in listed:
        if one.foreign is None:
            last[device] = max(one.pref, last.get(device, 0))
    index = OverlapIndex(index_blocks(services))
    order = {id(block): number for number, block in enumerate(block for each in services for block in each.blocks)}
    found = []
    for device, one, rule in others:
        # Without rules of Open vSwitch its software datapath gets the packets, behind all of traffic control.
        if not rule.is_final or one.pref > last.get(device, one.pref):
            continue
        met = {id(block): block for block in _met(index, device, rule)}
        if met:
            blocks = tuple(sorted(met.values(), key=lambda block: order[id(block)]))
            found.append(PreemptingRule(device, one.pref, rule, blocks, one.in_hw is True))
    return tuple(found)


def _met(index: OverlapIndex, device: str, rule: ForeignRule) -> Iterable[ExpectedBlock]:
    for eth_type in _FAMILIES if rule.eth_type is None else (rule.eth_type,):
        fields: Mapping[str, MaskedValue] = {**rule.fields, "dl_type": MaskedValue(eth_type, 0xFFFF)}
        for entry in index.entries(device, fields):
            name = entry.blocks[0][0] if entry.blocks else ""
            yield from index.blocks(entry.blocks, fields.get(name, ANY))
