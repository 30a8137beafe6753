"""What the hardware should hold, and whether a megaflow belongs to a block, to answers, or to other traffic."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from enum import Enum
from functools import lru_cache

from xenoovs.compile.encoding import comes_from, hop_of, key_of, leaves_with
from xenoovs.compile.program import Program, ServiceProgram
from xenoovs.dataclass import dataclass, field
from xenoovs.datapath.megaflow import MaskedValue, Megaflow, match_of, read_masked, tag_written
from xenoovs.datapath.outer import encapsulations, parse_outer
from xenoovs.model.balancer import Returns, Service
from xenoovs.model.next_hop import NextHop, is_tunneled
from xenoovs.model.packet import NEIGHBOUR_DISCOVERY
from xenoovs.model.tunnel import SwitchTunnel, remote_end_of
from xenoovs.openflow.flow import ETH_ARP, UNTAGGED, Field, Flow, Masked, Match, alternatives, output_ports
from xenoovs.openflow.flow import match_of as match_of_conditions
from xenoovs.openflow.text import parse_value, render_match
from xenoovs.regex import ASCII, regex

Fields = Mapping[str, MaskedValue]
"""The match of a megaflow: field names of ovs-fields(7) to values and masks."""

ANY = MaskedValue(0, 0)
_VLAN, _NO_TAG = Field.VLAN.ovs_name, MaskedValue(UNTAGGED, Field.VLAN.all_ones)
"""The tag of a megaflow that matches none: its EtherType implies untagged packets."""
FIELD_BY_NAME: Mapping[str, Field] = {field.ovs_name: field for field in Field}


def match_of_fields(in_port: str | None, fields: Fields) -> Match:
    """Return the match of a megaflow as an OpenFlow match of the known fields. ECN is no part of nw_tos there."""
    known = ((FIELD_BY_NAME[name], found) for name, found in fields.items() if name in FIELD_BY_NAME)
    masked = (Masked(field, found.value & field.all_ones, found.mask & field.all_ones) for field, found in known)
    return match_of_conditions(masked, in_port=in_port)


def match_text(megaflow: Megaflow) -> str:
    """Return the match of a megaflow as ovs-ofctl writes it, of the known fields."""
    return render_match(match_of_fields(megaflow.in_port, match_of(megaflow)))


@dataclass(frozen=True, slots=True)
class ExpectedBlock:
    """One block of one backend.

    Attributes:
        key: the bits that choose the block; mask 0 for all clients.
        hops: next hops of its packets; several only if the block moves.
        is_moving: whether a drain keeps its open connections with their backends; each has its own megaflow.
        has_answers: whether its backend's answers pass the bridge and belong to the service; those of a remote belong
            to another tunnel.
        megaflows: number for each entry of its service; more than 1 only if paths rewrite source ports.
        locals: port -> local address of the tunnel to a next hop. Several ports share one device.
    """

    service: str
    backend: str
    flow: Flow
    eth_type: int
    key: Masked
    hops: tuple[NextHop, ...]
    is_moving: bool = False
    has_answers: bool = True
    megaflows: int = 1
    locals: Mapping[str, int] = field(default_factory=dict, hash=False)

    @property
    def share(self) -> float:
        """Its share of the clients (0-1)."""
        return 0.5 ** self.key.mask.bit_count()


@dataclass(frozen=True, slots=True)
class ExpectedService:
    """One service of a program. `entries`: the matches of its classify flows, each for one port of the bridge;
    `priority`: the lowest of these. `ports`: of its backends, where answers enter. `returns`: matches of answers that
    NAT rewrites. `origins`: remote and key of the tunnels of its answers, with `return: switch`."""

    name: str
    entries: tuple[Match, ...]
    blocks: tuple[ExpectedBlock, ...]
    priority: int = 0
    ports: frozenset[str] = frozenset()
    returns: tuple[Match, ...] = ()
    origins: frozenset[tuple[int, int]] = frozenset()


def expected_services(program: Program, *, live: Collection[str] | None = None) -> tuple[ExpectedService, ...]:
    """Return the services of a compiled program, in its order.

    `live`: live ports, from which groups choose; None if unknown: then a group may use any of its next hops."""
    tunnels = program.balancer.switch_tunnels
    return tuple(_expected_service(service, tunnels, live) for service in program.services if service.classify)


def hops_in_use(flow: Flow, live: Collection[str] | None) -> tuple[NextHop, ...]:
    """Return the next hops that a flow may use; empty if all ports are dead."""
    ways = alternatives(flow.actions)
    if live is not None and len(ways) > 1:
        ways = tuple(way for way in ways if next(output_ports(way), "") in live)[:1]
    return tuple(hop for way in ways if (hop := hop_of(way)) is not None)


def _expected_service(
    service: ServiceProgram, tunnels: tuple[SwitchTunnel, ...], live: Collection[str] | None
) -> ExpectedService:
    return ExpectedService(
        name=service.service.name,
        entries=tuple(flow.match for flow in service.classify),
        blocks=tuple(_blocks(service, tunnels, live)),
        priority=min(flow.priority for flow in service.classify),
        # Answers of a remote belong to another tunnel.
        ports=frozenset()
        if service.service.is_remote
        else frozenset(backend.next_hop.port for backend in service.service.backends),
        returns=tuple(flow.match for flow in service.returns),
        origins=frozenset(_origins(service.service)),
    )


def _origins(service: Service) -> Iterator[tuple[int, int]]:
    if service.returns is Returns.SWITCH:
        entered = filter(None, (comes_from(backend.next_hop) for backend in service.backends))
        for _port, conditions in entered:
            found = {condition.field: condition.value for condition in conditions}
            yield found[Field.TUN_SRC], found[Field.TUN_ID]


def _blocks(
    service: ServiceProgram, tunnels: tuple[SwitchTunnel, ...], live: Collection[str] | None
) -> Iterator[ExpectedBlock]:
    # A connection opened during a drain may be with any backend that was a target of the block.
    backends = {backend.next_hop for backend in service.service.backends}
    all_hops = tuple(sorted(backends | {service.hop(move.old) for move in service.moves}, key=str))
    ends = filter(None, (remote_end_of(hop, tunnels) for hop in all_hops)) if tunnels else ()
    local_addresses = {end.port: int(end.tunnel.local) for end in ends}
    for block in service.blocks:
        yield ExpectedBlock(
            service=service.service.name,
            backend=block.backend.name,
            flow=block.flow,
            eth_type=eth_type_of(block.flow.match),
            key=key_of(block.flow, service.service.key.field),
            hops=all_hops if block.move is not None else hops_in_use(block.flow, live),
            is_moving=block.move is not None,
            # Answers of a backend behind a tunnel with `return: direct` do not pass the bridge.
            has_answers=not service.service.is_remote
            and not (service.service.returns is Returns.DIRECT and is_tunneled(block.backend.next_hop)),
            megaflows=_source_ports(service.service, key_of(block.flow, service.service.key.field)),
            locals=local_addresses,
        )


def _source_ports(service: Service, key: Masked) -> int:
    """Return the number of source ports in a block if paths rewrite them, as each has its own megaflow; else 1."""
    ports = service.rewritten_ports
    return 1 if ports is None else sum(port & key.mask == key.value for port in range(ports.first, ports.last + 1))


def eth_type_of(match: Match) -> int:
    """Return the EtherType of a match; 0 for any."""
    found = match.get(Field.DL_TYPE)
    return 0 if found is None else found.value


# Which block a megaflow belongs to, by its match: first the service, then the block.
#
# A megaflow's mask covers the masks of all flows that its packets met (lib/classifier.c), and blocks are disjoint, so
# the match alone decides. Lookups are by hash, one for each mask in use: never megaflows times blocks.


_Masks = tuple[tuple[str, int], ...]
_EntryKey = tuple[str | None, tuple[int, ...]]


BlocksByMask = tuple[tuple[str, int, dict[int, ExpectedBlock]], ...]
"""The blocks of one service and IP family: field, mask, and value -> block."""


@dataclass(frozen=True, slots=True)
class ServiceEntry:
    """One classify match of a service. `number`: its index in `service.entries`; `blocks`: of its IP family."""

    service: ExpectedService
    number: int
    blocks: BlocksByMask

    @property
    def match(self) -> Match:
        return self.service.entries[self.number]

    def find(self, fields: Fields) -> ExpectedBlock | None:
        """Return the block that contains a match; None if there is none."""
        for name, mask, by_value in self.blocks:
            found = fields.get(name, ANY)
            if found.mask & mask == mask and (block := by_value.get(found.value & mask)) is not None:
                return block
        return None


@dataclass(frozen=True, slots=True)
class BlockIndex:
    """Finds the block of a megaflow; build it with `index_blocks`."""

    entries: dict[_Masks, dict[_EntryKey, ServiceEntry]]

    def find(self, megaflow: Megaflow) -> ExpectedBlock | None:
        """Return the block of a megaflow; None if it belongs to none."""
        found = self.locate(megaflow.in_port, match_of(megaflow))
        return found[1] if found else None

    def locate(self, in_port: str | None, fields: Fields) -> tuple[ServiceEntry, ExpectedBlock] | None:
        """Return the entry that classified a megaflow's packets, and its block; None if it belongs to none."""
        for entry in self.entries_for(in_port, fields):
            found = entry.find(fields)
            if found is not None:
                return entry, found
        return None

    def entries_for(self, in_port: str | None, fields: Fields) -> Iterator[ServiceEntry]:
        """Yield the entries that match all such packets, whatever their source."""
        for masks, by_key in self.entries.items():
            values = _values(fields, masks)
            entry = (by_key.get((in_port, values)) or by_key.get((None, values))) if values is not None else None
            if entry is not None:
                yield entry


