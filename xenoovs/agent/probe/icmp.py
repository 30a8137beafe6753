"""ICMP and ARP probes. ICMP: echo requests to thousands of targets by one raw socket (RFC 792, RFC 4443, raw(7)).

A reply counts if it has the identifier and the random token of this socket and the sequence number of a waiting
request, and if it comes from the address of that request. An error of a router counts for the request that it quotes.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from typing import Any

from xenoovs.agent.probe.check import Check, Expectation
from xenoovs.agent.probe.sockets import (
    RECEIVE_BYTES,
    SO_RCVBUFFORCE,
    Channel,
    ChannelPool,
    device_of,
    family_of,
    host_of,
    in_namespace,
    namespace_inode,
    naming_device,
    open_socket,
)
from xenoovs.dataclass import dataclass
from xenoovs.model.address import Mac, checksum
from xenoovs.model.next_hop import UNKNOWN_MAC

# Type, code, checksum, identifier, sequence number.
_HEADER = struct.Struct("!BBHHH")
_TOKEN_BYTES = 8
_MAX_REQUESTS = 1 << 16


@dataclass(frozen=True, slots=True)
class _Version:
    """The numbers of ICMP or ICMPv6. `errors`: texts by type and code. `filter_`: drops other types at the socket."""

    protocol: int
    request: int
    reply: int
    errors: dict[int, dict[int, str]]
    filter_: tuple[int, int, bytes]


_ALL = 0xFFFFFFFF
_PROHIBITED = "forbidden by a filter"
_V4 = _Version(
    socket.IPPROTO_ICMP,
    8,
    0,
    {
        3: {0: "network unreachable", 1: "host unreachable", 2: "ICMP refused", 3: "ICMP refused", 9: _PROHIBITED}
        | {10: _PROHIBITED, 13: _PROHIBITED},
        11: {0: "too many hops"},
    },
    (255, 1, struct.pack("=I", ~(1 << 0 | 1 << 3 | 1 << 11) & _ALL)),  # SOL_RAW, ICMP_FILTER of raw(7)
)
_V6 = _Version(
    socket.IPPROTO_ICMPV6,
    128,
    129,
    {
        1: {0: "network unreachable", 1: _PROHIBITED, 3: "host unreachable", 4: "ICMP refused", 5: _PROHIBITED},
        3: {0: "too many hops"},
    },
    # ICMP6_FILTER of RFC 3542, section 3.2; linux/icmpv6.h: a set bit blocks a type.
    (58, 1, struct.pack("=8I", ~(1 << 1 | 1 << 3) & _ALL, *[_ALL] * 3, ~(1 << 1) & _ALL, *[_ALL] * 3)),
)


class IcmpChannel(Channel):
    """A raw socket of one address family. The requests that wait for a reply have their address, and the future of why
    they failed."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self._version = _V4 if sock.family == socket.AF_INET else _V6
        self._identifier = int.from_bytes(os.urandom(2), "big")
        self._token = os.urandom(_TOKEN_BYTES)
        self._last_sequence = 0
        self._requests: dict[int, tuple[str, asyncio.Future[str | None]]] = {}

    async def echo(self, address: str) -> str | None:
        """Send an echo request and wait, without a time limit. Return why it failed; None if it was answered. Raises
        OSError of sendto(2)."""
        if len(self._requests) == _MAX_REQUESTS:
            return "too many probes at once"
        sequence = self._free_sequence()
        failure: asyncio.Future[str | None] = self._loop.create_future()
        self._requests[sequence] = address, failure
        try:
            self._sock.sendto(self._message(sequence), (address, 0))
            return await failure
        finally:
            del self._requests[sequence]

    def _free_sequence(self) -> int:
        self._last_sequence = (self._last_sequence + 1) % _MAX_REQUESTS
        while self._last_sequence in self._requests:
            self._last_sequence = (self._last_sequence + 1) % _MAX_REQUESTS
        return self._last_sequence

    def _message(self, sequence: int) -> bytes:
        kind, identifier = self._version.request, self._identifier
        message = _HEADER.pack(kind, 0, 0, identifier, sequence) + self._token
        if self._version is _V6:  # the kernel adds the checksum: RFC 3542, section 3.1
            return message
        return _HEADER.pack(kind, 0, checksum(message), identifier, sequence) + self._token

    def _received(self, packet: bytes, origin: tuple[Any, ...]) -> None:
        message = packet[(packet[0] & 15) * 4 :] if self._version is _V4 else packet
        sender: str = origin[0].partition("%")[0]
        if len(message) < _HEADER.size:
            return
        kind, code, _, identifier, sequence = _HEADER.unpack_from(message)
        if kind == self._version.reply:
            if identifier == self._identifier and message[_HEADER.size :] == self._token:
                self._settle(sequence, sender, None)
        elif kind in self._version.errors:
            self._error_received(
                self._version.errors[kind].get(code, "host unreachable"), message[_HEADER.size :], sender
            )

    def _error_received(self, reason: str, quoted: bytes, sender: str) -> None:
        v4 = self._version is _V4
        start = (quoted[0] & 15) * 4 if v4 and quoted else 40
        if len(quoted) < start + _HEADER.size or start < 20 or quoted[9 if v4 else 6] != self._version.protocol:
            return
        kind, _, _, identifier, sequence = _HEADER.unpack_from(quoted, start)
        destination = socket.inet_ntop(self._sock.family, quoted[16:20] if v4 else quoted[24:40])
        if (kind, identifier) == (self._version.request, self._identifier):
            self._settle(sequence, destination, f"{reason}, says {sender}")

    def _settle(self, sequence: int, address: str, failure: str | None) -> None:
        """End a request to this address that waits."""
        asked, future = self._requests.get(sequence, (None, None))
        if future is not None and asked == address and not future.done():
            future.set_result(failure)


