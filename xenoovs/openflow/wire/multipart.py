"""Questions to a switch whose answers may take many messages (OpenFlow 1.4.0, 7.3.5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from struct import Struct
from typing import assert_never

from xenoovs.openflow.flow import ObservedFlow
from xenoovs.openflow.wire import flow_stats, statistics
from xenoovs.openflow.wire.flow_stats import Aggregate, FlowFilter
from xenoovs.openflow.wire.port import Port, decode_ports, encode_port
from xenoovs.openflow.wire.ports import ANY, port_name, port_number
from xenoovs.openflow.wire.reader import Reader
from xenoovs.openflow.wire.statistics import Description, PortStats, TableStats

_MULTIPART = Struct("!HH4x")
_PORT_REQUEST = Struct("!I4x")
_MORE = 1
"""OFPMPF_REQ_MORE and OFPMPF_REPLY_MORE."""
_DESC, _FLOW, _AGGREGATE, _TABLE, _PORT_STATS, _PORT_DESC = 0, 1, 2, 3, 4, 13
"""enum ofp_multipart_type."""


@dataclass(frozen=True, slots=True)
class DescRequest:
    """What is the switch?"""


@dataclass(frozen=True, slots=True)
class FlowStatsRequest:
    """Which flows are there?"""

    filter: FlowFilter = FlowFilter()  # noqa: RUF009 - a frozen value


@dataclass(frozen=True, slots=True)
class AggregateRequest:
    """How many flows, packets and bytes?"""

    filter: FlowFilter = FlowFilter()  # noqa: RUF009 - a frozen value


@dataclass(frozen=True, slots=True)
class TableStatsRequest:
    """How many flows and look-ups in each table?"""


@dataclass(frozen=True, slots=True)
class PortStatsRequest:
    """What went through a port? None: through each."""

    port: str | None = None


@dataclass(frozen=True, slots=True)
class PortDescRequest:
    """Which ports are there?"""


@dataclass(frozen=True, slots=True)
class DescReply:
    description: Description


@dataclass(frozen=True, slots=True)
class FlowStatsReply:
    """more: another reply with the same xid follows."""

    flows: tuple[ObservedFlow, ...]
    more: bool = False


@dataclass(frozen=True, slots=True)
class AggregateReply:
    sums: Aggregate


@dataclass(frozen=True, slots=True)
class TableStatsReply:
    tables: tuple[TableStats, ...]
    more: bool = False


@dataclass(frozen=True, slots=True)
class PortStatsReply:
    ports: tuple[PortStats, ...]
    more: bool = False


@dataclass(frozen=True, slots=True)
class PortDescReply:
    ports: tuple[Port, ...]
    more: bool = False


Request = DescRequest | FlowStatsRequest | AggregateRequest | TableStatsRequest | PortStatsRequest | PortDescRequest
Reply = DescReply | FlowStatsReply | AggregateReply | TableStatsReply | PortStatsReply | PortDescReply


def encode_request(request: Request, ofports: Mapping[str, int]) -> bytes:
    """Raises NotEncodable."""
    match request:
        case DescRequest():
            return _MULTIPART.pack(_DESC, 0)
        case FlowStatsRequest(wanted):
            return _MULTIPART.pack(_FLOW, 0) + flow_stats.encode_filter(wanted, ofports)
        case AggregateRequest(wanted):
            return _MULTIPART.pack(_AGGREGATE, 0) + flow_stats.encode_filter(wanted, ofports)
        case TableStatsRequest():
            return _MULTIPART.pack(_TABLE, 0)
        case PortStatsRequest(port):
            number = ANY if port is None else port_number(port, ofports)
            return _MULTIPART.pack(_PORT_STATS, 0) + _PORT_REQUEST.pack(number)
        case PortDescRequest():
            return _MULTIPART.pack(_PORT_DESC, 0)
        case _:
            assert_never(request)


def decode_request(body: Reader, names: Mapping[int, str]) -> Request | None:
    """None for a question that xenoovs never asks, and for one of several parts. Raises WireError."""
    kind, flags = body.unpack(_MULTIPART, "a multipart request")
    request: Request | None = None
    match kind, flags:
        case 0, 0:
            request = DescRequest()
        case 1, 0:
            request = FlowStatsRequest(flow_stats.decode_filter(body, names))
        case 2, 0:
            request = AggregateRequest(flow_stats.decode_filter(body, names))
        case 3, 0:
            request = TableStatsRequest()
        case 4, 0:
            (port,) = body.unpack(_PORT_REQUEST, "the port of a request")
            request = PortStatsRequest(None if port == ANY else port_name(port, names))
        case 13, 0:
            request = PortDescRequest()
        case _:
            return None
    body.expect_end("the end of a multipart request")
    return request


def encode_reply(reply: Reply, ofports: Mapping[str, int]) -> bytes:
    """Raises NotEncodable."""
    match reply:
        case DescReply(texts):
            return _MULTIPART.pack(_DESC, 0) + statistics.encode_description(texts)
        case FlowStatsReply(flows, more):
            return _MULTIPART.pack(_FLOW, more) + flow_stats.encode_flow_stats(flows, ofports)
        case AggregateReply(sums):
            return _MULTIPART.pack(_AGGREGATE, 0) + flow_stats.encode_aggregate(sums)
        case TableStatsReply(tables, more):
            return _MULTIPART.pack(_TABLE, more) + statistics.encode_table_stats(tables)
        case PortStatsReply(ports, more):
            return _MULTIPART.pack(_PORT_STATS, more) + statistics.encode_port_stats(ports)
        case PortDescReply(described, more):
            return _MULTIPART.pack(_PORT_DESC, more) + b"".join(map(encode_port, described))
        case _:
            assert_never(reply)


def decode_reply(body: Reader, names: Mapping[int, str]) -> Reply | None:
    """None for an answer to what xenoovs never asks. Raises WireError."""
    kind, flags = body.unpack(_MULTIPART, "a multipart reply")
    more = bool(flags & _MORE)
    match kind:
        case 0:
            return DescReply(statistics.decode_description(body))
        case 1:
            return FlowStatsReply(tuple(flow_stats.decode_flow_stats(body, names)), more)
        case 2:
            return AggregateReply(flow_stats.decode_aggregate(body))
        case 3:
            return TableStatsReply(tuple(statistics.decode_table_stats(body)), more)
        case 4:
            return PortStatsReply(tuple(statistics.decode_port_stats(body)), more)
        case 13:
            return PortDescReply(tuple(decode_ports(body)), more)
        case _:
            return None
