"""Neighbour solicitations of IPv6 and their answers, as frames (RFC 4861, 4.3, 4.4 and 7.1.1; RFC 4443, 2.3)."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

_ETHERNET = 14
_TAG = 4
_TAG_TYPES = (b"\x81\x00", b"\x88\xa8")
"""IEEE 802.1Q, 9.5: what stands before a tag. Tags are sent back as they came."""
_ETH_IPV6 = b"\x86\xdd"

_IPV6 = Struct("!IHBB16s16s")
_ICMP = Struct("!BBHI16s")
_PSEUDO = Struct("!16s16sI3xB")
"""IPv6, ICMPv6 up to the target, and the pseudo-header under the checksum (RFC 8200, 3 and 8.1)."""

_VERSION = 6 << 28
_ICMPV6 = 58
_SOLICITATION, _ADVERTISEMENT = 135, 136
_HOP_LIMIT = 255
"""No router has passed it on: it is of this link."""
_SOURCE_LINK, _TARGET_LINK = 1, 2
"""Options with a link-layer address (RFC 4861, 4.6.1)."""
_MAC_OPTION = 8

_SOLICITED, _OVERRIDE = 1 << 30, 1 << 29
_NOBODY = bytes(16)
_ALL_NODES = bytes.fromhex("ff020000000000000000000000000001")
_ALL_NODES_MAC = bytes.fromhex("333300000001")
_SOLICITED_NODE = bytes.fromhex("ff0200000000000000000001ff")
"""RFC 4291, 2.7.1: the first 104 bits."""


@dataclass(frozen=True, slots=True)
class Solicitation:
    """Who has `target`? Addresses are 16 bytes, MACs 6.

    source: all zeros where a host asks whether an address is free (RFC 4862, 5.4). tags: bytes of VLAN tags.
    """

    target: bytes
    source: bytes
    mac: bytes
    tags: bytes = b""


def parse_solicitation(frame: bytes) -> Solicitation | None:
    """None for all other frames, and for a solicitation that RFC 4861 tells to drop."""
    start = _ETHERNET - 2
    while frame[start : start + 2] in _TAG_TYPES:
        start += _TAG
    if frame[start : start + 2] != _ETH_IPV6 or len(frame) < start + 2 + _IPV6.size + _ICMP.size:
        return None
    version, size, protocol, hops, source, destination = _IPV6.unpack_from(frame, start + 2)
    message = frame[start + 2 + _IPV6.size :][:size]
    if version >> 28 != 6 or protocol != _ICMPV6 or hops != _HOP_LIMIT or len(message) < max(size, _ICMP.size):
        return None
    kind, code, _, _, target = _ICMP.unpack_from(message)
    if (kind, code) != (_SOLICITATION, 0) or target[0] == 0xFF or _checksum(source, destination, message):
        return None
    link = _link_option(message[_ICMP.size :])
    mac = link or frame[6:12]
    if link is None or mac[0] & 1 or (source == _NOBODY and (link or not destination.startswith(_SOLICITED_NODE))):
        return None
    return Solicitation(target, source, mac, frame[_ETHERNET - 2 : start])


def advertisement(asked: Solicitation, mac: bytes) -> bytes:
    """The answer: `mac` has the target. To all nodes where the asker has no address yet."""
    is_for_all = asked.source == _NOBODY
    destination, to = (_ALL_NODES, _ALL_NODES_MAC) if is_for_all else (asked.source, asked.mac)
    flags = _OVERRIDE if is_for_all else _OVERRIDE | _SOLICITED
    option = bytes((_TARGET_LINK, 1)) + mac
    unsigned = _ICMP.pack(_ADVERTISEMENT, 0, 0, flags, asked.target) + option
    checksum = _checksum(asked.target, destination, unsigned)
    message = _ICMP.pack(_ADVERTISEMENT, 0, checksum, flags, asked.target) + option
    header = _IPV6.pack(_VERSION, len(message), _ICMPV6, _HOP_LIMIT, asked.target, destination)
    return to + mac + asked.tags + _ETH_IPV6 + header + message


def _link_option(options: bytes) -> bytes | None:
    """The MAC in the options; empty: they have none; None: an option has no length, or is cut (RFC 4861, 7.1.1)."""
    found, rest = b"", options
    while rest:
        size = 8 * rest[1] if len(rest) > 1 else 0
        if not 0 < size <= len(rest):
            return None
        if rest[0] == _SOURCE_LINK and size == _MAC_OPTION:
            found = rest[2:8]
        rest = rest[size:]
    return found


def _checksum(source: bytes, destination: bytes, message: bytes) -> int:
    """Of a message whose checksum is 0; 0 for a message with its right checksum."""
    data = _PSEUDO.pack(source, destination, len(message), _ICMPV6) + message + bytes(len(message) % 2)
    # The sum of 16-bit words with the carry added back is the remainder by 0xffff (RFC 1071, 2).
    rest = int.from_bytes(data) % 0xFFFF
    return 0xFFFF - rest if rest else 0
