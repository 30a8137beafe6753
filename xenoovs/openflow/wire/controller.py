"""What a switch and its controllers exchange besides flows: packets, roles, and which events are sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from struct import Struct

from xenoovs.openflow.flow import Action, Match
from xenoovs.openflow.wire.flow import decode_actions, encode_actions
from xenoovs.openflow.wire.frame import CONTROLLER, Reader, padded, port_name, port_number
from xenoovs.openflow.wire.match import decode_match, encode_match
from xenoovs.openflow.wire.switch import NO_BUFFER

# Packets that a switch hands to a controller, and the other way (OpenFlow 1.4.0, 7.4.1 and 7.3.6).


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


# Which of several controllers may change a switch (OpenFlow 1.4.0, 6.3.5, 7.3.8 and 7.4.4).


_REQUEST = Struct("!I4xQ")
_STATUS = Struct("!IB3xQ")


class Role(Enum):
    """enum ofp_controller_role. NOCHANGE only asks."""

    NOCHANGE = 0
    EQUAL = 1
    MASTER = 2
    SLAVE = 3


class RoleReason(Enum):
    """Why a role was taken away (enum ofp_controller_role_reason)."""

    MASTER_REQUEST = 0
    CONFIG = 1
    EXPERIMENTER = 2


@dataclass(frozen=True, slots=True)
class RoleRequest:
    """generation_id: 64 bits; MASTER and SLAVE with an older one than the switch saw are refused (OFPRRFC_STALE)."""

    role: Role
    generation_id: int = 0


@dataclass(frozen=True, slots=True)
class RoleReply:
    """generation_id: all ones where no controller has told one yet."""

    role: Role
    generation_id: int


@dataclass(frozen=True, slots=True)
class RoleStatus:
    """The role of this controller was changed by others. properties: bytes as they came."""

    role: Role
    reason: RoleReason
    generation_id: int
    properties: bytes = b""


def encode_role(message: RoleRequest | RoleReply) -> bytes:
    return _REQUEST.pack(message.role.value, message.generation_id)


def decode_role(body: Reader) -> tuple[Role, int]:
    """role, generation_id. Raises WireError."""
    start = body.offset
    number, generation_id = body.unpack(_REQUEST, "a role")
    return _role(body, number, at=start), generation_id


def encode_role_status(status: RoleStatus) -> bytes:
    fixed = _STATUS.pack(status.role.value, status.reason.value, status.generation_id)
    return fixed + status.properties


def decode_role_status(body: Reader) -> RoleStatus:
    """Raises WireError."""
    start = body.offset
    number, reason, generation_id = body.unpack(_STATUS, "a role status")
    role = _role(body, number, at=start)
    if reason not in _REASONS:
        body.offset = start + 4
        raise body.error("the reason of a role status")
    return RoleStatus(role, _REASONS[reason], generation_id, body.rest())


_ROLES = {role.value: role for role in Role}
_REASONS = {reason.value: reason for reason in RoleReason}


def _role(body: Reader, number: int, *, at: int) -> Role:
    if number not in _ROLES:
        body.offset = at
        raise body.error("a role of a controller")
    return _ROLES[number]


# Which events a switch tells a controller unasked (OpenFlow 1.4.0, 7.3.10).


_PROPERTY = Struct("!HH")
_MASK_PROPERTY = Struct("!HHI")


class Event(Enum):
    """Kind of event, and the role in which a controller hears of it (enum ofp_async_config_prop_type)."""

    PACKET_IN_SLAVE = 0
    PACKET_IN_MASTER = 1
    PORT_STATUS_SLAVE = 2
    PORT_STATUS_MASTER = 3
    FLOW_REMOVED_SLAVE = 4
    FLOW_REMOVED_MASTER = 5
    ROLE_STATUS_SLAVE = 6
    ROLE_STATUS_MASTER = 7
    TABLE_STATUS_SLAVE = 8
    TABLE_STATUS_MASTER = 9
    REQUESTFORWARD_SLAVE = 10
    REQUESTFORWARD_MASTER = 11


@dataclass(frozen=True, slots=True)
class EventMask:
    """Bit n: events with reason n are told. A role of EQUAL counts as MASTER here."""

    event: Event
    reasons: int


@dataclass(frozen=True, slots=True)
class AsyncRequest:
    pass


@dataclass(frozen=True, slots=True)
class AsyncReply:
    """others: bytes of all properties of other types."""

    masks: tuple[EventMask, ...]
    others: bytes = b""


@dataclass(frozen=True, slots=True)
class SetAsync:
    """Events that are not named stay as they are."""

    masks: tuple[EventMask, ...]
    others: bytes = b""


def mask_of(event: Event, reasons: Iterable[int]) -> EventMask:
    """reasons: numbers 0..31, such as values of `PortReason` and `RemovedReason`."""
    return EventMask(event, sum(1 << reason for reason in set(reasons)))


def encode_events(message: AsyncReply | SetAsync) -> bytes:
    packed = (_MASK_PROPERTY.pack(mask.event.value, _MASK_PROPERTY.size, mask.reasons) for mask in message.masks)
    return b"".join(packed) + message.others


def decode_events(body: Reader) -> tuple[tuple[EventMask, ...], bytes]:
    """masks, others. Raises WireError."""
    masks, others = [], b""
    while body.left:
        start = body.offset
        kind, length = body.unpack(_PROPERTY, "a property of the events")
        body.offset = start
        if length < _PROPERTY.size:
            raise body.error("a property of at least 4 bytes")
        if kind in _EVENTS and length == _MASK_PROPERTY.size:
            masks.append(EventMask(_EVENTS[kind], body.unpack(_MASK_PROPERTY, "a mask of reasons")[2]))
        else:
            whole = body.take(length, "a whole property of the events")
            others += padded(whole)
            body.take(min(-length % 8, body.left), "padding")
    return tuple(masks), others


_EVENTS = {event.value: event for event in Event}
