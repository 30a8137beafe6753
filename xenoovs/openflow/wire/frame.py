"""The header of all messages, and a stream cut into messages (OpenFlow Switch Specification 1.4.0, 7.1.1)."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from xenoovs.errors import WireError

VERSION = 0x05
"""OpenFlow 1.4 (7.1.1, ofp_header.version)."""

HEADER = Struct("!BBHI")
"""version, type, length with the header, xid (7.1.1, struct ofp_header)."""

LARGEST = 0xFFFF
"""Bytes of the longest message: the length has 16 bits."""

_VERSIONS = range(1, 7)


class Frames:
    """Cuts a stream into messages. All that is known of the peer is what it says: the length in each header."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the messages that are whole by now. Raises WireError for a header that no message has."""
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
