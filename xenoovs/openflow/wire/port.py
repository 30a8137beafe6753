"""The ports of a switch and their changes (OpenFlow 1.4.0, 7.2.1 and 7.4.3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from struct import Struct

from xenoovs.errors import NotEncodable
from xenoovs.openflow.wire.ports import LOCAL_NUMBER, RESERVED
from xenoovs.openflow.wire.reader import Reader

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
    return _PORT.pack(port.number, length, port.mac.to_bytes(6), name, port.config, port.state) + port.properties


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
    return Port(number, text, int.from_bytes(mac), config, state, properties)


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
