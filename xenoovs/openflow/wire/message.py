"""OpenFlow 1.4 messages: those that a controller sends are encoded, those that a switch sends are decoded.

Each encoder returns bytes; each decoder takes one whole message and raises WireError for any other bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from struct import Struct

from xenoovs.dataclass import dataclass
from xenoovs.openflow.flow import Action, Bundle, CookieMask, Group, Match, ObservedFlow
from xenoovs.openflow.wire.flow import decode_flow_stats, decode_groups, encode_actions, encode_mods
from xenoovs.openflow.wire.frame import (
    ANY,
    BUNDLE_ADD_MESSAGE,
    BUNDLE_CONTROL,
    CONTROLLER,
    FEATURES_REPLY,
    LOCAL_NUMBER,
    MULTIPART_REPLY,
    MULTIPART_REQUEST,
    NO_NUMBERS,
    PACKET_IN,
    PACKET_OUT,
    PORT_STATUS,
    RESERVED,
    ROLE_REPLY,
    ROLE_REQUEST,
    Reader,
    body_of,
    message,
)
from xenoovs.openflow.wire.match import decode_match, encode_match

# The ports of a switch and their changes (OpenFlow 1.4.0, 7.2.1 and 7.4.3).


_PORT = Struct("!IH2x6s2x16sII")
_PORT_STATUS = Struct("!B7x")

_ADMIN_DOWN = 1 << 0
"""OFPPC_PORT_DOWN: set down by hand."""
_LINK_DOWN = 1 << 0
"""OFPPS_LINK_DOWN: no link."""
_LIVE = 1 << 2
"""OFPPS_LIVE: a fast failover group may send by it (OpenFlow 1.4.1, 7.2.1)."""

_WORDS = frozenset(RESERVED.values())


class PortReason(Enum):
    """enum ofp_port_reason."""

    ADD = 0
    DELETE = 1
    MODIFY = 2


@dataclass(frozen=True, slots=True)
class Port:
    """A port as a switch describes it. `number`: 32 bits, also a reserved one. `name`: at most 15 bytes, as the switch
    cut it. `mac`: 48 bits. `config`, `state`: OFPPC_* and OFPPS_* bits."""

    number: int
    name: str
    mac: int
    config: int = 0
    state: int = 0

    @property
    def is_up(self) -> bool:
        """Whether it is enabled and has a link."""
        return not self.config & _ADMIN_DOWN and not self.state & _LINK_DOWN

    @property
    def is_live(self) -> bool:
        """Whether Open vSwitch takes it for able to carry packets: by its link, and by BFD if it is watched."""
        return bool(self.state & _LIVE)

    @property
    def is_local(self) -> bool:
        """Whether it is the bridge's own port, which has the name of the bridge."""
        return self.number == LOCAL_NUMBER


def numbers_of(ports: Iterable[Port]) -> dict[str, int]:
    """Return numbers by name, without the reserved ports: what encoders take as `ofports`."""
    return {port.name: port.number for port in _nameable(ports)}


def names_of(ports: Iterable[Port]) -> dict[int, str]:
    """Return names by number, likewise: what decoders take as `names`."""
    return {port.number: port.name for port in _nameable(ports)}


def _nameable(ports: Iterable[Port]) -> list[Port]:
    """Return the ports whose name is unique: Open vSwitch cuts long names, so that two ports may have one."""
    described = [port for port in ports if port.number not in RESERVED]
    counts = Counter(port.name for port in described)
    return [port for port in described if counts[port.name] == 1 and port.name not in _WORDS]


def decode_port_status(frame: bytes) -> tuple[PortReason, Port]:
    """Return which port has appeared, vanished or changed. Raises WireError."""
    body = body_of(frame, PORT_STATUS, "a port status")
    start = body.offset
    (number,) = body.unpack(_PORT_STATUS, "the reason of a port status")
    if number not in _PORT_REASONS:
        body.offset = start
        raise body.error("the reason of a port status")
    port = _decode_port(body)
    body.expect_end("the end of a port status")
    return _PORT_REASONS[number], port


_PORT_REASONS = {reason.value: reason for reason in PortReason}


def _decode_port(body: Reader) -> Port:
    start = body.offset
    number, length, mac, name, config, state = body.unpack(_PORT, "a port")
    if not _PORT.size <= length <= body.end - start:
        body.offset = start + 4
        raise body.error("the length of a port")
    # A name that was cut within a character must still be printable.
    text = name.split(b"\0", 1)[0].decode("utf-8", "backslashreplace")
    body.offset = start + length
    return Port(number, text, int.from_bytes(mac, "big"), config, state)


