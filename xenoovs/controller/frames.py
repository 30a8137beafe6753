"""A stream of bytes as OpenFlow messages. All that is known of the peer is its word: the length in each header."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from xenoovs.errors import MalformedOpenFlow

HEADER = struct.Struct("!BBHI")
"""Version, type, length, transaction id (OpenFlow 1.4.0, 7.1.1)."""

_VERSIONS = range(1, 7)

HELLO, ERROR, ECHO_REQUEST, ECHO_REPLY, EXPERIMENTER = range(5)
FEATURES_REPLY = 6
PACKET_IN, PORT_STATUS = 10, 12
MULTIPART_REPLY, BARRIER_REPLY = 19, 21
ROLE_REPLY, ROLE_STATUS, BUNDLE_CONTROL = 25, 30, 33
"""Types of messages (OpenFlow 1.4.0, 7.1.1: enum ofp_type)."""

_ELEMENT = struct.Struct("!HHI")
_VERSION_BITMAP = 1
"""OpenFlow 1.4.0, 7.5.1: an element of a HELLO, here OFPHET_VERSIONBITMAP."""

_PORT_DESC = b"\x00\x0d"


class Frames:
    """Cuts what arrives into messages."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The messages that are whole by now. Raises MalformedOpenFlow."""
        data = self._rest + data if self._rest else data
        start, end = 0, len(data)
        while end - start >= HEADER.size:
            version, _, length, _ = HEADER.unpack_from(data, start)
            if version not in _VERSIONS:
                raise MalformedOpenFlow(f"a message of version {version:#04x}, which no OpenFlow has")
            if length < HEADER.size:
                raise MalformedOpenFlow(f"a message that says to be {length} bytes long")
            if end - start < length:
                break
            yield data[start : start + length]
            start += length
        self._rest = data[start:]


def is_answer(frame: bytes, xid: int) -> bool:
    """Whether a message has this transaction id."""
    return int.from_bytes(frame[4:8]) == xid


def spoken_versions(hello: bytes) -> tuple[int, ...]:
    """The wire versions that a HELLO offers: its bitmap, else all up to the one in its header (1.4.0, 6.3.1)."""
    offset = HEADER.size
    while len(hello) - offset >= 8:
        kind, length, bits = _ELEMENT.unpack_from(hello, offset)
        if kind == _VERSION_BITMAP:
            return tuple(version for version in range(32) if bits >> version & 1)
        offset += max(8, length + 7 & ~7)
    return tuple(range(1, hello[0] + 1))


def plain_hello(hello: bytes, spoken: tuple[int, ...]) -> bytes:
    """A HELLO that offers the same versions and has nothing else in it."""
    version, kind, length, xid = HEADER.unpack_from(hello)
    if length == HEADER.size:
        return hello
    bits = sum(1 << number for number in spoken if number < 32)
    return HEADER.pack(version, kind, HEADER.size + _ELEMENT.size, xid) + _ELEMENT.pack(_VERSION_BITMAP, 8, bits)


def is_port_description(frame: bytes) -> bool:
    """Whether it is a multipart reply that describes ports (OFPMP_PORT_DESC; 7.3.5.7)."""
    return frame[1] == MULTIPART_REPLY and frame[8:10] == _PORT_DESC
