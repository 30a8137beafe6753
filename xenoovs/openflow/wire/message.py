"""Whole messages, values to bytes and back (OpenFlow 1.4.0, 7.1.1), with multipart requests, bundles and ports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from struct import Struct, error
from types import MappingProxyType

from xenoovs.errors import NotEncodable, WireError, assert_never
from xenoovs.openflow.flow import Bundle, FlowMod, ObservedFlow
from xenoovs.openflow.wire import controller, flow, frame, switch
from xenoovs.openflow.wire.controller import (
    AsyncReply,
    AsyncRequest,
    PacketIn,
    PacketOut,
    RoleReply,
    RoleRequest,
    RoleStatus,
    SetAsync,
    decode_packet_in,
    decode_packet_out,
)
from xenoovs.openflow.wire.flow import (
    Aggregate,
    FlowFilter,
    FlowRemoved,
    decode_flow_mod,
    decode_flow_removed,
    encode_flow_mods,
)
from xenoovs.openflow.wire.frame import (
    ANY,
    BUNDLE_ADD_MESSAGE,
    BUNDLE_CONTROL,
    ERROR,
    HEADER,
    HELLO,
    LARGEST,
    LOCAL_NUMBER,
    NO_NAMES,
    NO_NUMBERS,
    RESERVED,
    VERSION,
    BarrierReply,
    BarrierRequest,
    EchoReply,
    EchoRequest,
    Error,
    Hello,
    Reader,
    decode_error,
    decode_hello,
    encode_error,
    encode_hello,
    padding,
    port_name,
    port_number,
)
from xenoovs.openflow.wire.switch import (
    ConfigReply,
    ConfigRequest,
    Description,
    FeaturesReply,
    FeaturesRequest,
    PortStats,
    SetConfig,
    TableStats,
)

# The ports of a switch and their changes (OpenFlow 1.4.0, 7.2.1 and 7.4.3).


_PORT = Struct("!IH2x6s2x16sII")
_STATUS = Struct("!B7x")
_NAME_BYTES = 15
"""OFP_MAX_PORT_NAME_LEN, without the final zero."""

_ADMIN_DOWN = 1 << 0
"""OFPPC_PORT_DOWN: set down by hand."""
_LINK_DOWN = 1 << 0
"""OFPPS_LINK_DOWN: no link."""

_WORDS = frozenset(RESERVED.values())


class PortReason(Enum):
    """enum ofp_port_reason."""

    ADD = 0
    DELETE = 1
    MODIFY = 2


@dataclass(frozen=True, slots=True)
class Port:
    """number: 32 bits, reserved ones among them. mac: 48 bits. config, state: OFPPC_* and OFPPS_* bits.

    name: at most 15 bytes, as the switch cut it. properties: bytes as they came (speeds, mostly).
    """

    number: int
    name: str
    mac: int
    config: int = 0
    state: int = 0
    properties: bytes = b""

    @property
    def is_up(self) -> bool:
        """It is set up and has a link."""
        return not self.config & _ADMIN_DOWN and not self.state & _LINK_DOWN

    @property
    def is_local(self) -> bool:
        """It is the bridge's own port, which has the name of the bridge."""
        return self.number == LOCAL_NUMBER


@dataclass(frozen=True, slots=True)
class PortStatus:
    """A port has come, gone or changed."""

    reason: PortReason
    port: Port


def numbers_of(ports: Iterable[Port]) -> dict[str, int]:
    """Number by name, without the reserved ports: what `encode` wants as `ofports`."""
    return {port.name: port.number for port in _nameable(ports)}


def names_of(ports: Iterable[Port]) -> dict[int, str]:
    """Name by number, likewise: what `decode` wants as `names`."""
    return {port.number: port.name for port in _nameable(ports)}


def _nameable(ports: Iterable[Port]) -> list[Port]:
    """The ports whose name means no other: Open vSwitch cuts long names, so that two ports may have one."""
    described = [port for port in ports if port.number not in RESERVED]
    counts = Counter(port.name for port in described)
    return [port for port in described if counts[port.name] == 1 and port.name not in _WORDS]