# Multipart messages (OpenFlow 1.4.0, 7.3.5): statistics and descriptions, which may take many messages.


_MULTIPART = Struct("!HH4x")
_MORE = 1
"""OFPMPF_REPLY_MORE."""
_FLOW, _AGGREGATE, _GROUP_DESC, _PORT_DESC = 1, 2, 7, 13
"""enum ofp_multipart_type."""

_FLOW_REQUEST = Struct("!B3xII4xQQ")
_AGGREGATE_REPLY = Struct("!QQI4x")
ALL_TABLES = 0xFF
"""OFPTT_ALL."""


def encode_ports_request(xid: int) -> bytes:
    return message(MULTIPART_REQUEST, _MULTIPART.pack(_PORT_DESC, 0), xid=xid)


def encode_groups_request(xid: int) -> bytes:
    return message(MULTIPART_REQUEST, _MULTIPART.pack(_GROUP_DESC, 0), xid=xid)


def encode_flows_request(only: CookieMask, xid: int, *, table: int = ALL_TABLES, group: int = ANY) -> bytes:
    """Return the request for the flows with these cookies, and with an action of this group."""
    return message(MULTIPART_REQUEST, _MULTIPART.pack(_FLOW, 0) + _flow_filter(only, table, group), xid=xid)


def encode_count_request(only: CookieMask, xid: int) -> bytes:
    """Return the request for the number of flows with these cookies."""
    return message(MULTIPART_REQUEST, _MULTIPART.pack(_AGGREGATE, 0) + _flow_filter(only, ALL_TABLES), xid=xid)


def _flow_filter(only: CookieMask, table: int, group: int = ANY) -> bytes:
    return _FLOW_REQUEST.pack(table, ANY, group, only.value, only.mask) + encode_match(Match(), NO_NUMBERS)


def has_more(frame: bytes) -> bool:
    """Return whether another reply with the same transaction id follows. Raises WireError."""
    _, flags = body_of(frame, MULTIPART_REPLY, "a multipart reply").unpack(_MULTIPART, "a multipart reply")
    return bool(flags & _MORE)


def decode_ports(frame: bytes) -> tuple[Port, ...]:
    """Raises WireError."""
    body = _reply(frame, _PORT_DESC, "ports")
    ports = []
    while body.left:
        ports.append(_decode_port(body))
    return tuple(ports)


def is_of_groups(frame: bytes) -> bool:
    """Return whether a multipart reply describes groups. Raises WireError."""
    kind, _ = body_of(frame, MULTIPART_REPLY, "a multipart reply").unpack(_MULTIPART, "a multipart reply")
    return bool(kind == _GROUP_DESC)


def decode_group_descriptions(frame: bytes, names: Mapping[int, str]) -> tuple[Group, ...]:
    """Raises WireError."""
    return tuple(decode_groups(_reply(frame, _GROUP_DESC, "groups"), names))


def decode_flows(frame: bytes, names: Mapping[int, str]) -> Iterator[ObservedFlow]:
    """Yield the flows of one reply. Raises WireError."""
    return decode_flow_stats(_reply(frame, _FLOW, "flows"), names)


def decode_count(frame: bytes) -> int:
    """Return the number of flows. Raises WireError."""
    body = _reply(frame, _AGGREGATE, "a number of flows")
    _, _, flows = body.unpack(_AGGREGATE_REPLY, "sums over flows")
    body.expect_end("the end of the sums over flows")
    return int(flows)


def _reply(frame: bytes, part: int, expected: str) -> Reader:
    body = body_of(frame, MULTIPART_REPLY, expected)
    kind, _ = body.unpack(_MULTIPART, "a multipart reply")
    if kind != part:
        body.offset -= _MULTIPART.size
        raise body.error(expected)
    return body


# Bundles: many messages that a switch applies all or none (OpenFlow 1.4.0, 7.3.9).


_ATOMIC_AND_ORDERED = 0b11
"""OFPBF_ATOMIC and OFPBF_ORDERED: all or none, seen by no packet in part, in the order sent."""
_OPEN, _COMMIT, _DISCARD = 0, 4, 6
"""enum ofp_bundle_ctrl_type."""

_CONTROL = Struct("!IHH")
_ADD = Struct("!IxxH")


