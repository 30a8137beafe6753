"""Ethernet frames as bytes, with valid checksums: the traffic of the scenarios."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, ip_address

from xenoovs.model.address import checksum

CLIENT_MAC = "02:00:00:00:00:01"
VIP_MAC = "02:00:5e:10:00:01"
VIP = "10.3.10.45"
SYN, ACK = 0x02, 0x10
"""Flags of TCP (RFC 9293, section 3.1)."""

UPLINK_MAC, LOCAL = "02:00:00:00:4d:01", "192.168.77.1"
"""Of the port by which tunnels leave."""
REMOTES = {"geneve": "192.168.77.11", "vxlan": "192.168.77.12", "gre": "192.168.77.13"}
REMOTE_MACS = {kind: f"02:00:00:00:4d:{host}" for kind, host in (("geneve", 11), ("vxlan", 12), ("gre", 13))}
KEY = 5001
GENEVE_PORT = 6081
OPTION = bytes.fromhex("ffee01010000002a")
"""Of Geneve (RFC 8926): class, type, the words of data, and 42 as data."""
_PORTS = {4789: "vxlan", GENEVE_PORT: "geneve"}
_ETH_P_TEB = 0x6558

_FRAME_BYTES = 100
_ETHERNET_BYTES = 14
_ETH_P_IP, _ETH_P_IPV6, _ETH_P_8021Q = 0x0800, 0x86DD, 0x8100
_ICMP, _TCP, _UDP, _GRE, ESP = 1, 6, 17, 47, 50
_PROTOCOLS = {"icmp": _ICMP, "tcp": _TCP, "udp": _UDP}


@dataclass(frozen=True, slots=True)
class Tunnel:
    """An outer header from `remote`: `type` vxlan, geneve or gre."""

    type: str
    remote: str

    def frame(self, inner: bytes) -> bytes:
        """The whole frame as it comes by the cable."""
        header = {
            "vxlan": struct.pack("!II", 0x08000000, KEY << 8),
            "geneve": struct.pack("!BBHI", len(OPTION) // 4, 0, _ETH_P_TEB, KEY << 8) + OPTION,
            "gre": struct.pack("!HHI", 0x2000, _ETH_P_TEB, KEY),
        }
        payload, protocol = header[self.type] + inner, _GRE
        if self.type != "gre":
            port = next(port for port, kind in _PORTS.items() if kind == self.type)
            payload, protocol = struct.pack("!HHHH", 50000, port, 8 + len(payload), 0) + payload, _UDP
        addresses = ip_address(self.remote).packed + ip_address(LOCAL).packed
        head = struct.pack("!BBHHHBB", 0x45, 0, 20 + len(payload), 0, 0, 64, protocol)
        ip = head + struct.pack("!H", checksum(head + addresses)) + addresses
        return _mac(UPLINK_MAC) + _mac(REMOTE_MACS[self.type]) + struct.pack("!H", _ETH_P_IP) + ip + payload


@dataclass(frozen=True, slots=True)
class Kind:
    """What the packets of a burst have in common; an IPv6 destination makes them IPv6 (never ICMP).

    `tos` is the whole byte; `port` and `source_port` are of L4, which ICMP has not; `flags` are those of TCP. `length`:
    of a frame, without the outer header of `tunnel`.
    """

    destination: str = VIP
    protocol: str = "udp"
    port: int = 53
    tos: int = 0
    mac: str = VIP_MAC
    source_port: int = 4000
    flags: int = ACK
    length: int = _FRAME_BYTES
    tunnel: Tunnel | None = None

    def frame(self, source: str) -> bytes:
        """A frame from the address `source`."""
        frame = self._inner(source)
        return frame if self.tunnel is None else self.tunnel.frame(frame)

    def _inner(self, source: str) -> bytes:
        addresses = ip_address(source).packed + ip_address(self.destination).packed
        header = _ipv4_header if len(addresses) == 8 else _ipv6_header
        size = self.length - _ETHERNET_BYTES - len(header(self, addresses, size=0))
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
class Outer:
    """The outer header of a frame in a tunnel, or in IPsec (`esp`, of which nothing else is readable)."""

    type: str
    mac: str
    remote: str
    tos: int
    key: int = 0
    options: str = ""


@dataclass(frozen=True, slots=True)
class Summary:
    """A frame that left the NIC. `destination` and `port` of IPv4 only, else empty and 0; `intact`: checksums hold.

    Of a frame in a tunnel it is the inner one. `vlan`: 0: no tag.
    """

    mac: str
    destination: str
    port: int
    intact: bool
    outer: Outer | None = None
    vlan: int = 0


def summary_of(frame: bytes) -> Summary:
    """What is worth remembering of a frame."""
    found = _outer(frame)
    if found is None:
        return _summary_of(frame)
    outer, inner = found
    if outer.type == "esp":
        return Summary(outer.mac, outer.remote, 0, intact=checksum(frame[14:34]) == 0, outer=outer)
    summary = _summary_of(inner)
    return replace(summary, outer=outer, intact=summary.intact and checksum(frame[14:34]) == 0)


def _outer(frame: bytes) -> tuple[Outer, bytes] | None:
    """Return the outer header of what our end sends, and the frame inside."""
    if frame[12:14] != struct.pack("!H", _ETH_P_IP) or str(IPv4Address(frame[26:30])) != LOCAL:
        return None
    mac, tos, remote, rest = frame[:6].hex(":"), frame[15], str(IPv4Address(frame[30:34])), frame[34:]
    if frame[23] == ESP:
        return Outer("esp", mac, remote, tos), b""
    if frame[23] == _GRE:
        return Outer("gre", mac, remote, tos, int.from_bytes(rest[4:8], "big")), rest[8:]
    kind = _PORTS.get(int.from_bytes(rest[2:4], "big")) if frame[23] == _UDP else None
    if kind is None:
        return None
    options = (rest[8] & 0x3F) * 4 if kind == "geneve" else 0
    key = int.from_bytes(rest[12:15], "big")
    return Outer(kind, mac, remote, tos, key, rest[16 : 16 + options].hex()), rest[16 + options :]


def _summary_of(frame: bytes) -> Summary:
    mac, ethertype = frame[:6].hex(":"), int.from_bytes(frame[12:14], "big")
    if ethertype == _ETH_P_8021Q:
        vlan = int.from_bytes(frame[14:16], "big") & 0xFFF
        return replace(_summary_of(frame[:12] + frame[16:]), vlan=vlan)
    if ethertype != _ETH_P_IP:
        return Summary(mac, "", 0, intact=True)
    header, payload = frame[14:34], frame[34:]
    pseudo = header[12:20] + struct.pack("!II", len(payload), header[9]) if header[9] != _ICMP else b""
    intact = checksum(header) == 0 and checksum(pseudo + payload) == 0
    port = int.from_bytes(payload[2:4], "big") if header[9] != _ICMP else 0
    return Summary(mac, str(IPv4Address(header[16:20])), port, intact=intact)


def _ipv4_header(kind: Kind, addresses: bytes, *, size: int) -> bytes:
    head = struct.pack("!BBHHHBB", 0x45, kind.tos, 20 + size, 0, 0, 64, _PROTOCOLS[kind.protocol])
    return head + struct.pack("!H", checksum(head + addresses)) + addresses


def _ipv6_header(kind: Kind, addresses: bytes, *, size: int) -> bytes:
    return struct.pack("!IHBB", 6 << 28 | kind.tos << 20, size, _PROTOCOLS[kind.protocol], 64) + addresses


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))
