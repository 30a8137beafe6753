"""Packet sockets (packet(7)): the far ends of the cables, and packets that the CPU receives at a port."""

from __future__ import annotations

import socket
import struct
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from ipaddress import IPv4Address

from tests.hardware.options import Place
from tests.nic.guest.namespace import inside

_ETH_P_ALL, _ETH_P_IP = 3, 0x0800
_SO_RCVBUFFORCE = 33  # asm-generic/socket.h
_BUFFER_BYTES = 64 << 20
# linux/if_packet.h
_PACKET_OUTGOING, _SOL_PACKET, _PACKET_ADD_MEMBERSHIP, _PACKET_MR_PROMISC = 4, 263, 1, 1


@dataclass(frozen=True, slots=True)
class Seen:
    """Where a packet came from, where it was sent, and the destination MAC that it had."""

    source: str
    destination: str
    mac: str


class Socket:
    """Sends and receives frames at a device. It receives those for other MACs too, as long as it is open."""

    def __init__(self, place: Place) -> None:
        with inside(place.netns) if place.netns else nullcontext():
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
            index = socket.if_nametoindex(place.interface)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        self._socket.bind((place.interface, _ETH_P_ALL))
        membership = struct.pack("iHH8s", index, _PACKET_MR_PROMISC, 0, b"")
        self._socket.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, membership)
        self._socket.setblocking(False)

    def send(self, frames: Iterable[bytes]) -> None:
        """Hand the frames to the device, in order and no faster than a slow port takes them."""
        for frame in frames:
            self._socket.send(frame)

    def take(self) -> Counter[Seen]:
        """IPv4 packets that have come in since the last call."""
        found = Counter[Seen]()
        while True:
            try:
                frame, address = self._socket.recvfrom(2048)
            except BlockingIOError:
                return found
            if address[2] != _PACKET_OUTGOING and frame[12:14] == _ETH_P_IP.to_bytes(2, "big"):
                source, destination = IPv4Address(frame[26:30]), IPv4Address(frame[30:34])
                found[Seen(str(source), str(destination), frame[:6].hex(":"))] += 1

    def close(self) -> None:
        """Close the socket; the device leaves promiscuous mode."""
        self._socket.close()


def gather(sockets: Sequence[Socket], *, quiet_s: float = 1.0, limit_s: float = 30.0) -> list[Counter[Seen]]:
    """What each socket has seen since its last `take`, once nothing of IPv4 came for `quiet_s`, or after `limit_s`."""
    found = [Counter[Seen]() for _ in sockets]
    begun = last = time.monotonic()
    while time.monotonic() - last < quiet_s and time.monotonic() - begun < limit_s:
        for counted, listener in zip(found, sockets, strict=True):
            new = listener.take()
            counted.update(new)
            last = time.monotonic() if new else last
        time.sleep(0.02)
    return found
