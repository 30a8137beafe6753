"""Flows and their counters, as a switch lists them (OpenFlow 1.4.0, 7.3.5.2 and 7.3.5.3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from struct import Struct

from xenoovs.openflow.action import Action
from xenoovs.openflow.flow import MAX_TABLE, Flow, FlowKey, ObservedFlow
from xenoovs.openflow.match import Match
from xenoovs.openflow.wire.flow_options import Options, options_of, words_of
from xenoovs.openflow.wire.instruction import decode_instructions, encode_instructions
from xenoovs.openflow.wire.match import decode_conditions, decode_match, encode_match
from xenoovs.openflow.wire.ports import ANY, port_name, port_number
from xenoovs.openflow.wire.reader import Reader

_REQUEST = Struct("!B3xII4xQQ")
_STATS = Struct("!HBxIIHHHHHxxQQQ")
_STATS_AND_MATCH = Struct(f"{_STATS.format}HH")
_AGGREGATE = Struct("!QQI4x")

_ALL_TABLES = 0xFF
"""OFPTT_ALL."""
_ANY_GROUP = ANY
_OXM_MATCH = 1
_NANOSECONDS = 1_000_000_000
_NO_OPTIONS = (0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class FlowFilter:
    """Which flows are meant. table: None: all. cookie: compared in the bits of cookie_mask. out_port: None: any.

    match: flows whose match is this or narrower.
    """

    table: int | None = None
    cookie: int = 0
    cookie_mask: int = 0
    match: Match = Match()  # noqa: RUF009 - a frozen value
    out_port: str | None = None


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Sums over the flows that a filter means."""

    packets: int
    bytes: int
    flows: int


def encode_filter(wanted: FlowFilter, ofports: Mapping[str, int]) -> bytes:
    table = _ALL_TABLES if wanted.table is None else wanted.table
    port = ANY if wanted.out_port is None else port_number(wanted.out_port, ofports)
    return _REQUEST.pack(table, port, _ANY_GROUP, wanted.cookie, wanted.cookie_mask) + encode_match(
        wanted.match, ofports
    )


def decode_filter(body: Reader, names: Mapping[int, str]) -> FlowFilter:
    """Groups are not looked at: xenoovs has none. Raises WireError."""
    table, port, _, cookie, cookie_mask = body.unpack(_REQUEST, "a request for flows")
    match = decode_match(body, names)
    body.expect_end("the end of a request for flows")
    out_port = None if port == ANY else port_name(port, names)
    return FlowFilter(None if table == _ALL_TABLES else table, cookie, cookie_mask, match, out_port)


def encode_flow_stats(flows: Iterable[ObservedFlow], ofports: Mapping[str, int]) -> bytes:
    """What a switch would answer."""
    return b"".join(_encode_one(flow, ofports) for flow in flows)


def decode_flow_stats(body: Reader, names: Mapping[int, str]) -> Iterator[ObservedFlow]:
    """All flows of one reply. Raises WireError."""
    known: dict[bytes, tuple[Action, ...]] = {}
    data, offset, end = body.data, body.offset, body.end
    while offset < end:
        body.offset = offset
        if end - offset < _STATS_AND_MATCH.size:
            raise body.error("a flow")
        length, table, *numbers, kind, match_size = _STATS_AND_MATCH.unpack_from(data, offset)
        next_offset, match_start = offset + length, offset + _STATS.size
        match_end = match_start + match_size
        actions_start = match_end + -match_size % 8
        if kind != _OXM_MATCH or match_size < 4 or not actions_start <= next_offset <= end or table > MAX_TABLE:
            raise body.error("a flow of a table, with its length and its match")
        match = decode_conditions(Reader(data, offset=match_start + 4, end=match_end), names)
        packed = data[actions_start:next_offset]
        if (actions := known.get(packed)) is None:
            actions = decode_instructions(Reader(data, offset=actions_start, end=next_offset), names)
            known[packed] = actions
        yield _observed(table, numbers, match, actions)
        offset = next_offset
    body.offset = end


def encode_aggregate(sums: Aggregate) -> bytes:
    return _AGGREGATE.pack(sums.packets, sums.bytes, sums.flows)


def decode_aggregate(body: Reader) -> Aggregate:
    """Raises WireError."""
    sums = Aggregate(*body.unpack(_AGGREGATE, "sums over flows"))
    body.expect_end("the end of the sums over flows")
    return sums


def _observed(table: int, numbers: list[int], match: Match, actions: tuple[Action, ...]) -> ObservedFlow:
    seconds, rest, priority, idle, hard, flags, importance, cookie, packets, size = numbers
    told = (idle, hard, flags, importance)
    words = () if told == _NO_OPTIONS else words_of(Options(*told))
    flow = Flow(FlowKey(table, priority, match), cookie, actions, words)
    return ObservedFlow(flow, packets, size, (seconds * _NANOSECONDS + rest) / _NANOSECONDS)


def _encode_one(observed: ObservedFlow, ofports: Mapping[str, int]) -> bytes:
    flow = observed.flow
    rest = encode_match(flow.match, ofports) + encode_instructions(flow.actions, ofports)
    options = options_of(flow.options)
    told = (options.idle_timeout, options.hard_timeout, options.flags, options.importance)
    time = divmod(round(observed.duration_s * _NANOSECONDS), _NANOSECONDS)
    counts = (flow.cookie, observed.packets, observed.bytes)
    return _STATS.pack(_STATS.size + len(rest), flow.table, *time, flow.priority, *told, *counts) + rest