def index_blocks(services: Iterable[ExpectedService]) -> BlockIndex:
    """Index the blocks of all services."""
    entries: dict[_Masks, dict[_EntryKey, ServiceEntry]] = {}
    for service in services:
        blocks = {eth_type: _by_mask(service.blocks, eth_type) for eth_type in {b.eth_type for b in service.blocks}}
        for number, match in enumerate(service.entries):
            masks = tuple((masked.field.ovs_name, masked.mask) for masked in match.masked)
            key = match.in_port, tuple(masked.value for masked in match.masked)
            entry = ServiceEntry(service, number, blocks.get(eth_type_of(match), ()))
            entries.setdefault(masks, {})[key] = entry
    return BlockIndex(dict(sorted(entries.items(), key=lambda item: _precedence(item[0]), reverse=True)))


def _precedence(masks: _Masks) -> tuple[bool, int]:
    """Return the rank of an entry: first those with a VLAN, then the longer prefix, as in `service_of`."""
    bits = sum(mask.bit_count() for name, mask in masks if name in ("nw_dst", "ipv6_dst"))
    return any(name == _VLAN for name, _ in masks), bits


def _by_mask(blocks: Iterable[ExpectedBlock], eth_type: int) -> BlocksByMask:
    by_mask: dict[tuple[str, int], dict[int, ExpectedBlock]] = {}
    for block in blocks:
        if block.eth_type == eth_type:
            key = block.key
            by_mask.setdefault((key.field.ovs_name, key.mask), {})[key.value] = block
    return tuple((field, mask, by_value) for (field, mask), by_value in by_mask.items())


