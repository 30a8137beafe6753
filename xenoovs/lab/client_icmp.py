"""Echo requests of many clients (RFC 792, RFC 4443); the source MAC of the answer tells the machine."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator, Sequence

from xenoovs.lab.client_udp import family_of
from xenoovs.lab.tally import Flight
from xenoovs.lab.wire import from_address, prepare

# Type, code, checksum, identifier, sequence number; then, of our own, a number of this run and the packet's key.
_ECHO = struct.Struct("!BBHHH8sI")
_REQUEST = {socket.AF_INET: 8, socket.AF_INET6: 128}
_REPLY = {socket.AF_INET: 0, socket.AF_INET6: 129}
_PROTOCOL = {socket.AF_INET: socket.IPPROTO_ICMP, socket.AF_INET6: socket.IPPROTO_ICMPV6}

# linux/if_ether.h
_ETHERTYPE = {socket.AF_INET: 0x0800, socket.AF_INET6: 0x86DD}
_BUFFER_BYTES = 4 << 20
_SO_RCVBUFFORCE = 33


class IcmpChannel:
    """Sends by raw sockets (raw(7)), listens by packet sockets (packet(7)), which know the MAC of the sender."""

    def __init__(self, flights: Sequence[Flight]) -> None:
        self._flights = flights
        self._run = os.urandom(8)
        families = sorted({family_of(flight) for flight in flights})
        self._listeners = {family: _listener(family) for family in families}
        self._senders = {family: _sender(family) for family in families}

    def sockets(self) -> Sequence[socket.socket]:
        return tuple(self._listeners.values())

    def send(self, key: int, flight: int, source: str) -> None:
        target = self._flights[flight]
        family = family_of(target)
        control = from_address(socket.inet_pton(family, source))
        request = echo_request(family, self._run, key)
        self._senders[family].sendmsg([request], control, 0, (target.destination, 0))

    def receive(self) -> Iterator[tuple[int, str, str]]:
        for family, sock in self._listeners.items():
            while True:
                try:
                    packet, (_, _, kind, _, mac) = sock.recvfrom(2048)
                except BlockingIOError:
                    break
                reply = parse_echo_reply(family, packet)
                if kind == socket.PACKET_HOST and reply is not None and reply[0] == self._run:
                    yield reply[1], reply[2], mac.hex(":")


def echo_request(family: socket.AddressFamily, run: bytes, key: int) -> bytes:
    """The message behind the IP header; for IPv6 the kernel adds the checksum (RFC 3542, section 3.1)."""
    fields = (int.from_bytes(run[:2], "big"), key & 0xFFFF, run, key)
    message = _ECHO.pack(_REQUEST[family], 0, 0, *fields)
    if family == socket.AF_INET6:
        return message
    return _ECHO.pack(_REQUEST[family], 0, checksum(message), *fields)


def parse_echo_reply(family: socket.AddressFamily, packet: bytes) -> tuple[bytes, int, str] | None:
    """Number of the run, key, and the client it is for, from an IP packet without extension headers; None: no echo."""
    start, protocol, client = _header(family, packet)
    if protocol != _PROTOCOL[family] or len(packet) < start + _ECHO.size:
        return None
    kind, _, _, _, _, run, key = _ECHO.unpack_from(packet, start)
    return (run, key, socket.inet_ntop(family, client)) if kind == _REPLY[family] else None


def checksum(data: bytes) -> int:
    """RFC 1071, for an even number of bytes."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


def _header(family: socket.AddressFamily, packet: bytes) -> tuple[int, int, bytes]:
    if family == socket.AF_INET:
        return (packet[0] & 15) * 4, packet[9], packet[16:20]
    return 40, packet[6], packet[24:40]


def _listener(family: socket.AddressFamily) -> socket.socket:
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ETHERTYPE[family]))
    sock.settimeout(0)
    sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
    return sock


def _sender(family: socket.AddressFamily) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_RAW, _PROTOCOL[family])
    prepare(sock)
    return sock
