"""Echo requests to thousands of targets by one raw socket (RFC 792, RFC 4443, raw(7)).

An answer is ours when it carries the identifier and the random token of this socket, the sequence number of a request
that is waiting, and comes from the address that was asked. Errors of routers are ours by the request that they quote.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv6Address
from pathlib import Path

from xenoovs.agent.probe.arp import packet_socket
from xenoovs.agent.probe.sockets import (
    RECEIVE_BYTES,
    SO_RCVBUFFORCE,
    Shared,
    device_of,
    family_of,
    host_of,
    inside,
    namespace_identity,
    open_socket,
)
from xenoovs.agent.probe.target import ArpTarget, IcmpTarget, Via
from xenoovs.model.address import IPAddress

# Type, code, checksum, identifier, sequence number.
_HEADER = struct.Struct("!BBHHH")
_TOKEN_BYTES = 8
_MOST_WAITING = 1 << 16
_READS_A_TURN = 256


@dataclass(frozen=True, slots=True)
class _Version:
    """What differs between ICMP and ICMPv6. filter_: level, name, value of a socket option that keeps others away."""

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
    # ICMP6_FILTER of RFC 3542, section 3.2; linux/icmpv6.h: a bit that is set keeps a type away.
    (
        58,
        1,
        struct.pack("=8I", ~(1 << 1 | 1 << 3) & _ALL, *[_ALL] * 3, ~(1 << 1) & _ALL, *[_ALL] * 3),
    ),
)


@dataclass(frozen=True, slots=True)
class _Waiter:
    """address: who has to answer; None: anybody."""

    address: str | None
    verdict: asyncio.Future[str | None]


class IcmpChannel:
    """One raw socket of one family, and who waits for which sequence number."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._version = _V4 if sock.family == socket.AF_INET else _V6
        self._identifier = int.from_bytes(os.urandom(2), "big")
        self._token = os.urandom(_TOKEN_BYTES)
        self._last = 0
        self._waiting: dict[int, _Waiter] = {}
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock, self._readable)

    def close(self) -> None:
        """Close the socket."""
        self._loop.remove_reader(self._sock)
        self._sock.close()

    async def echo(self, address: str) -> str | None:
        """Ask, and wait for ever; why not, or None. Raises OSError as sendto(2)."""
        return await self._echo(lambda message: self._sock.sendto(message, (address, 0)), address)

    async def echo_by(self, send: Callable[[bytes], object]) -> str | None:
        """As `echo`, with a request that `send` gets to its target, and from whatever address the answer comes."""
        return await self._echo(send, None)

    async def _echo(self, send: Callable[[bytes], object], address: str | None) -> str | None:
        if len(self._waiting) == _MOST_WAITING:
            return "too many probes at once"
        sequence = self._free()
        waiter = _Waiter(address, self._loop.create_future())
        self._waiting[sequence] = waiter
        try:
            send(self._request(sequence))
            return await waiter.verdict
        finally:
            del self._waiting[sequence]

    def _free(self) -> int:
        self._last = (self._last + 1) % _MOST_WAITING
        while self._last in self._waiting:
            self._last = (self._last + 1) % _MOST_WAITING
        return self._last

    def _request(self, sequence: int) -> bytes:
        kind, identifier = self._version.request, self._identifier
        message = _HEADER.pack(kind, 0, 0, identifier, sequence) + self._token
        if self._version is _V6:  # the kernel adds the checksum: RFC 3542, section 3.1
            return message
        return _HEADER.pack(kind, 0, checksum(message), identifier, sequence) + self._token

    def _readable(self) -> None:
        for _ in range(_READS_A_TURN):
            try:
                packet, sender = self._sock.recvfrom(2048)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                continue
            self._take(packet[(packet[0] & 15) * 4 :] if self._version is _V4 else packet, sender[0].partition("%")[0])

    def _take(self, message: bytes, sender: str) -> None:
        if len(message) < _HEADER.size:
            return
        kind, code, _, identifier, sequence = _HEADER.unpack_from(message)
        if kind == self._version.reply:
            waiter = self._waiting.get(sequence)
            ours = identifier == self._identifier and message[_HEADER.size :] == self._token
            if ours and waiter is not None and waiter.address in (None, sender):
                _settle(waiter, None)
        elif kind in self._version.errors:
            self._take_error(self._version.errors[kind].get(code, "host unreachable"), message[_HEADER.size :], sender)

    def _take_error(self, reason: str, quoted: bytes, sender: str) -> None:
        v4 = self._version is _V4
        start = (quoted[0] & 15) * 4 if v4 and quoted else 40
        if len(quoted) < start + _HEADER.size or start < 20 or quoted[9 if v4 else 6] != self._version.protocol:
            return
        kind, _, _, identifier, sequence = _HEADER.unpack_from(quoted, start)
        asked = socket.inet_ntop(self._sock.family, quoted[16:20] if v4 else quoted[24:40])
        waiter = self._waiting.get(sequence)
        if waiter and (kind, identifier, asked) == (self._version.request, self._identifier, waiter.address):
            _settle(waiter, f"{reason}, says {sender}")