async def probe_icmp(check: Check, channels: ChannelPool[IcmpChannel]) -> str | None:
    """Return why the backend failed; None if it answered. Raises OSError, EPERM without CAP_NET_RAW."""
    address, interface, netns = check.address, check.health.interface, check.health.netns
    key = (family_of(address), device_of(address, interface), netns, namespace_inode(netns))
    with channels.use(key, lambda: _open(check)) as channel:
        return await channel.echo(host_of(address))


def _open(check: Check) -> IcmpChannel:
    version, health = _V4 if check.address.version == 4 else _V6, check.health
    sock = open_socket(check.address, socket.SOCK_RAW, health.interface, health.netns, protocol=version.protocol)
    sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BYTES)
    sock.setsockopt(*version.filter_)
    return IcmpChannel(sock)


# ARP: the machine with a MAC answers for its address (RFC 826), to a unicast request (RFC 1122, 2.3.2.1). The sender's
# address is 0.0.0.0 as in the probes of RFC 5227, section 2.1.1, so that this host needs no address on the device, and
# no ARP cache learns a wrong one. One packet socket (packet(7)) for each device serves all targets.


# Hardware type (Ethernet), protocol type (IPv4), address lengths, operation; MAC and address of sender and of target.
_ARP = struct.Struct("!HHBBH6s4s6s4s")
_PREFIX = (1, 0x0800, 6, 4)
_REQUEST, _REPLY = 1, 2
_ETHERTYPE = 0x0806


class ArpChannel(Channel):
    """A packet socket on one device, and the probes that wait for an answer, by address."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self._device, _, _, _, self._own_mac = sock.getsockname()
        self._waiting: dict[bytes, list[asyncio.Queue[Mac]]] = {}

    async def request(self, mac: Mac, address: bytes, expectation: Expectation) -> None:
        """Send a request, and return when `mac` has answered for `address` (4 bytes). Raises OSError of sendto(2)."""
        answers: asyncio.Queue[Mac] = asyncio.Queue()
        self._waiting.setdefault(address, []).append(answers)
        try:
            self._send(mac, address)
            while (sender := await answers.get()) != mac:
                expectation.await_part(f"an answer from {sender}, none from {mac}")
        finally:
            self._waiting[address].remove(answers)
            if not self._waiting[address]:
                del self._waiting[address]

    def _send(self, mac: Mac, address: bytes) -> None:
        request = _ARP.pack(*_PREFIX, _REQUEST, self._own_mac, bytes(4), bytes(6), address)
        self._sock.sendto(request, (self._device, _ETHERTYPE, 0, 0, mac.value.to_bytes(6, "big")))

    def _received(self, packet: bytes, _: object) -> None:
        if len(packet) < _ARP.size:
            return
        *prefix, operation, mac, address, target_mac, _ = _ARP.unpack_from(packet)
        if (*prefix, operation) == (*_PREFIX, _REPLY) and target_mac == self._own_mac:
            for answers in self._waiting.get(address, ()):
                answers.put_nowait(Mac(int.from_bytes(mac, "big")))


async def probe_arp(check: Check, expectation: Expectation, channels: ChannelPool[ArpChannel]) -> None:
    """Return when the backend answers. Raises OSError, EPERM without CAP_NET_RAW."""
    interface, netns = check.health.interface or "", check.health.netns
    key = (interface, netns, namespace_inode(netns))
    with channels.use(key, lambda: ArpChannel(in_namespace(netns, lambda: _open_arp(interface)))) as channel:
        await channel.request(check.mac or UNKNOWN_MAC, check.address.packed, expectation)


def _open_arp(interface: str) -> socket.socket:
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK, 0)
    with naming_device(interface, sock):
        sock.bind((interface, _ETHERTYPE))
    return sock
