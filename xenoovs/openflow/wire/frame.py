"""Framing of OpenFlow 1.4: headers, a bounds-checked reader of bytes, port numbers, HELLO and errors."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from struct import Struct
from types import MappingProxyType
from typing import Any

from xenoovs.dataclass import dataclass
from xenoovs.errors import NotEncodable, WireError
from xenoovs.openflow.flow import LOCAL
from xenoovs.openflow.text import name_of_number, number_of_name

VERSION = 0x05
"""OpenFlow 1.4 (7.1.1, ofp_header.version)."""

HEADER = Struct("!BBHI")
"""version, type, length with the header, xid (7.1.1, struct ofp_header)."""

LARGEST = 0xFFFF
"""Bytes of the longest message: the length has 16 bits."""

_VERSIONS = range(1, 7)


# Types of messages (OpenFlow 1.4.0, 7.1.1, enum ofp_type).


HELLO = 0
ERROR = 1
ECHO_REQUEST = 2
ECHO_REPLY = 3
FEATURES_REQUEST = 5
FEATURES_REPLY = 6
PACKET_IN = 10
PORT_STATUS = 12
PACKET_OUT = 13
FLOW_MOD = 14
GROUP_MOD = 15
MULTIPART_REQUEST = 18
MULTIPART_REPLY = 19
BARRIER_REQUEST = 20
BARRIER_REPLY = 21
ROLE_REQUEST = 24
ROLE_REPLY = 25
ROLE_STATUS = 30
BUNDLE_CONTROL = 33
BUNDLE_ADD_MESSAGE = 34


def message(kind: int, body: bytes = b"", *, xid: int, version: int = VERSION) -> bytes:
    """Return a whole message. Raises NotEncodable for one of more than 65,535 bytes."""
    length = HEADER.size + len(body)
    if length > LARGEST:
        raise NotEncodable(part=f"a message of {length} bytes", reason=f"it has more than {LARGEST} bytes")
    return HEADER.pack(version, kind, length, xid & 0xFFFFFFFF) + body


class Frames:
    """Splits a stream into messages by the length in each header."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the messages that are complete. Raises WireError for a header that no message has."""
        data = self._rest + data if self._rest else data
        start, end = 0, len(data)
        while end - start >= HEADER.size:
            version, _, length, _ = HEADER.unpack_from(data, start)
            if version not in _VERSIONS or length < HEADER.size:
                header = data[start : start + HEADER.size]
                expected = "the version and the length of a message"
                raise WireError(data=header, offset=0 if version not in _VERSIONS else 2, expected=expected)
            if end - start < length:
                break
            yield data[start : start + length]
            start += length
        self._rest = data[start:]


U16, U32 = Struct("!H"), Struct("!I")
_ELEMENT = Struct("!HH")
"""Type and length of an element of a message."""


class Reader:
    """Reads one part of a message in order; reading beyond its end raises WireError."""

    __slots__ = ("data", "end", "offset")

    def __init__(self, data: bytes, *, offset: int = 0, end: int | None = None) -> None:
        self.data, self.offset = data, offset
        self.end = len(data) if end is None else end

    @property
    def left(self) -> int:
        return self.end - self.offset

    def unpack(self, layout: Struct, expected: str) -> tuple[Any, ...]:
        """Return the values of a fixed part. Raises WireError."""
        if self.left < layout.size:
            raise self.error(expected)
        values = layout.unpack_from(self.data, self.offset)
        self.offset += layout.size
        return values

    def take(self, size: int, expected: str) -> bytes:
        """Return the next `size` bytes. Raises WireError."""
        if not 0 <= size <= self.left:
            raise self.error(expected)
        start, self.offset = self.offset, self.offset + size
        return self.data[start : self.offset]

    def rest(self) -> bytes:
        return self.take(self.left, "the rest")

    def part(self, size: int, expected: str) -> Reader:
        """Return a reader of the next `size` bytes alone, and skip them here. Raises WireError."""
        if not 0 <= size <= self.left:
            raise self.error(expected)
        start, self.offset = self.offset, self.offset + size
        return Reader(self.data, offset=start, end=self.offset)

    def element(self, expected: str) -> tuple[int, bytes]:
        """Return the type and all bytes of the next element, whose length is a multiple of 8. Raises WireError."""
        start = self.offset
        kind, length = self.unpack(_ELEMENT, expected)
        if length < 8 or length % 8 or length > self.end - start:
            self.offset = start + 2
            raise self.error(f"the length of {expected}, a multiple of 8")
        self.offset = start + length
        return kind, self.data[start : self.offset]

    def expect_end(self, expected: str) -> None:
        """Raises WireError unless all bytes were read."""
        if self.left:
            raise self.error(expected)

    def error(self, expected: str) -> WireError:
        return WireError(data=self.data, offset=self.offset, expected=expected)


