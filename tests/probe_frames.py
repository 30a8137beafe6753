"""What reflectors and routers make of a probe."""

from __future__ import annotations

from ipaddress import IPv4Address
from struct import pack

from xenoovs.agent.paths.frame import Addresses, Token
from xenoovs.model.address import checksum
from xenoovs.model.tunnel import REFLECTED_PORT

ADDRESSES = Addresses(
    source_mac=bytes.fromhex("020000000001"),
    gateway_mac=bytes.fromhex("0200000000fe"),
    local=IPv4Address("192.168.200.2"),
    remote=IPv4Address("192.168.200.1"),
    tunnel_port=4789,
    tos=0x20,
)
TOKEN = Token(7, 1234, 0x0123456789ABCDEF)


def answer_to(frame: bytes) -> bytes:
    """Return what a reflector (`reflect: l3`) makes of a probe."""
    ip = frame[14:24] + bytes(2) + frame[30:34] + frame[26:30]
    ip = ip[:10] + checksum(ip).to_bytes(2, "big") + ip[12:]
    return frame[6:12] + frame[:6] + frame[12:14] + ip + pack("!HH", REFLECTED_PORT, REFLECTED_PORT) + frame[38:]


def quote_of(frame: bytes, router: str, *, size: int = 28) -> bytes:
    """Return the ICMP "time exceeded" of a router that drops a probe, with so many bytes of it from its IPv4 header."""
    quoted = frame[14 : 14 + size]
    message = pack("!BBHI", 11, 0, 0, 0) + quoted
    message = message[:2] + checksum(message + bytes(len(message) % 2)).to_bytes(2, "big") + message[4:]
    ends = IPv4Address(router).packed + frame[26:30]
    ip = pack("!BBHHHBBH", 0x45, 0xC0, 20 + len(message), 9, 0, 64, 1, 0) + ends
    ip = ip[:10] + checksum(ip).to_bytes(2, "big") + ip[12:]
    return frame[6:12] + frame[:6] + frame[12:14] + ip + message