def encode_bundle(bundle: Bundle, *, bundle_id: int, first_xid: int, ofports: Mapping[str, int]) -> Iterator[bytes]:
    """Yield all messages of a bundle; hold back the last, the commit, until a barrier behind the others was answered.

    xids, which wrap at 32 bits: open `first_xid`, flow-mod n `first_xid + 1 + n`, commit the next. Open vSwitch answers
    open and commit. A flow-mod that it refuses it names by its xid in an error, at once or at the commit; one that was
    refused at once is left out of the bundle, and a commit would then install the others (handle_bundle_add() in
    ofproto/ofproto.c): discard the bundle instead. Raises NotEncodable.
    """
    yield _bundle_control(bundle_id, _OPEN, first_xid)
    head = _ADD.pack(bundle_id, _ATOMIC_AND_ORDERED)
    for xid, inner in enumerate(encode_mods(bundle.in_order, first_xid=first_xid + 1, ofports=ofports), first_xid + 1):
        yield message(BUNDLE_ADD_MESSAGE, head + inner, xid=xid)
    yield _bundle_control(bundle_id, _COMMIT, first_xid + 1 + len(bundle))


def encode_discard(bundle_id: int, xid: int) -> bytes:
    return _bundle_control(bundle_id, _DISCARD, xid)


def _bundle_control(bundle_id: int, step: int, xid: int) -> bytes:
    return message(BUNDLE_CONTROL, _CONTROL.pack(bundle_id, step, _ATOMIC_AND_ORDERED), xid=xid)


# Packets that a switch sends to a controller, and the other way (OpenFlow 1.4.0, 7.4.1 and 7.3.6).


NO_BUFFER = 0xFFFFFFFF
"""buffer_id of a packet that the switch does not keep (OFP_NO_BUFFER)."""

WHOLE_PACKET = 0xFFFF
"""max_len of a packet that is sent uncut (7.3.2, OFPCML_NO_BUFFER)."""

_PACKET_IN = Struct("!IHBBQ")
_PACKET_OUT = Struct("!IIH6x")
_PAD = 2


@dataclass(frozen=True, slots=True)
class PacketIn:
    """A packet that a flow sent to the controller. `match`: where it came in, and registers. `data`: the frame, perhaps
    cut."""

    match: Match
    data: bytes


def decode_packet_in(frame: bytes, names: Mapping[int, str]) -> PacketIn:
    """Raises WireError."""
    body = body_of(frame, PACKET_IN, "a packet-in")
    body.unpack(_PACKET_IN, "a packet-in")
    match = decode_match(body, names)
    body.take(_PAD, "the padding of a packet-in")
    return PacketIn(match, body.rest())


def encode_packet_out(actions: tuple[Action, ...], frame: bytes, ofports: Mapping[str, int], *, xid: int) -> bytes:
    """Return the request to execute actions on a frame. Raises NotEncodable."""
    packed = encode_actions(actions, ofports)
    head = _PACKET_OUT.pack(NO_BUFFER, CONTROLLER, len(packed))
    return message(PACKET_OUT, head + packed + frame, xid=xid)


# What a switch is, and which of several controllers may change it (OpenFlow 1.4.0, 7.3.1, 6.3.5, 7.3.8 and 7.4.4).


_ROLE = Struct("!I4xQ")
_FEATURES = Struct("!QIBB2xII")


class Role(Enum):
    """enum ofp_controller_role. NOCHANGE only asks."""

    NOCHANGE = 0
    EQUAL = 1
    MASTER = 2
    SLAVE = 3


def encode_role_request(role: Role, generation_id: int, xid: int) -> bytes:
    """Return the request for a role. `generation_id`: 64 bits; MASTER and SLAVE with an older one than the switch saw
    are refused (OFPRRFC_STALE)."""
    return message(ROLE_REQUEST, _ROLE.pack(role.value, generation_id), xid=xid)


def decode_role(frame: bytes) -> tuple[Role, int]:
    """Return role and generation id; the latter is all ones where no controller has set one. Raises WireError."""
    body = body_of(frame, ROLE_REPLY, "a role reply")
    start = body.offset
    number, generation_id = body.unpack(_ROLE, "a role")
    if number not in _ROLES:
        body.offset = start
        raise body.error("a role of a controller")
    body.expect_end("the end of the message")
    return _ROLES[number], generation_id


_ROLES = {role.value: role for role in Role}


def decode_features(frame: bytes) -> int:
    """Return the datapath id, 64 bits. Raises WireError."""
    body = body_of(frame, FEATURES_REPLY, "the features of a switch")
    datapath_id = body.unpack(_FEATURES, "the features of a switch")[0]
    body.expect_end("the end of the message")
    return int(datapath_id)