def _found(fields: Fields, name: str) -> MaskedValue:
    """Return the value and mask of a field. A megaflow that matches no tag has untagged packets."""
    return fields.get(name, _NO_TAG if name == _VLAN else ANY)


def _values(fields: Fields, masks: _Masks) -> tuple[int, ...] | None:
    """Return the values under all masks; None if the megaflow does not match all those bits."""
    values = []
    for name, mask in masks:
        found = _found(fields, name)
        if found.mask & mask != mask:
            return None
        values.append(found.value & mask)
    return tuple(values)


# Whether the packets of a megaflow go to a next hop: the only translation of next hops into datapath actions.


_SET = {
    Field.DL_DST: regex(r"set\(eth\((?:src=[^,]*,)?dst=((?:[0-9a-f]{2}:){5}[0-9a-f]{2})[,)]", ASCII),
    Field.TP_SRC: regex(r"set\(udp\(src=([0-9]{1,5})[,)]", ASCII),
    Field.NW_DST: regex(r"set\(ipv4\((?:src=[^,]*,)?dst=([0-9.]+)[,)]", ASCII),
    Field.TP_DST: regex(r"set\((?:tcp|udp|sctp)\((?:src=[0-9]+,)?dst=([0-9]{1,5})[,)]", ASCII),
}
"""Datapath actions that write the fields of a next hop (format_odp_action() of lib/odp-util.c)."""
_OUTER = frozenset((Field.TUN_ID, Field.TUN_DST))
_UNDETERMINED = regex(r"(?:recirc|slow_path|clone(?!\(tnl_push)|check_pkt_len)\(")


def delivers(megaflow: Megaflow, fields: Fields, block: ExpectedBlock) -> bool:
    """Return whether a megaflow with this match sends packets to a next hop of the block."""
    return any(
        all(_has(fields, name, value) for name, value in needed)
        for hop in block.hops
        for needed in _needed(megaflow.actions, hop, block.locals.get(hop.port))
    )


