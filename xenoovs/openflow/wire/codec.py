"""Whole messages: values to bytes and back (OpenFlow 1.4.0, 7.1.1)."""

from __future__ import annotations

from collections.abc import Mapping
from struct import error

from xenoovs.errors import NotEncodable, WireError
from xenoovs.openflow.wire.decode_body import decode_body
from xenoovs.openflow.wire.encode_body import encode_body
from xenoovs.openflow.wire.frame import HEADER, LARGEST, VERSION
from xenoovs.openflow.wire.kinds import ERROR, HELLO
from xenoovs.openflow.wire.message import Message, Received, Unknown
from xenoovs.openflow.wire.ports import NO_NAMES, NO_NUMBERS
from xenoovs.openflow.wire.reader import Reader

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