def encode_port(port: Port) -> bytes:
    """Raises NotEncodable for a name of more than 15 bytes."""
    name = port.name.encode("utf-8", "replace")
    if len(name) > _NAME_BYTES:
        raise NotEncodable(part=f"port {port.name}", reason=f"its name has more than {_NAME_BYTES} bytes")
    length = _PORT.size + len(port.properties)
    return _PORT.pack(port.number, length, port.mac.to_bytes(6, "big"), name, port.config, port.state) + port.properties


def decode_port(body: Reader) -> Port:
    """The next port, which is passed. Raises WireError."""
    start = body.offset
    number, length, mac, name, config, state = body.unpack(_PORT, "a port")
    if not _PORT.size <= length <= body.end - start:
        body.offset = start + 4
        raise body.error("the length of a port")
    # A name that was cut within a character is still to be shown.
    text = name.split(b"\0", 1)[0].decode("utf-8", "backslashreplace")
    properties = body.take(length - _PORT.size, "the properties of a port")
    return Port(number, text, int.from_bytes(mac, "big"), config, state, properties)


def decode_ports(body: Reader) -> Iterator[Port]:
    """All ports up to the end. Raises WireError."""
    while body.left:
        yield decode_port(body)


def encode_port_status(status: PortStatus) -> bytes:
    return _STATUS.pack(status.reason.value) + encode_port(status.port)


def decode_port_status(body: Reader) -> PortStatus:
    """Raises WireError."""
    start = body.offset
    (number,) = body.unpack(_STATUS, "the reason of a port status")
    if number not in _REASONS:
        body.offset = start
        raise body.error("the reason of a port status")
    port = decode_port(body)
    body.expect_end("the end of a port status")
    return PortStatus(_REASONS[number], port)


_REASONS = {reason.value: reason for reason in PortReason}


# Questions to a switch whose answers may take many messages (OpenFlow 1.4.0, 7.3.5).


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
            return _MULTIPART.pack(_FLOW, 0) + flow.encode_filter(wanted, ofports)
        case AggregateRequest(wanted):
            return _MULTIPART.pack(_AGGREGATE, 0) + flow.encode_filter(wanted, ofports)
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
            request = FlowStatsRequest(flow.decode_filter(body, names))
        case 2, 0:
            request = AggregateRequest(flow.decode_filter(body, names))
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
            return _MULTIPART.pack(_DESC, 0) + switch.encode_description(texts)
        case FlowStatsReply(flows, more):
            return _MULTIPART.pack(_FLOW, more) + flow.encode_flow_stats(flows, ofports)
        case AggregateReply(sums):
            return _MULTIPART.pack(_AGGREGATE, 0) + flow.encode_aggregate(sums)
        case TableStatsReply(tables, more):
            return _MULTIPART.pack(_TABLE, more) + switch.encode_table_stats(tables)
        case PortStatsReply(ports, more):
            return _MULTIPART.pack(_PORT_STATS, more) + switch.encode_port_stats(ports)
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
            return DescReply(switch.decode_description(body))
        case 1:
            return FlowStatsReply(tuple(flow.decode_flow_stats(body, names)), more)
        case 2:
            return AggregateReply(flow.decode_aggregate(body))
        case 3:
            return TableStatsReply(tuple(switch.decode_table_stats(body)), more)
        case 4:
            return PortStatsReply(tuple(switch.decode_port_stats(body)), more)
        case 13:
            return PortDescReply(tuple(decode_ports(body)), more)
        case _:
            return None


# Bundles: many messages that a switch takes all or none (OpenFlow 1.4.0, 7.3.9).


ATOMIC_AND_ORDERED = 0b11
"""OFPBF_ATOMIC and OFPBF_ORDERED: all or none, seen by no packet in part, in the order sent."""

_CONTROL = Struct("!IHH")
_ADD = Struct("!IxxH")


class BundleStep(Enum):
    """enum ofp_bundle_ctrl_type."""

    OPEN_REQUEST = 0
    OPEN_REPLY = 1
    CLOSE_REQUEST = 2
    CLOSE_REPLY = 3
    COMMIT_REQUEST = 4
    COMMIT_REPLY = 5
    DISCARD_REQUEST = 6
    DISCARD_REPLY = 7


