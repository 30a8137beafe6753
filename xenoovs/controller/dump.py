"""Flows read by multipart requests (OpenFlow 1.4.0, 7.3.5)."""

from __future__ import annotations

from collections.abc import Iterator

from xenoovs.controller.frames import MULTIPART_REPLY
from xenoovs.controller.line import Line
from xenoovs.controller.notices import error_of
from xenoovs.errors import MalformedOpenFlow, SwitchError, WireError
from xenoovs.openflow.flow import ObservedFlow
from xenoovs.openflow.wire.codec import decode, encode
from xenoovs.openflow.wire.flow_stats import FlowFilter
from xenoovs.openflow.wire.multipart import AggregateReply, AggregateRequest, FlowStatsReply, FlowStatsRequest


def dump(line: Line, *, cookie: int = 0, cookie_mask: int = 0) -> tuple[ObservedFlow, ...]:
    """Flows by their cookie, with counters, in the order of the switch. Raises SwitchUnreachable, MalformedOpenFlow."""
    found: list[ObservedFlow] = []
    for reply in _ask(line, FlowStatsRequest(FlowFilter(cookie=cookie, cookie_mask=cookie_mask))):
        if isinstance(reply, FlowStatsReply):
            found += reply.flows
    return tuple(found)


def count(line: Line, *, cookie: int = 0, cookie_mask: int = 0) -> int:
    """How many flows there are, likewise."""
    replies = _ask(line, AggregateRequest(FlowFilter(cookie=cookie, cookie_mask=cookie_mask)))
    return sum(reply.sums.flows for reply in replies if isinstance(reply, AggregateReply))


def _ask(line: Line, request: FlowStatsRequest | AggregateRequest) -> Iterator[FlowStatsReply | AggregateReply]:
    names = line.names
    for frame in _frames(line, request):
        try:
            reply = decode(frame, names=names).message
        except WireError as error:
            line.carrier.abandon(f"malformed OpenFlow: {error}")
            raise MalformedOpenFlow(f"bridge {line.bridge}: {error}") from None
        if isinstance(reply, FlowStatsReply | AggregateReply):
            yield reply


def _frames(line: Line, request: FlowStatsRequest | AggregateRequest) -> list[bytes]:
    """All messages of the answer, so that decoding them keeps nobody waiting."""
    frames = []
    with line.exchange() as exchange:
        exchange.send(encode(request, xid=exchange.take_xids(1)))
        while True:
            frame = exchange.receive()
            if frame[1] != MULTIPART_REPLY:
                raise SwitchError(f"bridge {line.bridge} refused to tell its flows: {error_of(frame).name}")
            frames.append(frame)
            if not has_more(frame):
                return frames


def has_more(frame: bytes) -> bool:
    """Whether another message of this multipart reply follows (OFPMPF_REPLY_MORE)."""
    return len(frame) >= 12 and bool(frame[11] & 1)