def body_of(frame: bytes, kind: int, expected: str) -> Reader:
    """Return a reader of what follows the header of a message of this type. Raises WireError."""
    if len(frame) < HEADER.size:
        raise WireError(data=frame, offset=0, expected="the header of a message")
    version, found, length, _ = HEADER.unpack_from(frame)
    if length != len(frame):
        raise WireError(data=frame, offset=2, expected=f"the length {len(frame)}")
    # A peer may send HELLO and errors before both sides have agreed on a version (6.3.1).
    if version != VERSION and kind not in (HELLO, ERROR):
        raise WireError(data=frame, offset=0, expected=f"version {VERSION} of OpenFlow")
    if found != kind:
        raise WireError(data=frame, offset=1, expected=expected)
    return Reader(frame, offset=HEADER.size)


def padded(data: bytes) -> bytes:
    """Return the data, filled up to a multiple of 8 bytes."""
    return data + bytes(-len(data) % 8)


# Port numbers and names. Sources: OpenFlow 1.4.0, 7.2.1 (enum ofp_port_no); ovs-ofctl(8), "--names".


IN_PORT = 0xFFFFFFF8
TABLE = 0xFFFFFFF9
NORMAL = 0xFFFFFFFA
FLOOD = 0xFFFFFFFB
ALL = 0xFFFFFFFC
CONTROLLER = 0xFFFFFFFD
LOCAL_NUMBER = 0xFFFFFFFE
ANY = 0xFFFFFFFF

RESERVED: Mapping[int, str] = MappingProxyType(
    {
        IN_PORT: "IN_PORT",
        TABLE: "TABLE",
        NORMAL: "NORMAL",
        FLOOD: "FLOOD",
        ALL: "ALL",
        CONTROLLER: "CONTROLLER",
        LOCAL_NUMBER: LOCAL,
        ANY: "ANY",
    }
)
"""What ovs-ofctl(8) calls the reserved ports."""

_BY_NAME = {name: number for number, name in RESERVED.items()}
_FIRST_RESERVED_16, _WIDER = 0xFF00, 0xFFFF0000

NO_NUMBERS: Mapping[str, int] = MappingProxyType({})


def port_number(name: str, ofports: Mapping[str, int]) -> int:
    """Return the number of a port, 32 bits, also of one called by its number (text.py). Raises NotEncodable."""
    if (number := ofports.get(name)) is not None:
        # Tables of Open vSwitch hold 16 bits: 65534 is OFPP_LOCAL (ofputil_port_to_ofp11() in lib/ofp-port.c).
        return number | _WIDER if _FIRST_RESERVED_16 <= number <= 0xFFFF else number
    if (number := _BY_NAME.get(name)) is not None:
        return number
    if (number := number_of_name(name)) is not None and number <= ANY:
        return number
    raise NotEncodable(part=f"port {name}", reason="the bridge has no port of this name")


def port_name(number: int, names: Mapping[int, str]) -> str:
    """Return the name of a port; for a number without a name what `parse_name` calls it."""
    return RESERVED.get(number) or names.get(number) or name_of_number(number)


# HELLO, the first message on a connection: which versions each side speaks (OpenFlow 1.4.0, 6.3.1 and 7.5.1).


_VERSION_BITMAP = 1
"""enum ofp_hello_elem_type: OFPHET_VERSIONBITMAP."""

_VERSION_NAMES = ("OpenFlow10", "OpenFlow11", "OpenFlow12", "OpenFlow13", "OpenFlow14", "OpenFlow15")
"""As column protocols of ovs-vswitchd.conf.db(5) has them, from version 1 of the wire."""


def name_versions(versions: Iterable[int]) -> tuple[str, ...]:
    """Return the names that Open vSwitch has for these versions."""
    return tuple(_VERSION_NAMES[version - 1] for version in sorted(versions) if 0 < version <= len(_VERSION_NAMES))


