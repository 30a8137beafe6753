"""Which events a switch tells a controller unasked (OpenFlow 1.4.0, 7.3.10)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from struct import Struct

from xenoovs.openflow.wire.reader import Reader, padded

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