@dataclass(frozen=True, slots=True)
class BundleControl:
    """properties: bytes as they came."""

    bundle_id: int
    step: BundleStep
    flags: int = ATOMIC_AND_ORDERED
    properties: bytes = b""


@dataclass(frozen=True, slots=True)
class BundleAdd:
    """inner: a whole message, whose xid is that of this message. properties: bytes as they came."""

    bundle_id: int
    inner: bytes
    flags: int = ATOMIC_AND_ORDERED
    properties: bytes = b""


def encode_bundle(bundle: Bundle, *, bundle_id: int, first_xid: int, ofports: Mapping[str, int]) -> Iterator[bytes]:
    """All messages of a bundle; hold back the last, the commit, until a barrier behind the others was answered.

    xids, which wrap at 32 bits: open `first_xid`, flow-mod n `first_xid + 1 + n`, commit the next. Open vSwitch answers
    open and commit. A flow-mod that it refuses it names by its xid in an error, at once or at the commit; one that was
    refused at once is left out of the bundle, and a commit would then install the others (handle_bundle_add() in
    ofproto/ofproto.c): discard the bundle instead. Raises NotEncodable.
    """
    flags = ATOMIC_AND_ORDERED
    yield _message(BUNDLE_CONTROL, first_xid, encode_control(BundleControl(bundle_id, BundleStep.OPEN_REQUEST)))
    head = _ADD.pack(bundle_id, flags)
    for xid, inner in enumerate(encode_flow_mods(bundle.mods, first_xid=first_xid + 1, ofports=ofports), first_xid + 1):
        yield _message(BUNDLE_ADD_MESSAGE, xid, head + inner)
    commit = BundleControl(bundle_id, BundleStep.COMMIT_REQUEST)
    yield _message(BUNDLE_CONTROL, first_xid + 1 + len(bundle), encode_control(commit))


def encode_control(control: BundleControl) -> bytes:
    return _CONTROL.pack(control.bundle_id, control.step.value, control.flags) + control.properties


def decode_control(body: Reader) -> BundleControl:
    """Raises WireError."""
    start = body.offset
    bundle_id, number, flags = body.unpack(_CONTROL, "a bundle control")
    if number not in _STEPS:
        body.offset = start + 4
        raise body.error("a step of a bundle")
    return BundleControl(bundle_id, _STEPS[number], flags, body.rest())


def encode_add(add: BundleAdd) -> bytes:
    fill = padding(len(add.inner)) if add.properties else b""
    return _ADD.pack(add.bundle_id, add.flags) + add.inner + fill + add.properties


def decode_add(body: Reader) -> BundleAdd:
    """Raises WireError."""
    bundle_id, flags = body.unpack(_ADD, "a bundle add")
    if body.left < HEADER.size:
        raise body.error("a message in a bundle")
    length = int.from_bytes(body.data[body.offset + 2 : body.offset + 4], "big")
    if length < HEADER.size:
        raise body.error("a message in a bundle that is as long as its header")
    inner = body.take(length, "a whole message in a bundle")
    if body.left:
        body.take(-length % 8, "padding")
    return BundleAdd(bundle_id, inner, flags, body.rest())


_STEPS = {step.value: step for step in BundleStep}


def _message(kind: int, xid: int, body: bytes) -> bytes:
    length = HEADER.size + len(body)
    if length > LARGEST:
        raise NotEncodable(part=f"a flow of {len(body)} bytes", reason="it does not fit a message of a bundle")
    return HEADER.pack(VERSION, kind, length, xid & 0xFFFFFFFF) + body


@dataclass(frozen=True, slots=True)
class Unknown:
    """A message of which only its type is known (7.1.1, enum ofp_type). body: the bytes behind the header."""

    kind: int
    body: bytes


Greeting = Hello | Error | EchoRequest | EchoReply | BarrierRequest | BarrierReply
Switch = FeaturesRequest | FeaturesReply | ConfigRequest | ConfigReply | SetConfig
Controllers = RoleRequest | RoleReply | RoleStatus | AsyncRequest | AsyncReply | SetAsync
Happening = PacketIn | FlowRemoved | PortStatus
Change = PacketOut | FlowMod | BundleControl | BundleAdd
Message = Greeting | Switch | Controllers | Happening | Change | Request | Reply | Unknown