def encode_hello(versions: Iterable[int], *, xid: int) -> bytes:
    """Return a HELLO that offers these versions, each below 32."""
    offered = frozenset(versions)
    element = _ELEMENT.pack(_VERSION_BITMAP, _ELEMENT.size + U32.size) + U32.pack(sum(1 << each for each in offered))
    return message(HELLO, element, xid=xid, version=max(offered))


def decode_hello(frame: bytes) -> frozenset[int]:
    """Return the versions that a HELLO offers: without a bitmap all up to that of its header (6.3.1).

    Never refuses the content: a HELLO may carry elements of later versions. Raises WireError for another message.
    """
    body = body_of(frame, HELLO, "a HELLO")
    while body.left >= _ELEMENT.size:
        start = body.offset
        kind, length = _ELEMENT.unpack_from(body.data, start)
        if not _ELEMENT.size <= length <= body.left:
            break
        if kind == _VERSION_BITMAP and (versions := frozenset(_bits(frame[start + _ELEMENT.size : start + length]))):
            return versions
        body.offset = min(start + length + -length % 8, body.end)
    return frozenset(range(1, frame[0] + 1))


def _bits(bitmap: bytes) -> Iterator[int]:
    for index in range(len(bitmap) // 4):
        word = int.from_bytes(bitmap[4 * index : 4 * index + 4], "big")
        yield from (32 * index + bit for bit in range(32) if word >> bit & 1)


# Names of all errors of OpenFlow 1.4 and of Open vSwitch's own are in errors.json: by type in the order of their codes,
# and by vendor and code. Sources: OpenFlow 1.4.0, 7.5.4; ofp-errors.h of OVS. Spelled as Open vSwitch prints them, also
# where the specification has other words: BAD_STAT for BAD_MULTIPART, IS_SECONDARY for IS_SLAVE.


EXPERIMENTER = 0xFFFF
"""OFPET_EXPERIMENTER: the code is the vendor's, whose number follows (7.5.4.18)."""

NICIRA, ONF = 0x00002320, 0x4F4E4600
"""Vendors (include/openflow/openflow-common.h of Open vSwitch: NX_VENDOR_ID, ONF_VENDOR_ID)."""


@cache
def _error_names() -> Any:
    return json.loads(Path(__file__).with_name("errors.json").read_text(encoding="utf-8"))


def error_name(kind: int, code: int, *, vendor: int | None = None) -> str:
    """Return the name of an error; `type 5, code 99` for one that has none."""
    if kind == EXPERIMENTER and vendor is not None:
        by_code = _error_names()["vendors"].get(f"{vendor:#x}", {})
        return str(by_code.get(str(code), f"vendor {vendor:#x}, code {code}"))
    names = _error_names()["types"].get(str(kind), "").split()
    return str(names[code]) if code < len(names) else f"type {kind}, code {code}"


_ERROR = Struct("!HH")


@dataclass(frozen=True, slots=True)
class Error:
    """What a switch refused and why (OpenFlow 1.4.0, 7.5.4). `kind`: ofp_error_msg.type; 0xffff for the errors that
    Open vSwitch itself defines. `code`: ofp_error_msg.code. `data`: as it came, mostly the start of the refused
    message; for kind 0xffff behind 4 bytes of the vendor."""

    kind: int
    code: int
    data: bytes = b""

    @property
    def vendor(self) -> int | None:
        """Of an experimenter's error (7.5.4.18), else None."""
        return int.from_bytes(self.data[: U32.size], "big") if self.kind == EXPERIMENTER else None

    @property
    def name(self) -> str:
        """As Open vSwitch calls it, such as OFPFMFC_TABLE_FULL; numbers for one without a name."""
        return error_name(self.kind, self.code, vendor=self.vendor)

    @property
    def refused(self) -> bytes:
        """The start of the refused message: at least 64 bytes of it, for a HELLO a text instead."""
        return self.data[U32.size :] if self.kind == EXPERIMENTER else self.data

    @property
    def refused_xid(self) -> int | None:
        """Return the xid of the refused message; None if too little of it came."""
        return HEADER.unpack_from(self.refused)[3] if len(self.refused) >= HEADER.size else None


def decode_error(frame: bytes) -> Error:
    """Raises WireError."""
    body = body_of(frame, ERROR, "an error")
    kind, code = body.unpack(_ERROR, "type and code of an error")
    return Error(kind, code, body.rest())
