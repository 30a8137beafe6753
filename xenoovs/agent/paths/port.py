"""The packet socket on the agent's port: sends probes, and receives answers with the kernel's time stamps (packet(7)).

The kernel stamps a frame when it comes (SO_TIMESTAMPNS, socket(7)), so that an agent that is late reads the same times.
Times are those of CLOCK_REALTIME, which such stamps have. A clock that is set makes some probes of one round wrong, and
a score is a median.
"""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from struct import Struct
from typing import NamedTuple

from xenoovs.agent.probe.sockets import RECEIVE_BYTES, SO_RCVBUFFORCE, in_namespace, naming_device

_ETH_IPV4, _ETH_ALL = 0x0800, 0x0003
"""linux/if_ether.h. A device of Open vSwitch shows its frames only to sockets for all protocols: the datapath takes
them before others get them (__netif_receive_skb_core() in net/core/dev.c)."""
_SO_TIMESTAMPNS = 35
"""asm-generic/socket.h: SO_TIMESTAMPNS_OLD; Python does not name it."""
_TIMESPEC = Struct("@qq")
_ANCILLARY_BYTES = socket.CMSG_SPACE(_TIMESPEC.size)
_LARGEST_FRAME = 2048


class Frame(NamedTuple):
    """A frame from its Ethernet header on, and when the kernel received it, in microseconds."""

    data: bytes
    received_us: float


class ProbePort:
    """A packet socket on one device. Its methods do not block.

    Attributes:
        mac: Of the device, 6 bytes.
    """

    def __init__(self, device: str, *, netns: str | None = None, is_listener: bool = False) -> None:
        """Open it.

        Args:
            device: Its name.
            netns: Where it is, by name or path; None: here.
            is_listener: Read all frames of a device that the datapath has.

        Raises:
            OSError: EPERM without CAP_NET_RAW, or there is no such device.
        """
        self._socket = in_namespace(netns, lambda: _open(device, _ETH_ALL if is_listener else _ETH_IPV4))
        self.mac: bytes = self._socket.getsockname()[4]

    def fileno(self) -> int:
        """Return the descriptor, for an event loop."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def send(self, frame: bytes) -> float | None:
        """Send a frame and return when, in microseconds; None: the queue of the device is full, and it was not sent.

        Raises:
            OSError: The device is gone, or has no link.
        """
        sent_us = now_us()
        try:
            self._socket.send(frame)
        except OSError as error:
            # ENOBUFS: the queue of the device is full (packet(7)).
            if error.errno not in (errno.EAGAIN, errno.EINTR, errno.ENOBUFS):
                raise
            return None
        return sent_us

    def received(self, *, most: int = 1024) -> Iterator[Frame]:
        """Yield the frames that have come, at most so many. Raises OSError: the device is gone."""
        for _ in range(most):
            try:
                data, ancillary, _, origin = self._socket.recvmsg(_LARGEST_FRAME, _ANCILLARY_BYTES)
            except (BlockingIOError, InterruptedError):
                return
            if origin[2] != socket.PACKET_OUTGOING:
                yield Frame(data, _stamp_us(ancillary))


def now_us() -> float:
    """Return the time of CLOCK_REALTIME in microseconds."""
    return time.time_ns() / 1000


def _stamp_us(ancillary: list[tuple[int, int, bytes]]) -> float:
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS) and len(data) == _TIMESPEC.size:
            seconds, nanoseconds = _TIMESPEC.unpack(data)
            return float(seconds * 1_000_000 + nanoseconds / 1000)
    return now_us()


def _open(device: str, protocol: int) -> socket.socket:
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
    with naming_device(device, sock):
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        with suppress(PermissionError):
            sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BYTES)
        sock.bind((device, protocol))
    return sock
