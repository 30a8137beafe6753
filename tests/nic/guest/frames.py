"""Ethernet frames as bytes, with valid checksums: the traffic of the scenarios."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from ipaddress import IPv4Address

CLIENT_MAC = "02:00:00:00:00:01"
VIP_MAC = "02:00:5e:10:00:01"
VIP = "10.3.10.45"

_ICMP, _TCP, _UDP = 1, 6, 17
_PROTOCOLS = {"icmp": _ICMP, "tcp": _TCP, "udp": _UDP}


@dataclass(frozen=True, slots=True)
class Kind:
    """What the packets of a burst have in common. `tos` is the whole byte; `port` the L4 destination, ICMP has none."""

    destination: str = VIP
    protocol: str = "udp"
    port: int = 53
    tos: int = 0
    mac: str = VIP_MAC

    def frame(self, source: str) -> bytes:
        """A frame of 100 bytes from `source`, an IPv4 address."""
        payload = self._payload(source, size=100 - 14 - 20)
        head = struct.pack("!BBHHHBB", 0x45, self.tos, 20 + len(payload), 0, 0, 64, _PROTOCOLS[self.protocol])
        addresses = IPv4Address(source).packed + IPv4Address(self.destination).packed
        header = head + struct.pack("!H", checksum(head + b"\0\0" + addresses)) + addresses
        return _mac(self.mac) + _mac(CLIENT_MAC) + struct.pack("!H", 0x0800) + header + payload

    def _payload(self, source: str, *, size: int) -> bytes:
        if self.protocol == "icmp":
            echo = struct.pack("!BBHHH", 8, 0, 0, 1, 1).ljust(size, b"\0")
            return echo[:2] + struct.pack("!H", checksum(echo)) + echo[4:]
        pseudo = IPv4Address(source).packed + IPv4Address(self.destination).packed
        pseudo += struct.pack("!BBH", 0, _PROTOCOLS[self.protocol], size)
        if self.protocol == "udp":
            datagram = struct.pack("!HHHH", 4000, self.port, size, 0).ljust(size, b"\0")
            return datagram[:6] + struct.pack("!H", checksum(pseudo + datagram)) + datagram[8:]
        segment = struct.pack("!HHIIBBHHH", 4000, self.port, 1, 1, 0x50, 0x10, 8192, 0, 0).ljust(size, b"\0")
        return segment[:16] + struct.pack("!H", checksum(pseudo + segment)) + segment[18:]


def checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071)."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))
