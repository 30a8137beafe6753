"""The header of all messages, and a stream cut into messages (OpenFlow Switch Specification 1.4.0, 7.1.1)."""

from __future__ import annotations

from struct import Struct

from xenoovs.errors import WireError

VERSION = 0x05
"""OpenFlow 1.4 (7.1.1, ofp_header.version)."""

HEADER = Struct("!BBHI")
"""version, type, length with the header, xid (7.1.1, struct ofp_header)."""

LARGEST = 0xFFFF
"""Bytes of the longest message: the length has 16 bits."""


def split(buffer: bytes) -> tuple[tuple[bytes, ...], bytes]:
    """The whole messages at the start of a stream, and the bytes behind them that are no whole message yet.

    Raises WireError for a length that is shorter than its own header: there is no way to find the next message.
    """
    messages = []
    start, end = 0, len(buffer)
    while end - start >= HEADER.size:
        length = int.from_bytes(buffer[start + 2 : start + 4])
        if length < HEADER.size:
            raise WireError(data=buffer, offset=start + 2, expected=f"a length of at least {HEADER.size}")
        if end - start < length:
            break
        messages.append(buffer[start : start + length])
        start += length
    return tuple(messages), buffer[start:]
