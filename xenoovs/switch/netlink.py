"""Netlink (netlink(7), rtnetlink(7)): messages and attributes as bytes, and a socket that keeps error texts.

Numbers are from the headers of Linux: uapi/linux/netlink.h and uapi/linux/rtnetlink.h.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from xenoovs.errors import SwitchError

NLM_F_REQUEST, NLM_F_ACK, NLM_F_DUMP, NLM_F_EXCL, NLM_F_CREATE = 0x1, 0x4, 0x300, 0x200, 0x400
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_NLM_F_CAPPED, _NLM_F_ACK_TLVS = 0x100, 0x200
_NLMSGERR_ATTR_MSG = 1
_SOL_NETLINK, _NETLINK_CAP_ACK, _NETLINK_EXT_ACK = 270, 10, 11
_NLA_TYPE_MASK = 0x3FFF
"""Of the 16 bits of an attribute's type the upper two are flags (NLA_F_NESTED, NLA_F_NET_BYTEORDER)."""

_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_RECEIVE_BYTES = 1 << 17
_TIMEOUT_S = 10.0

Attribute = tuple[int, bytes]
"""Type with its flags, and payload."""


class Refused(Exception):
    """The kernel refused a request. `text`: its extended acknowledgement, or empty."""

    def __init__(self, error: int, text: str) -> None:
        self.error, self.text = error, text
        super().__init__(text or os.strerror(error))


class Netlink(Protocol):
    """A kernel that answers requests."""

    def request(self, kind: int, flags: int, body: bytes) -> None:
        """Request a change. Raises Refused, SwitchError."""

    def dump(self, kind: int, body: bytes) -> Iterator[bytes]:
        """Yield the bodies of all messages that answer a request. Raises Refused, SwitchError."""


def kind_of(attribute: Attribute) -> int:
    """Return the type without its flags."""
    return attribute[0] & _NLA_TYPE_MASK


def decode_attributes(data: bytes) -> tuple[Attribute, ...]:
    """Return the attributes in their order, up to bytes that are no attribute."""
    found, offset = list[Attribute](), 0
    while offset + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, offset)
        if length < _ATTRIBUTE.size or offset + length > len(data):
            break
        found.append((kind, data[offset + _ATTRIBUTE.size : offset + length]))
        offset += _padded(length)
    return tuple(found)


def encode_attributes(attributes: Iterable[Attribute]) -> bytes:
    """Return the inverse of `decode_attributes`, each attribute padded to four bytes."""
    return b"".join(_encode(kind, payload) for kind, payload in attributes)


def find_attribute(attributes: Iterable[Attribute], kind: int) -> bytes | None:
    """Return the payload of the first attribute of this type."""
    return next((attribute[1] for attribute in attributes if kind_of(attribute) == kind), None)


def decode_messages(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Yield (type, flags, sequence number, body) of each message in the bytes of one recv(2)."""
    offset = 0
    while offset + _HEADER.size <= len(data):
        length, kind, flags, sequence, _ = _HEADER.unpack_from(data, offset)
        if length < _HEADER.size:
            break
        yield kind, flags, sequence, data[offset + _HEADER.size : offset + length]
        offset += _padded(length)


def decode_error(flags: int, body: bytes) -> Refused | None:
    """Return the error in an NLMSG_ERROR; None if it is an acknowledgement."""
    (status,) = struct.unpack_from("=i", body)
    if status == 0:
        return None
    words = ""
    if flags & _NLM_F_ACK_TLVS:
        # The request follows the status: only its header where it is capped.
        (request_length,) = struct.unpack_from("=I", body, 4)
        start = 4 + (_HEADER.size if flags & _NLM_F_CAPPED else _padded(request_length))
        text = find_attribute(decode_attributes(body[start:]), _NLMSGERR_ATTR_MSG)
        words = (text or b"").rstrip(b"\0").decode("utf-8", "replace")
    return Refused(-status, words)


class RouteSocket(AbstractContextManager["RouteSocket"]):
    """A NETLINK_ROUTE socket in this process's network namespace. Implements Netlink."""

    def __init__(self) -> None:
        try:
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        except OSError as error:
            raise SwitchError(f"cannot open a netlink socket: {error.strerror}; run on Linux") from None
        self._socket.settimeout(_TIMEOUT_S)
        for option in (_NETLINK_EXT_ACK, _NETLINK_CAP_ACK):
            self._socket.setsockopt(_SOL_NETLINK, option, 1)
        self._sequence = 0

    def __enter__(self) -> RouteSocket:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._socket.close()

    def request(self, kind: int, flags: int, body: bytes) -> None:
        for _ in self._ask(kind, flags | NLM_F_REQUEST | NLM_F_ACK, body):
            pass

    def dump(self, kind: int, body: bytes) -> Iterator[bytes]:
        return self._ask(kind, NLM_F_REQUEST | NLM_F_DUMP, body)

    def _ask(self, kind: int, flags: int, body: bytes) -> Iterator[bytes]:
        self._sequence += 1
        asked = self._sequence
        try:
            self._socket.send(_HEADER.pack(_HEADER.size + len(body), kind, flags, asked, 0) + body)
            while True:
                for answer, answer_flags, sequence, content in decode_messages(self._socket.recv(_RECEIVE_BYTES)):
                    # An answer to a question that was given up may still arrive.
                    if sequence != asked:
                        continue
                    if answer in (_NLMSG_ERROR, _NLMSG_DONE):
                        if refused := decode_error(answer_flags, content):
                            raise refused
                        return
                    yield content
        except OSError as error:
            raise SwitchError(f"the kernel does not answer by netlink: {error}; try again") from None


def _encode(kind: int, payload: bytes) -> bytes:
    length = _ATTRIBUTE.size + len(payload)
    return _ATTRIBUTE.pack(length, kind) + payload + bytes(_padded(length) - length)


def _padded(length: int) -> int:
    return (length + 3) & ~3
