"""One packet's path through the tables: looks up flows and executes actions.

Semantics: OpenFlow 1.4.0, 5; ovs-actions(7); ofproto/ofproto-dpif-xlate.c for edge cases.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from enum import IntEnum

from xenoovs.dataclass import dataclass, field
from xenoovs.errors import SimulateError, assert_never
from xenoovs.model.address import Family
from xenoovs.model.packet import Packet
from xenoovs.openflow.flow import (
    ETH_ARP,
    ETH_IPV4,
    ETH_IPV6,
    TCP,
    Action,
    Failover,
    Field,
    Flow,
    FlowKey,
    Foreign,
    Learn,
    Match,
    Move,
    Normal,
    Output,
    OutputInPort,
    Resubmit,
    SetField,
    exact,
    match_of,
)

ICMP_PROTOCOLS = (1, 58)
_PORT_PROTOCOLS = (6, 17, 132)
"""Assigned Internet Protocol Numbers (IANA): ICMP and its successor; TCP, UDP, SCTP."""

_SLOTS: Mapping[Field, Field] = {
    Field.ARP_SPA: Field.NW_SRC,
    Field.ARP_TPA: Field.NW_DST,
    Field.ARP_OP: Field.NW_PROTO,
    Field.ICMP_TYPE: Field.TP_SRC,
    Field.ICMP_CODE: Field.TP_DST,
}
"""Fields that share a member of `struct flow`, so ARP flows and IP flows share a prefix trie."""


class Segment(IntEnum):
    """The segments by which the classifier matches a packet (FLOW_SEGMENT_*, include/openvswitch/flow.h)."""

    METADATA = 0
    L2 = 1
    L3 = 2
    L4 = 3


_STAGES: Mapping[Field, Segment] = {
    Field.VLAN: Segment.L2,
    Field.DL_SRC: Segment.L2,
    Field.DL_DST: Segment.L2,
    Field.DL_TYPE: Segment.L2,
    Field.NW_SRC: Segment.L3,
    Field.NW_DST: Segment.L3,
    Field.IPV6_SRC: Segment.L3,
    Field.IPV6_DST: Segment.L3,
    Field.NW_PROTO: Segment.L3,
    Field.NW_TOS: Segment.L3,
    Field.TCP_FLAGS: Segment.L4,
    Field.ARP_SHA: Segment.L4,
    Field.ARP_THA: Segment.L4,
    Field.TP_SRC: Segment.L4,
    Field.TP_DST: Segment.L4,
}


@dataclass(frozen=True, slots=True)
class Headers:
    """Ingress port and the value of each slot; a missing slot is 0, as in `struct flow`."""

    in_port: str
    values: Mapping[Field, int]

    def get(self, field: Field) -> int:
        return self.values.get(slot_of(field), 0)

    def with_value(self, field: Field, value: int) -> Headers:
        return Headers(self.in_port, {**self.values, slot_of(field): value})

    def has(self, field: Field) -> bool:
        """Return whether the packet has this field, so that actions can use it (ovs-fields(7), "Prerequisites")."""
        dl_type, protocol = self.get(Field.DL_TYPE), self.get(Field.NW_PROTO)
        match field:
            case Field.NW_SRC | Field.NW_DST:
                return dl_type == ETH_IPV4
            case Field.IPV6_SRC | Field.IPV6_DST:
                return dl_type == ETH_IPV6
            case Field.NW_PROTO | Field.NW_TOS:
                return dl_type in (ETH_IPV4, ETH_IPV6)
            case Field.TP_SRC | Field.TP_DST:
                return dl_type in (ETH_IPV4, ETH_IPV6) and protocol in _PORT_PROTOCOLS
            case Field.TCP_FLAGS:
                return dl_type in (ETH_IPV4, ETH_IPV6) and protocol == TCP
            case Field.ICMP_TYPE | Field.ICMP_CODE:
                return (dl_type, protocol) in ((ETH_IPV4, 1), (ETH_IPV6, 58))
            case Field.ARP_SPA | Field.ARP_TPA | Field.ARP_OP | Field.ARP_SHA | Field.ARP_THA:
                return dl_type == ETH_ARP
            case _:
                return True


def slot_of(field: Field) -> Field:
    """Return the slot of a field: the field under whose name its value is stored."""
    return _SLOTS.get(field, field)


def segment_of(slot: Field) -> Segment:
    """Return the segment of a slot; registers, metadata and marks are in the first."""
    return _STAGES.get(slot, Segment.METADATA)


def field_of(slot: Field, headers: Headers) -> Field:
    """Return the field of a slot for this packet: the inverse of `slot_of`."""
    return next((field for field, kept in _SLOTS.items() if kept is slot and headers.has(field)), slot)


def headers_of(packet: Packet | Headers) -> Headers:
    if isinstance(packet, Headers):
        return packet
    is_ipv4 = packet.family is Family.IPV4
    flags = {Field.TCP_FLAGS: packet.tcp_flags} if packet.protocol == TCP else {}
    return Headers(
        packet.in_port,
        {
            Field.VLAN: packet.vlan,
            Field.DL_SRC: packet.dl_src.value,
            Field.DL_DST: packet.dl_dst.value,
            Field.DL_TYPE: ETH_IPV4 if is_ipv4 else ETH_IPV6,
            (Field.NW_SRC if is_ipv4 else Field.IPV6_SRC): int(packet.source),
            (Field.NW_DST if is_ipv4 else Field.IPV6_DST): int(packet.destination),
            Field.NW_PROTO: packet.protocol,
            Field.NW_TOS: packet.tos,
            Field.TP_SRC: packet.sport,
            Field.TP_DST: packet.dport,
            **flags,
        },
    )


def learned_flow(learn: Learn, headers: Headers) -> Flow:
    """Return the flow that `learn` adds (ovs-actions(7)). Its port is the number in the register."""
    kind = (exact(Field.DL_TYPE, learn.dl_type), exact(Field.NW_PROTO, learn.nw_proto))
    match = match_of((*kind, *(exact(field, headers.get(field)) for field in learn.same)))
    actions: tuple[Action, ...] = (*learn.writes, Output(str(headers.get(learn.output))))
    key = FlowKey(learn.table, learn.priority, match)
    return Flow(key, learn.cookie, actions, (f"idle_timeout={learn.idle_timeout_s}",))


Lookup = Callable[[int, Headers], Flow | None]
"""(table, headers) -> the flow that the packet meets there, or None."""

MAX_DEPTH = 64
MAX_RESUBMITS = MAX_DEPTH * MAX_DEPTH
"""Limits beyond which OVS drops the packet (ofproto/ofproto-dpif-xlate.c)."""


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy of the packet that was sent. `port`: None if MAC learning decides (NORMAL)."""

    port: str | None
    headers: Headers

    @property
    def dl_src(self) -> int:
        return self.headers.get(Field.DL_SRC)

    @property
    def dl_dst(self) -> int:
        return self.headers.get(Field.DL_DST)

    @property
    def vlan(self) -> int:
        return self.headers.get(Field.VLAN)


