"""The machine with a MAC answers ARP for its address (RFC 826), asked by unicast (RFC 1122, section 2.3.2.1).

The sender's address is 0.0.0.0 as in the probes of RFC 5227, section 2.1.1, so none is needed here and no ARP cache of
others learns a wrong one. One packet socket (packet(7)) a device serves all targets.
"""

from __future__ import annotations

import asyncio
import socket
import struct

from xenoovs.agent.probe.sockets import Shared, absent, inside, namespace_identity
from xenoovs.agent.probe.target import ArpTarget, Waiting
from xenoovs.model.address import Mac

# Hardware type (Ethernet), protocol type (IPv4), address lengths, operation; MAC and address of sender and of target.
_ARP = struct.Struct("!HHBBH6s4s6s4s")
_PREFIX = (1, 0x0800, 6, 4)
_REQUEST, _REPLY = 1, 2
_ETHERTYPE = 0x0806
_READS_A_TURN = 256


class ArpChannel:
    """One packet socket on one device, and who waits for the MAC of which address."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        name, _, _, _, self._own = sock.getsockname()
        self._device = name
        self._waiting: dict[bytes, list[asyncio.Queue[Mac]]] = {}
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock, self._readable)

    def close(self) -> None:
        """Close the socket."""
        self._loop.remove_reader(self._sock)
        self._sock.close()

    async def ask(self, mac: Mac, address: bytes, waiting: Waiting) -> None:
        """Return when `mac` has answered for `address` (4 bytes). Raises OSError as sendto(2)."""
        answers: asyncio.Queue[Mac] = asyncio.Queue()
        self._waiting.setdefault(address, []).append(answers)
        try:
            self._send(mac, address)
            while (seen := await answers.get()) != mac:
                waiting.missing = f"an answer from {seen}, none from {mac}"
        finally:
            self._waiting[address].remove(answers)
            if not self._waiting[address]:
                del self._waiting[address]

    def _send(self, mac: Mac, address: bytes) -> None:
        request = _ARP.pack(*_PREFIX, _REQUEST, self._own, bytes(4), bytes(6), address)
        self._sock.sendto(request, (self._device, _ETHERTYPE, 0, 0, mac.value.to_bytes(6, "big")))

    def _readable(self) -> None:
        for _ in range(_READS_A_TURN):
            try:
                packet = self._sock.recv(256)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                continue
            self._take(packet)

    def _take(self, packet: bytes) -> None:
        if len(packet) < _ARP.size:
            return
        *prefix, operation, mac, address, own, _ = _ARP.unpack_from(packet)
        if (*prefix, operation) == (*_PREFIX, _REPLY) and own == self._own:
            for answers in self._waiting.get(address, ()):
                answers.put_nowait(Mac(int.from_bytes(mac, "big")))


async def probe_arp(target: ArpTarget, waiting: Waiting, channels: Shared[ArpChannel]) -> None:
    """Return when it answers. Raises OSError; ValueError for a target without an address."""
    if target.address is None:
        raise ValueError("an ARP request needs an address")
    key = (target.interface, target.netns, namespace_identity(target.netns))
    with channels.use(key, lambda: open_arp(target.interface, target.netns)) as channel:
        await channel.ask(target.mac, target.address.packed, waiting)


def open_arp(interface: str, netns: str | None) -> ArpChannel:
    """A channel for all targets behind a device. Raises OSError, EPERM without CAP_NET_RAW."""
    return ArpChannel(inside(netns, lambda: packet_socket(interface, _ETHERTYPE)))


def packet_socket(interface: str, ethertype: int) -> socket.socket:
    """A packet socket without Ethernet headers on one device. Raises OSError that names a device that is not there."""
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK, 0)
    try:
        sock.bind((interface, ethertype))
    except OSError as error:
        sock.close()
        raise absent(error, interface) from None
    return sock