async def probe_icmp(target: IcmpTarget, channels: Shared[IcmpChannel]) -> str | None:
    """Why not, or None. Raises OSError."""
    with channels.use(
        channel_key(target.address, target.via), lambda: open_icmp(target.address, target.via)
    ) as channel:
        return await channel.echo(host_of(target.address))


def channel_key(address: IPAddress, via: Via) -> tuple[object, ...]:
    """Targets of one key share a socket. Raises OSError when the namespace does not exist."""
    return (family_of(address), device_of(address, via), via.netns, namespace_identity(via.netns))


def open_icmp(address: IPAddress, via: Via) -> IcmpChannel:
    """A channel for all addresses of this family. Raises OSError, EPERM without CAP_NET_RAW."""
    version = _V4 if address.version == 4 else _V6
    sock = open_socket(address, socket.SOCK_RAW, via, protocol=version.protocol)
    sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BYTES)
    sock.setsockopt(*version.filter_)
    return IcmpChannel(sock)


def checksum(data: bytes) -> int:
    """RFC 1071, for an even number of bytes."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


def _settle(waiter: _Waiter, verdict: str | None) -> None:
    if not waiter.verdict.done():
        waiter.verdict.set_result(verdict)


# A machine answers of which only the MAC is known: an echo request to all nodes, in a frame to that MAC alone.
#
# Every IPv6 host listens to ff02::1 (RFC 4291, section 2.7.1) and answers an echo request to it (RFC 4443, section
# 4.2). The random token comes back only from whoever took the frame, so it is the MAC that answered.


_ALL_NODES = IPv6Address("ff02::1")
_ETHERTYPE = 0x86DD
_NEXT_HEADER = 58
_HOP_LIMIT = 1

# Version, payload length, next header, hop limit, source, destination (RFC 8200, section 3).
_IPV6 = struct.Struct("!IHBB16s16s")


async def probe_all_nodes(target: ArpTarget, channels: Shared[IcmpChannel]) -> str | None:
    """Why not, or None. Raises OSError."""
    via = Via(target.interface, target.netns)
    source = inside(target.netns, lambda: _link_local(target.interface))
    if source is None:
        return f"interface {target.interface} has no IPv6 link-local address: give the address of the backend"
    with (
        channels.use(channel_key(_ALL_NODES, via), lambda: open_icmp(_ALL_NODES, via)) as channel,
        inside(target.netns, lambda: packet_socket(target.interface, 0)) as sock,
    ):
        where = (target.interface, _ETHERTYPE, 0, 0, target.mac.value.to_bytes(6, "big"))
        return await channel.echo_by(lambda message: sock.sendto(_packet(source, message), where))


def _packet(source: IPv6Address, message: bytes) -> bytes:
    """An IPv6 packet; the checksum covers the pseudo-header of RFC 8200, section 8.1."""
    pseudo = source.packed + _ALL_NODES.packed + struct.pack("!II", len(message), _NEXT_HEADER)
    summed = message[:2] + struct.pack("!H", checksum(pseudo + message)) + message[4:]
    header = _IPV6.pack(6 << 28, len(message), _NEXT_HEADER, _HOP_LIMIT, source.packed, _ALL_NODES.packed)
    return header + summed


def _link_local(interface: str) -> IPv6Address | None:
    """The address of a device in fe80::/10, from the calling thread's namespace (proc_net(5))."""
    for line in Path("/proc/thread-self/net/if_inet6").read_text().splitlines():
        digits, _, _, _, _, device = line.split()
        address = IPv6Address(int(digits, 16))
        if device == interface and address.is_link_local:
            return address
    return None
