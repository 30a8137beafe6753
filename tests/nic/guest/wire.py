"""The far end of a port's cable: sends exactly what it is told to, and counts what arrives."""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tests.nic.guest.frames import Summary, summary_of
from tests.nic.guest.namespace import inside

_ETH_P_ALL = 3
_SO_RCVBUFFORCE = 33  # asm-generic/socket.h
_BUFFER_BYTES = 64 << 20
_PACKET_OUTGOING = 4  # linux/if_packet.h


@dataclass(frozen=True, slots=True)
class Arrived:
    """How many frames of one kind left the NIC here."""

    frame: Summary
    packets: int


class Wire:
    """A packet socket (packet(7)) on the device `name` in the namespace `netns`."""

    def __init__(self, netns: str, name: str) -> None:
        self.name = name
        with inside(netns):
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        self._socket.bind((name, _ETH_P_ALL))
        self._socket.settimeout(0.0)

    def send(self, frames: Iterable[bytes]) -> None:
        """Hand the frames to the device, one after the other."""
        for frame in frames:
            self._socket.send(frame)

    def take(self) -> list[Summary]:
        """The frames that have arrived since the last call, and what is worth remembering of them."""
        return [summary_of(frame) for frame in self.receive()]

    def receive(self) -> list[bytes]:
        """The frames that have arrived since the last call."""
        frames: list[bytes] = []
        while True:
            try:
                frame, address = self._socket.recvfrom(2048)
            except BlockingIOError:
                return frames
            if address[2] != _PACKET_OUTGOING:
                frames.append(frame)

    def close(self) -> None:
        """Release the socket."""
        self._socket.close()


def arrived(wires: Mapping[str, Wire], *, quiet_s: float = 0.5) -> dict[str, tuple[Arrived, ...]]:
    """What has arrived at each wire since the last call; waits until nothing comes anywhere for `quiet_s`."""
    seen: dict[str, Counter[Summary]] = {port: Counter() for port in wires}
    last = time.monotonic()
    while time.monotonic() - last < quiet_s:
        for port, wire in wires.items():
            frames = wire.take()
            seen[port].update(frames)
            if frames:
                last = time.monotonic()
        time.sleep(0.02)
    return {port: tuple(Arrived(*item) for item in found.items()) for port, found in seen.items()}
