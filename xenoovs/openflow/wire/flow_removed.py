"""A flow is gone (OpenFlow 1.4.0, 7.4.2); told of flows that have the option send_flow_rem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from struct import Struct

from xenoovs.openflow.flow import FlowKey
from xenoovs.openflow.wire.match import decode_match, encode_match
from xenoovs.openflow.wire.reader import Reader

_REMOVED = Struct("!QHBBIIHHQQ")
_NANOSECONDS = 1_000_000_000


class RemovedReason(Enum):
    """enum ofp_flow_removed_reason."""

    IDLE_TIMEOUT = 0
    HARD_TIMEOUT = 1
    DELETE = 2
    GROUP_DELETE = 3
    METER_DELETE = 4
    EVICTION = 5


@dataclass(frozen=True, slots=True)
class FlowRemoved:
    """reason: a value of RemovedReason, or another. duration_ns: since the flow was installed. Timeouts in seconds."""

    key: FlowKey
    cookie: int
    reason: int
    packets: int
    bytes: int
    duration_ns: int
    idle_timeout: int = 0
    hard_timeout: int = 0


def encode_flow_removed(removed: FlowRemoved, ofports: Mapping[str, int]) -> bytes:
    key, seconds, rest = removed.key, *divmod(removed.duration_ns, _NANOSECONDS)
    which = (removed.cookie, key.priority, removed.reason, key.table)
    times = (seconds, rest, removed.idle_timeout, removed.hard_timeout)
    return _REMOVED.pack(*which, *times, removed.packets, removed.bytes) + encode_match(key.match, ofports)


def decode_flow_removed(body: Reader, names: Mapping[int, str]) -> FlowRemoved:
    """Raises WireError."""
    cookie, priority, reason, table, seconds, rest, idle, hard, packets, size = body.unpack(_REMOVED, "a flow removed")
    key = FlowKey(table, priority, decode_match(body, names))
    body.expect_end("the end of a flow removed")
    return FlowRemoved(key, cookie, reason, packets, size, seconds * _NANOSECONDS + rest, idle, hard)
