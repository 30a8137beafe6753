"""Dumps and counts of flows by multipart requests (OpenFlow 1.4.0, 7.3.5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain

from xenoovs.errors import WireError
from xenoovs.openflow.cookie import Cookies
from xenoovs.openflow.flow import ObservedFlow
from xenoovs.openflow.render import render_flow
from xenoovs.openflow.wire.codec import decode
from xenoovs.openflow.wire.flow_stats import FlowFilter
from xenoovs.openflow.wire.multipart import AggregateReply, AggregateRequest, FlowStatsReply, FlowStatsRequest
from xenoovs.switch.openflow.exchange import Exchange, answers


def request_flows(exchange: Exchange, only: Cookies) -> tuple[bytes, ...]:
    """Return the undecoded messages that list the flows with these cookies. Raises SwitchError, WireError."""
    return tuple(chain.from_iterable(answers(exchange, (FlowStatsRequest(each) for each in _filters(only)))))


def decode_flows(frames: Iterable[bytes], names: Mapping[int, str]) -> tuple[ObservedFlow, ...]:
    """Return the flows in the order of the messages. `names`: port names by number. Raises WireError."""
    found: list[ObservedFlow] = []
    for frame in frames:
        reply = decode(frame, names=names).message
        if not isinstance(reply, FlowStatsReply):
            raise WireError(data=frame, offset=8, expected="flows")
        found += reply.flows
    return tuple(found)


def count_flows(exchange: Exchange, only: Cookies) -> tuple[int, ...]:
    """Return how many flows have the cookies of each mask. Raises SwitchError, WireError."""
    replies = answers(exchange, (AggregateRequest(each) for each in _filters(only)))
    return tuple(sum(map(_number_of_flows, frames)) for frames in replies)


def render_dump(flows: Iterable[ObservedFlow]) -> str:
    """Return the lines that `ovs-ofctl --no-stats dump-flows` prints for these flows."""
    return "".join(f" {render_flow(seen.flow)}\n" for seen in flows)


def _filters(only: Cookies) -> Iterable[FlowFilter]:
    return (FlowFilter(cookie=each.value, cookie_mask=each.mask) for each in only)


def _number_of_flows(frame: bytes) -> int:
    reply = decode(frame).message
    if not isinstance(reply, AggregateReply):
        raise WireError(data=frame, offset=8, expected="a number of flows")
    return reply.sums.flows
