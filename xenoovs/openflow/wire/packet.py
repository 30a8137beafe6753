"""Packets that a switch hands to a controller, and the other way (OpenFlow 1.4.0, 7.4.1 and 7.3.6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from struct import Struct

from xenoovs.openflow.action import Action
from xenoovs.openflow.match import Match
from xenoovs.openflow.wire.action import decode_actions, encode_actions
from xenoovs.openflow.wire.features import NO_BUFFER
from xenoovs.openflow.wire.match import decode_match, encode_match
from xenoovs.openflow.wire.ports import CONTROLLER, port_name, port_number
from xenoovs.openflow.wire.reader import Reader

_PACKET_IN = Struct("!IHBBQ")
_PACKET_OUT = Struct("!IIH6x")
_PAD = 2


class PacketReason(Enum):
    """enum ofp_packet_in_reason."""

    TABLE_MISS = 0
    APPLY_ACTION = 1
    INVALID_TTL = 2
    ACTION_SET = 3
    GROUP = 4
    PACKET_OUT = 5


@dataclass(frozen=True, slots=True)
class PacketIn:
    """A packet that a flow sent here.

    reason: a value of PacketReason, or another. table, cookie: of the flow. match: where it came in, and registers.
    data: the frame from its Ethernet header on, perhaps cut. total_length: of the whole frame, bytes. buffer_id:
    NO_BUFFER where the switch does not keep the rest.
    """

    reason: int
    table: int
    cookie: int
    match: Match
    data: bytes
    total_length: int
    buffer_id: int = NO_BUFFER


@dataclass(frozen=True, slots=True)
class PacketOut:
    """A frame for the switch to do `actions` with. in_port: where it is said to come from; None: the controller."""

    actions: tuple[Action, ...]
    data: bytes
    in_port: str | None = None
    buffer_id: int = NO_BUFFER


def encode_packet_in(packet: PacketIn, ofports: Mapping[str, int]) -> bytes:
    head = (packet.buffer_id, packet.total_length, packet.reason, packet.table, packet.cookie)
    return _PACKET_IN.pack(*head) + encode_match(packet.match, ofports) + bytes(_PAD) + packet.data


def decode_packet_in(body: Reader, names: Mapping[int, str]) -> PacketIn:
    """Raises WireError."""
    buffer_id, total_length, reason, table, cookie = body.unpack(_PACKET_IN, "a packet-in")
    match = decode_match(body, names)
    body.take(_PAD, "the padding of a packet-in")
    return PacketIn(reason, table, cookie, match, body.rest(), total_length, buffer_id)


def encode_packet_out(packet: PacketOut, ofports: Mapping[str, int]) -> bytes:
    actions = encode_actions(packet.actions, ofports)
    in_port = CONTROLLER if packet.in_port is None else port_number(packet.in_port, ofports)
    return _PACKET_OUT.pack(packet.buffer_id, in_port, len(actions)) + actions + packet.data


def decode_packet_out(body: Reader, names: Mapping[int, str]) -> PacketOut:
    """Raises WireError."""
    buffer_id, port, size = body.unpack(_PACKET_OUT, "a packet-out")
    actions = decode_actions(body.part(size, "the actions of a packet-out"), names)
    in_port = None if port == CONTROLLER else port_name(port, names)
    return PacketOut(actions, body.rest(), in_port, buffer_id)