class _TooDeep(Exception):
    pass


@dataclass(slots=True)
class Walk:
    """One packet on its way, and what became of it. `headers`: as they are now. `live`: ports with a link; None for
    all. `flows`: those that it met. `learned`: flows that the switch adds unless it has them; their ports are
    numbers."""

    lookup: Lookup
    headers: Headers
    live: Collection[str] | None = None
    copies: list[Copy] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)
    learned: list[Flow] = field(default_factory=list)

    def touched(self, touched: Field) -> None:
        """Called when an action reads or writes this field."""

    def sent(self, copy: Copy) -> None:
        """Called when a copy is sent."""

    def run(self) -> None:
        """Send the packet into table 0. Raises SimulateError for an unsupported action."""
        try:
            self.enter(0, 0)
        except _TooDeep:
            self.copies.clear()
            self.learned.clear()

    def enter(self, table: int, depth: int) -> None:
        if depth > MAX_DEPTH or len(self.flows) > MAX_RESUBMITS:
            raise _TooDeep
        flow = self.lookup(table, self.headers)
        if flow is None:
            return
        self.flows.append(flow)
        for action in flow.actions:
            self.execute(action, flow, depth)

    def execute(self, action: Action, flow: Flow, depth: int) -> None:
        match action:
            case Output(port):
                # OpenFlow 1.4.0, 7.2.1: a packet goes back to its ingress port by IN_PORT only.
                if port != self.headers.in_port:
                    self.send(port)
            case OutputInPort():
                self.send(self.headers.in_port)
            case Normal():
                self.touched(Field.DL_SRC)
                self.touched(Field.DL_DST)
                self.touched(Field.VLAN)
                self.send(None)
            case SetField(target, value):
                self.set(target, value)
            case Move(source, target):
                if self.headers.has(source) and self.headers.has(target):
                    self.touched(source)
                    copied, replaced = (1 << action.width) - 1, self.headers.get(target)
                    self.set(target, self.headers.get(source) & copied | replaced & ~copied)
            case Resubmit(table):
                self.enter(table, depth + 1)
            case Failover(buckets):
                for each in buckets[0] if self.live is None else action.live_bucket(self.live):
                    self.execute(each, flow, depth)
            case Learn():
                self.learned.append(learned_flow(action, self.headers))
            case Foreign(text):
                raise SimulateError(flow=f"table {flow.table}, priority {flow.priority}", unknown=text)
            case _:
                assert_never(action)

    def send(self, port: str | None) -> None:
        copy = Copy(port, self.headers)
        self.copies.append(copy)
        self.sent(copy)

    def set(self, target: Field, value: int) -> None:
        if self.headers.has(target):
            self.touched(target)
            self.headers = self.headers.with_value(target, value)


FlowTables = Mapping[int, list[Flow]]
"""Flows by table, highest priority first."""


def walk(tables: FlowTables, packet: Packet | Headers, *, live: Collection[str] | None = None) -> Walk:
    """Return the way of a packet, without a classifier. `live`: as in Walk. Raises SimulateError for an unsupported
    action."""

    def lookup(table: int, headers: Headers) -> Flow | None:
        # OpenFlow leaves undefined which of several flows of highest priority matches.
        return next((flow for flow in tables.get(table, ()) if matches(flow.match, headers)), None)

    way = Walk(lookup, headers_of(packet), live)
    way.run()
    return way


def tables_of(flows: Iterable[Flow]) -> FlowTables:
    """Sort flows for lookups. Raises SimulateError for an unsupported condition."""
    return {table: sorted(found, key=lambda flow: -flow.priority) for table, found in by_table(flows).items()}


def by_table(flows: Iterable[Flow]) -> dict[int, list[Flow]]:
    """Return the flows of each table, in order. Raises SimulateError for an unsupported condition."""
    tables: dict[int, list[Flow]] = {}
    for flow in flows:
        if unknown := ", ".join(flow.match.foreign):
            raise SimulateError(flow=f"table {flow.table}, priority {flow.priority}", unknown=unknown)
        tables.setdefault(flow.table, []).append(flow)
    return dict(sorted(tables.items()))


def matches(match: Match, headers: Headers) -> bool:
    """Return whether the packet meets all conditions."""
    if match.in_port is not None and match.in_port != headers.in_port:
        return False
    return all(headers.get(c.field) & c.mask == c.value for c in match.masked)