def _has(fields: Fields, name: str, value: int) -> bool:
    found = fields.get(name)
    return (name, value) == (_VLAN, UNTAGGED) if found is None else found.value == value


@lru_cache(maxsize=1024)
def _needed(actions: tuple[str, ...], hop: NextHop, local: int | None) -> tuple[tuple[tuple[str, int], ...], ...]:
    """Return, for each copy that leaves to a next hop, the fields and values that its packets must have already."""
    if len(actions) == 1 and "(" not in actions[0] and hop.port != actions[0]:
        return ()
    expected = {write.field: write.value for write in leaves_with(hop)}
    # A packet that already has what a next hop writes is not rewritten. No packet has two values of a field.
    return tuple(
        tuple(
            (field.ovs_name, value)
            for field, value in expected.items() ^ written.items()
            # A tunnel port with a fixed remote writes outer fields that its next hop does not have.
            if field in expected or field not in _OUTER
        )
        for written, source in _written(actions, hop.port)
        # Without `local_ip` the route chooses the outer source.
        if local is None or source in (None, local)
    )


@lru_cache(maxsize=1024)
def is_slow_path(actions: tuple[str, ...]) -> bool:
    """Return whether ovs-vswitchd handles each packet itself."""
    return any(action.startswith("userspace(") for action in actions)


@lru_cache(maxsize=1024)
def is_undetermined(actions: tuple[str, ...]) -> bool:
    """Return whether another megaflow or a condition decides where the packets go."""
    return any(map(_UNDETERMINED.search, actions))


@lru_cache(maxsize=1024)
def _written(actions: tuple[str, ...], egress: str) -> tuple[tuple[Mapping[Field, int], int | None], ...]:
    """Return written fields and outer source of each copy that leaves by a port; None if the route chooses it."""
    written = dict[Field, int]()
    found = list[tuple[Mapping[Field, int], int | None]]()
    for action in actions:
        if action == egress:
            found.append((dict(written), None))
        if (tag := tag_written(action)) is not None:
            written[Field.VLAN] = tag
        for rewrites, pattern in _SET.items():
            if (rewritten := pattern.match(action)) is not None:
                written[rewrites] = parse_value(rewrites, rewritten[1])
    # Open vSwitch chooses the name of a tunnel's port. An encapsulated packet is not rewritten afterwards.
    for outer in encapsulations(actions):
        key = {} if outer.key is None else {Field.TUN_ID: outer.key}
        found.append(({**written, Field.TUN_DST: outer.remote, **key}, outer.local))
    return tuple(found)


# What megaflows outside all blocks carry.


_DESTINATION_UNREACHABLE = {"icmp": 3, "icmpv6": 1}
"""RFC 792; RFC 4443, 3.1."""

_NEW_TRACKED = 0x21
"""ct_state +new+trk (ovs-fields(7)): the connection is not established; its later packets have another megaflow."""


class OutsideKind(Enum):
    """What a megaflow outside all blocks carries. NVIDIA's own check ignores the kinds that are not judged.

    ANSWERS: packets from a backend's port to clients, of one or several services.
    OTHER: packets of no service of the config, which could be offloaded.
    OTHER_PORT: packets that entered by a port of another bridge; in a recorded dump, by one that is not in the config.
    """

    ANSWERS = "answers"
    ARP = "arp"
    NEIGHBOUR_DISCOVERY = "neighbour discovery"
    MULTICAST = "multicast"
    UNREACHABLE = "icmp unreachable"
    DROP = "drop"
    NEW_CONNECTION = "first packet of a connection"
    INTERNAL_PORT = "internal port"
    OTHER_PORT = "of another port"
    RECIRCULATED = "recirculated"
    OTHER = "of no service"

    # Enum hashes its name in Python at each lookup; members are singletons, so identity serves.
    __hash__ = object.__hash__

    @property
    def is_judged(self) -> bool:
        """Whether such a megaflow should be in hardware."""
        return self in (OutsideKind.ANSWERS, OutsideKind.RECIRCULATED, OutsideKind.OTHER)


