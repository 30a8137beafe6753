"""A packet as Open vSwitch sees it: header fields and registers (`struct flow`, lib/flow.h)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from xenoovs.dataclass import dataclass
from xenoovs.model.address import Family
from xenoovs.model.packet import Packet
from xenoovs.openflow.flow import ETH_ARP, ETH_IPV4, ETH_IPV6, TCP, Field

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


def headers_of(packet: Packet) -> Headers:
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
