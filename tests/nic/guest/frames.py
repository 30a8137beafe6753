"""Ethernet frames as bytes, with valid checksums: the traffic of the scenarios."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from ipaddress import IPv4Address, ip_address

CLIENT_MAC = "02:00:00:00:00:01"
VIP_MAC = "02:00:5e:10:00:01"
VIP = "10.3.10.45"
SYN, ACK = 0x02, 0x10
"""Flags of TCP (RFC 9293, section 3.1)."""

_FRAME_BYTES = 100
_ETHERNET_BYTES = 14
_ETH_P_IP, _ETH_P_IPV6 = 0x0800, 0x86DD
_ICMP, _TCP, _UDP = 1, 6, 17
_PROTOCOLS = {"icmp": _ICMP, "tcp": _TCP, "udp": _UDP}


@dataclass(frozen=True, slots=True)
class Kind:
    """What the packets of a burst have in common; an IPv6 destination makes them IPv6 (never ICMP).

    `tos` is the whole byte; `port` and `source_port` are of L4, which ICMP has not; `flags` are those of TCP.
    """

    destination: str = VIP
    protocol: str = "udp"
    port: int = 53
    tos: int = 0
    mac: str = VIP_MAC
    source_port: int = 4000
    flags: int = ACK

    def frame(self, source: str) -> bytes:
        """A frame of 100 bytes from the address `source`."""
        addresses = ip_address(source).packed + ip_address(self.destination).packed
        header = _ipv4_header if len(addresses) == 8 else _ipv6_header
        size = _FRAME_BYTES - _ETHERNET_BYTES - len(header(self, addresses, size=0))
        payload = self._payload(addresses, size=size)
        ethertype = _ETH_P_IP if len(addresses) == 8 else _ETH_P_IPV6
        ethernet = _mac(self.mac) + _mac(CLIENT_MAC) + struct.pack("!H", ethertype)
        return ethernet + header(self, addresses, size=size) + payload

    def _payload(self, addresses: bytes, *, size: int) -> bytes:
        if self.protocol == "icmp":
            echo = struct.pack("!BBHHH", 8, 0, 0, 1, 1).ljust(size, b"\0")
            return echo[:2] + struct.pack("!H", checksum(echo)) + echo[4:]
        pseudo = addresses + struct.pack("!II", size, _PROTOCOLS[self.protocol])
        if self.protocol == "udp":
            datagram = struct.pack("!HHHH", self.source_port, self.port, size, 0).ljust(size, b"\0")
            return datagram[:6] + struct.pack("!H", checksum(pseudo + datagram)) + datagram[8:]
        segment = struct.pack("!HHIIBBHHH", self.source_port, self.port, 1, 1, 0x50, self.flags, 8192, 0, 0).ljust(
            size, b"\0"
        )
        return segment[:16] + struct.pack("!H", checksum(pseudo + segment)) + segment[18:]


@dataclass(frozen=True, slots=True)
class Summary:
    """A frame that left the NIC. `destination` and `port` of IPv4 only, else empty and 0; `intact`: checksums hold."""

    mac: str
    destination: str
    port: int
    intact: bool


def summary_of(frame: bytes) -> Summary:
    """What is worth remembering of a frame."""
    mac, ethertype = frame[:6].hex(":"), int.from_bytes(frame[12:14], "big")
    if ethertype != _ETH_P_IP:
        return Summary(mac, "", 0, intact=True)
    header, payload = frame[14:34], frame[34:]
    pseudo = header[12:20] + struct.pack("!II", len(payload), header[9]) if header[9] != _ICMP else b""
    intact = checksum(header) == 0 and checksum(pseudo + payload) == 0
    port = int.from_bytes(payload[2:4], "big") if header[9] != _ICMP else 0
    return Summary(mac, str(IPv4Address(header[16:20])), port, intact=intact)


def checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071); 0 over data that carry a right one."""
    total: int = sum(struct.unpack(f"!{(len(data) + 1) // 2}H", data + bytes(len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _ipv4_header(kind: Kind, addresses: bytes, *, size: int) -> bytes:
    head = struct.pack("!BBHHHBB", 0x45, kind.tos, 20 + size, 0, 0, 64, _PROTOCOLS[kind.protocol])
    return head + struct.pack("!H", checksum(head + addresses)) + addresses


def _ipv6_header(kind: Kind, addresses: bytes, *, size: int) -> bytes:
    return struct.pack("!IHBB", 6 << 28 | kind.tos << 20, size, _PROTOCOLS[kind.protocol], 64) + addresses


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))
