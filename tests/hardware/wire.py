"""Packet sockets (packet(7)): the far ends of the cables, and packets that the CPU receives at a port."""

from __future__ import annotations

import socket
import struct
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from ipaddress import IPv4Address

from tests.hardware.options import Place
from tests.nic.guest.namespace import inside
from tests.nic.guest.wire import Wire

_ETH_P_IP = 0x0800
# linux/if_packet.h
_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, _PACKET_MR_PROMISC = 263, 1, 1


@dataclass(frozen=True, slots=True)
class Seen:
    """Where a packet came from, where it was sent, and the destination MAC that it had."""

    source: str
    destination: str
    mac: str


class Socket(Wire):
    """Sends and receives frames at a device. It receives those for other MACs too, as long as it is open."""

    def __init__(self, place: Place) -> None:
        super().__init__(place.netns, place.interface)
        with inside(place.netns) if place.netns else nullcontext():
            index = socket.if_nametoindex(place.interface)
        membership = struct.pack("iHH8s", index, _PACKET_MR_PROMISC, 0, b"")
        self._socket.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, membership)

    def take(self) -> Counter[Seen]:
        """IPv4 packets that have come in since the last call."""
        frames = (frame for frame in self.receive() if frame[12:14] == _ETH_P_IP.to_bytes(2, "big"))
        return Counter(
            Seen(str(IPv4Address(frame[26:30])), str(IPv4Address(frame[30:34])), frame[:6].hex(":")) for frame in frames
        )


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
