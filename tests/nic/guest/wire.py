"""The far end of a port's cable: sends given frames and counts those that arrive."""

from __future__ import annotations

import socket
import struct
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from select import select

from tests.nic.guest.frames import Summary, summary_of
from xenoovs.agent.probe.sockets import in_namespace

_ETH_P_ALL = 3
_SO_RCVBUFFORCE = 33  # asm-generic/socket.h
_BUFFER_BYTES = 64 << 20
_QUIET_S, _TURN_S = 0.5, 0.02
_PACKET_OUTGOING = 4  # linux/if_packet.h
_SOL_PACKET, _PACKET_AUXDATA, _VLAN_VALID = 263, 8, 1 << 4
_AUXDATA = struct.Struct("=3I4H")
"""struct tpacket_auxdata of linux/if_packet.h: status first, the tag and its TPID last."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """How many frames of one kind left the NIC here."""

    frame: Summary
    packets: int


class Wire:
    """A packet socket (packet(7)) on the device `name` in the namespace `netns`; None: in this one."""

    def __init__(self, netns: str | None, name: str) -> None:
        self.name = name
        kind = socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL)
        self._socket = in_namespace(netns, lambda: socket.socket(*kind))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        self._socket.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
        self._socket.bind((name, _ETH_P_ALL))
        self._socket.settimeout(0.0)

    def send(self, frames: Iterable[bytes]) -> None:
        """Hand the frames to the device, one after the other."""
        for frame in frames:
            try:
                self._socket.send(frame)
            except BlockingIOError:
                # The guest encrypts more slowly than this sends, and what waits for that counts here.
                select((), (self._socket,), ())
                self._socket.send(frame)

    def receive(self) -> list[bytes]:
        """The frames that have arrived since the last call."""
        frames: list[bytes] = []
        while True:
            try:
                frame, beside, _, address = self._socket.recvmsg(2048, socket.CMSG_SPACE(_AUXDATA.size))
            except BlockingIOError:
                return frames
            if address[2] != _PACKET_OUTGOING:
                frames.append(_with_tag(frame, [data for _, kind, data in beside if kind == _PACKET_AUXDATA]))

    def close(self) -> None:
        """Release the socket."""
        self._socket.close()


def _with_tag(frame: bytes, beside: list[bytes]) -> bytes:
    """Return a frame as it came by the cable: the kernel takes its tag off before a packet socket gets it."""
    for data in beside:
        status, *_, tci, tpid = _AUXDATA.unpack(data)
        if status & _VLAN_VALID:
            return frame[:12] + struct.pack("!HH", tpid, tci) + frame[12:]
    return frame


def arrived(wires: Mapping[str, Wire]) -> dict[str, tuple[Arrived, ...]]:
    """Return what has arrived at each wire since the last call, once nothing more comes."""
    counts: dict[str, Counter[Summary]] = {port: Counter() for port in wires}
    for port, frame in remaining_frames(wires):
        counts[port][summary_of(frame)] += 1
    return {port: tuple(Arrived(*item) for item in counter.items()) for port, counter in counts.items()}


def remaining_frames(wires: Mapping[str, Wire]) -> Iterator[tuple[str, bytes]]:
    """Yield the frames that arrive anywhere, until none has come while the guest was idle for half a second.

    Idle time and not time: a packet may wait for ovs-vswitchd, and that for a processor. Idle time may go on while the
    host does not run the guest, so no turn counts for more than twice the time that it sleeps.
    """
    quiet_s, before_s = 0.0, _idle_s()
    while quiet_s < _QUIET_S:
        time.sleep(_TURN_S)
        now_s = _idle_s()
        quiet_s, before_s = quiet_s + min(now_s - before_s, 2 * _TURN_S), now_s
        for port, wire in wires.items():
            for frame in wire.receive():
                yield port, frame
                quiet_s = 0.0


def _idle_s() -> float:
    return float(Path("/proc/uptime").read_text().split()[1])
