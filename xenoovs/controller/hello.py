"""The HELLO of a switch: which versions it offers, and the same without anything else in it."""

from __future__ import annotations

from xenoovs.openflow.wire.codec import decode, encode
from xenoovs.openflow.wire.frame import HEADER
from xenoovs.openflow.wire.hello import Hello, versions_of


def spoken_versions(hello: bytes) -> tuple[int, ...]:
    """Return the wire versions that a HELLO offers. Raises WireError."""
    received = decode(hello)
    if not isinstance(received.message, Hello):
        return ()
    return tuple(sorted(versions_of(received.message, version=received.version)))


def plain_hello(hello: bytes, spoken: tuple[int, ...]) -> bytes:
    """Return a HELLO that offers the same versions and has nothing else in it."""
    if len(hello) == HEADER.size:
        return hello
    return encode(Hello(frozenset(spoken)), xid=HEADER.unpack_from(hello)[3])