@dataclass(frozen=True, slots=True)
class Received:
    """version: of the header; other than 5 for a HELLO or an error of a peer that speaks another one alone."""

    version: int
    xid: int
    message: Message


# What stands behind the header of each message: values to a type and bytes.


_Ofports = Mapping[str, int]


def encode_body(message: Message, ofports: _Ofports) -> tuple[int, bytes]:
    """The type of a message and its bytes behind the header. Raises NotEncodable and struct.error."""
    if isinstance(message, Unknown):
        return message.kind, message.body
    if isinstance(message, Greeting):
        return _greeting(message)
    if isinstance(message, Switch):
        return _switch(message)
    if isinstance(message, Controllers):
        return _controllers(message)
    if isinstance(message, Happening):
        return _happening(message, ofports)
    if isinstance(message, Request):
        return frame.MULTIPART_REQUEST, encode_request(message, ofports)
    if isinstance(message, Reply):
        return frame.MULTIPART_REPLY, encode_reply(message, ofports)
    return _change(message, ofports)


def _greeting(message: Greeting) -> tuple[int, bytes]:
    match message:
        case Hello():
            return frame.HELLO, encode_hello(message)
        case Error():
            return frame.ERROR, encode_error(message)
        case EchoRequest(data):
            return frame.ECHO_REQUEST, data
        case EchoReply(data):
            return frame.ECHO_REPLY, data
        case BarrierRequest():
            return frame.BARRIER_REQUEST, b""
        case BarrierReply():
            return frame.BARRIER_REPLY, b""
        case _:
            assert_never(message)


def _switch(message: Switch) -> tuple[int, bytes]:
    match message:
        case FeaturesRequest():
            return frame.FEATURES_REQUEST, b""
        case FeaturesReply():
            return frame.FEATURES_REPLY, switch.encode_features(message)
        case ConfigRequest():
            return frame.GET_CONFIG_REQUEST, b""
        case ConfigReply():
            return frame.GET_CONFIG_REPLY, switch.encode_config(message)
        case SetConfig():
            return frame.SET_CONFIG, switch.encode_config(message)
        case _:
            assert_never(message)


def _controllers(message: Controllers) -> tuple[int, bytes]:
    match message:
        case RoleRequest():
            return frame.ROLE_REQUEST, controller.encode_role(message)
        case RoleReply():
            return frame.ROLE_REPLY, controller.encode_role(message)
        case RoleStatus():
            return frame.ROLE_STATUS, controller.encode_role_status(message)
        case AsyncRequest():
            return frame.GET_ASYNC_REQUEST, b""
        case AsyncReply():
            return frame.GET_ASYNC_REPLY, controller.encode_events(message)
        case SetAsync():
            return frame.SET_ASYNC, controller.encode_events(message)
        case _:
            assert_never(message)


def _happening(message: Happening, ofports: _Ofports) -> tuple[int, bytes]:
    match message:
        case PacketIn():
            return frame.PACKET_IN, controller.encode_packet_in(message, ofports)
        case FlowRemoved():
            return frame.FLOW_REMOVED, flow.encode_flow_removed(message, ofports)
        case PortStatus():
            return frame.PORT_STATUS, encode_port_status(message)
        case _:
            assert_never(message)


def _change(message: Change, ofports: _Ofports) -> tuple[int, bytes]:
    match message:
        case PacketOut():
            return frame.PACKET_OUT, controller.encode_packet_out(message, ofports)
        case FlowMod():
            return frame.FLOW_MOD, flow.encode_flow_mod(message, xid=0, ofports=ofports)[HEADER.size :]
        case BundleControl():
            return frame.BUNDLE_CONTROL, encode_control(message)
        case BundleAdd():
            return frame.BUNDLE_ADD_MESSAGE, encode_add(message)
        case _:
            assert_never(message)


# What stands behind the header of each message: a type and bytes to values.


_Decode = Callable[[Reader], Message]
_DecodeNamed = Callable[[Reader, Mapping[int, str]], Message | None]


