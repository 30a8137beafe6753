"""ARP probes: the machine with a MAC answers for its address (RFC 826), to a unicast request (RFC 1122, 2.3.2.1).

The sender's address is 0.0.0.0 as in the probes of RFC 5227, section 2.1.1. So this host needs no address there, and no
ARP cache learns a wrong one. One packet socket (packet(7)) for each device serves all targets.
"""

from __future__ import annotations

import asyncio
import socket
import struct

from xenoovs.agent.probe.sockets import ChannelPool, in_namespace, namespace_inode, naming_device
from xenoovs.agent.probe.target import ArpTarget, Expectation
from xenoovs.model.address import Mac

# Hardware type (Ethernet), protocol type (IPv4), address lengths, operation; MAC and address of sender and of target.
_ARP = struct.Struct("!HHBBH6s4s6s4s")
_PREFIX = (1, 0x0800, 6, 4)
_REQUEST, _REPLY = 1, 2
_ETHERTYPE = 0x0806
_READS_PER_EVENT = 256


class ArpChannel:
    """One packet socket on one device, and the probes that wait for an answer, by address."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._device, _, _, _, self._own_mac = sock.getsockname()
        self._waiting: dict[bytes, list[asyncio.Queue[Mac]]] = {}
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock, self._readable)

    def close(self) -> None:
        """Close the socket."""
        self._loop.remove_reader(self._sock)
        self._sock.close()

    async def request(self, mac: Mac, address: bytes, expectation: Expectation) -> None:
        """Return when `mac` has answered for `address` (4 bytes). Raises OSError as sendto(2)."""
        answers: asyncio.Queue[Mac] = asyncio.Queue()
        self._waiting.setdefault(address, []).append(answers)
        try:
            self._send(mac, address)
            while (sender := await answers.get()) != mac:
                expectation.missing = f"an answer from {sender}, none from {mac}"
        finally:
            self._waiting[address].remove(answers)
            if not self._waiting[address]:
                del self._waiting[address]

    def _send(self, mac: Mac, address: bytes) -> None:
        request = _ARP.pack(*_PREFIX, _REQUEST, self._own_mac, bytes(4), bytes(6), address)
        self._sock.sendto(request, (self._device, _ETHERTYPE, 0, 0, mac.value.to_bytes(6, "big")))

    def _readable(self) -> None:
        for _ in range(_READS_PER_EVENT):
            try:
                packet = self._sock.recv(256)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                continue
            self._received(packet)

    def _received(self, packet: bytes) -> None:
        if len(packet) < _ARP.size:
            return
        *prefix, operation, mac, address, target_mac, _ = _ARP.unpack_from(packet)
        if (*prefix, operation) == (*_PREFIX, _REPLY) and target_mac == self._own_mac:
            for answers in self._waiting.get(address, ()):
                answers.put_nowait(Mac(int.from_bytes(mac, "big")))


async def probe_arp(target: ArpTarget, expectation: Expectation, channels: ChannelPool[ArpChannel]) -> None:
    """Return when the target answers. Raises OSError, EPERM without CAP_NET_RAW."""
    key = (target.interface, target.netns, namespace_inode(target.netns))
    with channels.use(key, lambda: ArpChannel(in_namespace(target.netns, lambda: _open(target.interface)))) as channel:
        await channel.request(target.mac, target.address.packed, expectation)


def _open(interface: str) -> socket.socket:
    """Return a packet socket without Ethernet headers on one device."""
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK, 0)
    with naming_device(interface, sock):
        sock.bind((interface, _ETHERTYPE))
    return sock