def outside_kind_of(
    megaflow: Megaflow, internal_ports: Set[str], fields: Mapping[str, MaskedValue] | None = None
) -> OutsideKind:
    """Return the first kind that applies; never ANSWERS or OTHER_PORT. `internal_ports`: including bridges."""
    fields = match_of(megaflow) if fields is None else fields
    eth_type, icmp_type, destination = (fields.get(name) for name in ("dl_type", "icmp_type", "dl_dst"))
    if eth_type is not None and eth_type.value == ETH_ARP:
        return OutsideKind.ARP
    if icmp_type is not None and icmp_type.mask:
        names = {key.name for key in megaflow.keys}
        if "icmpv6" in names and icmp_type.value in NEIGHBOUR_DISCOVERY:
            return OutsideKind.NEIGHBOUR_DISCOVERY
        if any(name in names and icmp_type.value == code for name, code in _DESTINATION_UNREACHABLE.items()):
            return OutsideKind.UNREACHABLE
    if destination and destination.mask >> 40 & 1 and destination.value >> 40 & 1:
        return OutsideKind.MULTICAST
    if megaflow.actions == ("drop",):
        return OutsideKind.DROP
    if _is_new_connection(megaflow.key("ct_state")):
        return OutsideKind.NEW_CONNECTION
    if megaflow.in_port in internal_ports or not internal_ports.isdisjoint(megaflow.actions):
        return OutsideKind.INTERNAL_PORT
    return OutsideKind.RECIRCULATED if megaflow.recirc_id else OutsideKind.OTHER


@lru_cache(maxsize=1024)
def _is_new_connection(ct_state: str | None) -> bool:
    if ct_state is None:
        return False
    try:
        return read_masked(ct_state, 32).value & _NEW_TRACKED == _NEW_TRACKED
    except ValueError:
        # A dump without -m has flags: `+new-est+trk`.
        return "+new" in ct_state and "+trk" in ct_state


# Which blocks share packets with a match: that of a megaflow, or of a rule of another program.


_MAX_INDEXED = 500_000
"""Entries and blocks in all tables together, about 100 MB. Matches with further masks are compared one by one."""

_PortAndValues = tuple[str | None, tuple[int, ...]]
_Entries = dict[_PortAndValues, list[ServiceEntry]]
_Blocks = dict[int, list[ExpectedBlock]]


class OverlapIndex:
    """Finds the entries and blocks that share a packet with a match. Has a table for each mask; real dumps have few."""

    def __init__(self, index: BlockIndex) -> None:
        self._by_mask = tuple(index.entries.items())
        self._entries: dict[tuple[int, tuple[int, ...]], _Entries] = {}
        self._blocks: dict[tuple[int, int, int], _Blocks] = {}
        self._room = _MAX_INDEXED

    def entries(self, in_port: str | None, fields: Fields) -> Iterator[ServiceEntry]:
        """Yield the entries that match some packet of this match, whatever its source."""
        if "dl_type" not in fields:
            return
        for number, (masks, entries) in enumerate(self._by_mask):
            found = [_found(fields, name) for name, _ in masks]
            common = tuple([one.mask & mask for one, (_, mask) in zip(found, masks, strict=True)])
            table = self._entries.get((number, common))
            if table is None:
                table = _under_mask(common, entries)
                if self._has_room(len(entries)):
                    self._entries[number, common] = table
            values = tuple([one.value & bits for one, bits in zip(found, common, strict=True)])
            yield from table.get((in_port, values), ())
            if in_port is not None:
                yield from table.get((None, values), ())

    def blocks(self, blocks: BlocksByMask, source: MaskedValue) -> Iterable[ExpectedBlock]:
        """Return the blocks that match some packet of this source."""
        return [block for _, mask, by_value in blocks for block in self._overlapping(mask, by_value, source)]

    def _overlapping(
        self, mask: int, by_value: Mapping[int, ExpectedBlock], source: MaskedValue
    ) -> Iterable[ExpectedBlock]:
        common = mask & source.mask
        if common == mask:
            block = by_value.get(source.value & mask)
            return () if block is None else (block,)
        key = id(by_value), mask, common
        table = self._blocks.get(key)
        if table is None:
            if not self._has_room(len(by_value)):
                return (block for value, block in by_value.items() if not (value ^ source.value) & common)
            table = self._blocks[key] = {}
            for value, block in by_value.items():
                table.setdefault(value & common, []).append(block)
        return table.get(source.value & common, ())

    def _has_room(self, size: int) -> bool:
        self._room -= size
        return self._room >= 0


def _under_mask(common: tuple[int, ...], entries: Mapping[_PortAndValues, ServiceEntry]) -> _Entries:
    table: _Entries = {}
    for (port, values), entry in entries.items():
        masked = tuple([value & bits for value, bits in zip(values, common, strict=True)])
        table.setdefault((port, masked), []).append(entry)
    return table