def decode_body(kind: int, body: Reader, names: Mapping[int, str]) -> Message | None:
    """None for a message of a type or form that xenoovs does not know. Raises WireError."""
    if (named := _NAMED.get(kind)) is not None:
        return named(body, names)
    decoder = _PLAIN.get(kind)
    if decoder is None:
        return None
    message = decoder(body)
    body.expect_end("the end of the message")
    return message


_NAMED: Mapping[int, _DecodeNamed] = MappingProxyType(
    {
        frame.PACKET_IN: decode_packet_in,
        frame.FLOW_REMOVED: decode_flow_removed,
        frame.PACKET_OUT: decode_packet_out,
        frame.FLOW_MOD: decode_flow_mod,
        frame.MULTIPART_REQUEST: decode_request,
        frame.MULTIPART_REPLY: decode_reply,
    }
)
"""Messages in which ports have names."""

_PLAIN: Mapping[int, _Decode] = MappingProxyType(
    {
        frame.HELLO: decode_hello,
        frame.ERROR: decode_error,
        frame.ECHO_REQUEST: lambda body: EchoRequest(body.rest()),
        frame.ECHO_REPLY: lambda body: EchoReply(body.rest()),
        frame.FEATURES_REQUEST: lambda _: FeaturesRequest(),
        frame.FEATURES_REPLY: switch.decode_features,
        frame.GET_CONFIG_REQUEST: lambda _: ConfigRequest(),
        frame.GET_CONFIG_REPLY: lambda body: ConfigReply(*switch.decode_config(body)),
        frame.SET_CONFIG: lambda body: SetConfig(*switch.decode_config(body)),
        frame.PORT_STATUS: decode_port_status,
        frame.BARRIER_REQUEST: lambda _: BarrierRequest(),
        frame.BARRIER_REPLY: lambda _: BarrierReply(),
        frame.ROLE_REQUEST: lambda body: RoleRequest(*controller.decode_role(body)),
        frame.ROLE_REPLY: lambda body: RoleReply(*controller.decode_role(body)),
        frame.GET_ASYNC_REQUEST: lambda _: AsyncRequest(),
        frame.GET_ASYNC_REPLY: lambda body: AsyncReply(*controller.decode_events(body)),
        frame.SET_ASYNC: lambda body: SetAsync(*controller.decode_events(body)),
        frame.ROLE_STATUS: controller.decode_role_status,
        frame.BUNDLE_CONTROL: decode_control,
        frame.BUNDLE_ADD_MESSAGE: decode_add,
    }
)


# Whole messages: values to bytes and back (OpenFlow 1.4.0, 7.1.1).


_OF_ANY_VERSION = (HELLO, ERROR)
"""What a peer may send before both sides have agreed on a version (6.3.1)."""


def encode(message: Message, *, xid: int, ofports: Mapping[str, int] = NO_NUMBERS) -> bytes:
    """A whole message. Raises NotEncodable."""
    name = type(message).__name__
    try:
        kind, body = encode_body(message, ofports)
    except (error, OverflowError) as problem:
        raise NotEncodable(part=name, reason=f"a number does not fit ({problem})") from None
    length = HEADER.size + len(body)
    if length > LARGEST:
        raise NotEncodable(part=name, reason=f"it has more than {LARGEST} bytes")
    return HEADER.pack(VERSION, kind, length, xid & 0xFFFFFFFF) + body


def decode(message: bytes, *, names: Mapping[int, str] = NO_NAMES) -> Received:
    """The value of one whole message, as `split` gives them. Raises WireError."""
    if len(message) < HEADER.size:
        raise WireError(data=message, offset=0, expected="the header of a message")
    version, kind, length, xid = HEADER.unpack_from(message)
    if length != len(message):
        raise WireError(data=message, offset=2, expected=f"the length {len(message)}")
    if version != VERSION and kind not in _OF_ANY_VERSION:
        raise WireError(data=message, offset=0, expected=f"version {VERSION} of OpenFlow")
    decoded = decode_body(kind, Reader(message, offset=HEADER.size), names)
    return Received(version, xid, Unknown(kind, message[HEADER.size :]) if decoded is None else decoded)
