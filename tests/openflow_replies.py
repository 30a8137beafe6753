"""Messages that only a switch sends, for tests of the decoders and benchmarks (OpenFlow 1.4.0, 7.3.5.2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct

from xenoovs.openflow.flow import Field, ObservedFlow
from xenoovs.openflow.wire.flow import encode_instructions, options_of
from xenoovs.openflow.wire.frame import MULTIPART_REPLY, message
from xenoovs.openflow.wire.match import encode_match

_FLOW = Struct("!HBxIIHHHHHxxQQQ")
_NANOSECONDS = 10**9


def flows_reply(flows: Iterable[ObservedFlow], ofports: Mapping[str, int], *, more: bool = False) -> bytes:
    """A part of a dump."""
    head = b"\0\1" + more.to_bytes(2, "big") + bytes(4)
    return message(MULTIPART_REPLY, head + b"".join(_packed(flow, ofports) for flow in flows), xid=1)


def _packed(observed: ObservedFlow, ofports: Mapping[str, int]) -> bytes:
    flow, options = observed.flow, options_of(observed.flow.options)
    protocol = flow.match.get(Field.NW_PROTO)
    instructions = encode_instructions(flow.actions, ofports, protocol=None if protocol is None else protocol.value)
    rest = encode_match(flow.match, ofports) + instructions
    limits = (options.idle_timeout, options.hard_timeout, options.flags, options.importance)
    time = divmod(round(observed.duration_s * _NANOSECONDS), _NANOSECONDS)
    counts = (flow.cookie, observed.packets, observed.bytes)
    return _FLOW.pack(_FLOW.size + len(rest), flow.table, *time, flow.priority, *limits, *counts) + rest
