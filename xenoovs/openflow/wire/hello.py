"""The first message on a connection: which versions each side speaks (OpenFlow 1.4.0, 6.3.1 and 7.5.1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from struct import Struct

from xenoovs.openflow.wire.reader import U32, Reader, padded

_ELEMENT = Struct("!HH")
_VERSION_BITMAP = 1
"""enum ofp_hello_elem_type: OFPHET_VERSIONBITMAP."""


@dataclass(frozen=True, slots=True)
class Hello:
    """versions: wire versions of the bitmap, empty where there is none. others: bytes of all other elements."""

    versions: frozenset[int]
    others: bytes = b""


_NAMES = ("OpenFlow10", "OpenFlow11", "OpenFlow12", "OpenFlow13", "OpenFlow14", "OpenFlow15")
"""As column protocols of ovs-vswitchd.conf.db(5) has them, from version 1 of the wire."""


def versions_of(hello: Hello, *, version: int) -> frozenset[int]:
    """Return the versions that a peer offers. `version`: of the header of its HELLO.

    Without a bitmap these are all up to that one (6.3.1).
    """
    return hello.versions or frozenset(range(1, version + 1))


def name_versions(versions: Iterable[int]) -> tuple[str, ...]:
    """Return the names that Open vSwitch has for these versions."""
    return tuple(_NAMES[version - 1] for version in sorted(versions) if 0 < version <= len(_NAMES))


def encode_hello(hello: Hello) -> bytes:
    if not hello.versions:
        return hello.others
    words = [0] * (max(hello.versions) // 32 + 1)
    for version in hello.versions:
        words[version // 32] |= 1 << version % 32
    bitmap = b"".join(map(U32.pack, words))
    return padded(_ELEMENT.pack(_VERSION_BITMAP, _ELEMENT.size + len(bitmap)) + bitmap) + hello.others


def decode_hello(body: Reader) -> Hello:
    """Never refuses: a HELLO may carry what nobody knows yet (6.3.1)."""
    versions, others = frozenset[int](), b""
    while body.left >= _ELEMENT.size:
        start = body.offset
        kind, length = _ELEMENT.unpack_from(body.data, start)
        if not _ELEMENT.size <= length <= body.left:
            break
        body.offset = min(start + length + -length % 8, body.end)
        if kind == _VERSION_BITMAP and not versions:
            versions = frozenset(_bits(body.data[start + _ELEMENT.size : start + length]))
        else:
            others += body.data[start : body.offset]
    return Hello(versions, others + body.rest())


def _bits(bitmap: bytes) -> Iterator[int]:
    for index in range(len(bitmap) // 4):
        word = int.from_bytes(bitmap[4 * index : 4 * index + 4])
        yield from (32 * index + bit for bit in range(32) if word >> bit & 1)