# Which megaflows outside all blocks carry answers: packets from backends back to clients.


_MIRRORED = {"nw_src": "nw_dst", "ipv6_src": "ipv6_dst", "tp_src": "tp_dst"}
"""The field of an answer -> the field of a request that has the same value."""
_SOURCES = (("nw_src", 32), ("ipv6_src", 128))
_UNCHANGED = ("dl_type", "nw_proto")
_MAX_CACHED = 50_000


class AnswerFinder:
    """Finds the services whose answers a megaflow may carry.

    An answer has the VIP of its service as source address, or with NAT that of a backend. But most megaflows of answers
    match no address, as no flow of the bridge does. So several services may share one.

    Answers out of tunnels enter by a port that all tunnels of one type share, so remote and key identify their backend.
    """

    def __init__(self, services: Iterable[ExpectedService], index: OverlapIndex) -> None:
        listed = tuple(services)
        self._index = index
        self._ports = frozenset(port for service in listed for port in service.ports)
        self._origins = frozenset(origin for service in listed for origin in service.origins)
        self._ingress = frozenset(entry.in_port for service in listed for entry in service.entries)
        self._translated = {service.name for service in listed if service.returns}
        self._returns = defaultdict[tuple[str | None, int], list[tuple[Match, str]]](list)
        for service in listed:
            for match in service.returns:
                source = match.get(Field.NW_SRC)
                self._returns[match.in_port, 0 if source is None else source.value].append((match, service.name))
        self._cache: dict[tuple[object, ...], tuple[str, ...]] = {}

    def find(self, megaflow: Megaflow, internal_ports: Set[str] = frozenset()) -> tuple[str, ...]:
        """Return the names of these services for any megaflow outside all blocks; empty for ARP, drops and the like."""
        fields = match_of(megaflow)
        return self.services(megaflow, fields) if outside_kind_of(megaflow, internal_ports, fields).is_judged else ()

    def services(self, megaflow: Megaflow, fields: Fields) -> tuple[str, ...]:
        """Return the names of these services; empty if the megaflow carries no answers."""
        in_port, origin = megaflow.in_port, self._origin_of(megaflow)
        if in_port is None or (origin is None and in_port not in self._ports) or not self._leaves(megaflow):
            return ()
        if in_port in self._ingress and not self._is_from_vip(fields):
            # Clients are behind this port too.
            return ()
        source = fields.get("nw_src", ANY)
        returned = [name for match, name in self._returns.get((in_port, source.value), ()) if _holds(match, fields)]
        if returned:
            return tuple(sorted(dict.fromkeys(returned)))
        mirrored = {request: fields[answer] for answer, request in _MIRRORED.items() if answer in fields}
        mirrored |= {name: fields[name] for name in _UNCHANGED if name in fields}
        key = in_port, origin, tuple(mirrored.items())
        found = self._cache.get(key)
        if found is None:
            entries = (entry for port in self._ingress for entry in self._index.entries(port, mirrored))
            answering = (s for s in (e.service for e in entries) if in_port in s.ports or origin in s.origins)
            found = tuple(sorted({service.name for service in answering} - self._translated))
            if len(self._cache) < _MAX_CACHED:
                self._cache[key] = found
        return found

    def _origin_of(self, megaflow: Megaflow) -> tuple[int, int] | None:
        """Return remote and key of the tunnel of the packets; None if there is none, or it carries no answers."""
        text = megaflow.key("tunnel") if self._origins else None
        if text is None:
            return None
        outer = parse_outer(text)
        remote, key = outer.source, outer.exact("tun_id")
        return None if remote is None or key is None or (remote, key) not in self._origins else (remote, key)

    def _leaves(self, megaflow: Megaflow) -> bool:
        """Return whether packets may leave by a port that has not only backends; True if the actions name no port."""
        outputs = [action for action in megaflow.actions if "(" not in action]
        return not outputs or any(port not in self._ports or port in self._ingress for port in outputs)

    @staticmethod
    def _is_from_vip(fields: Fields) -> bool:
        return any(fields.get(name, ANY).mask == (1 << width) - 1 for name, width in _SOURCES)


def _holds(match: Match, fields: Fields) -> bool:
    """Return whether a match includes all packets with these fields."""
    return all(
        (found := fields.get(c.field.ovs_name, ANY)).mask & c.mask == c.mask and found.value & c.mask == c.value
        for c in match.masked
    )
