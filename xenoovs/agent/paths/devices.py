"""The packet sockets of an agent by device: opened on demand, and reopened after a restart of Open vSwitch."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from ipaddress import IPv4Address
from struct import Struct
from typing import NamedTuple

from xenoovs.agent.paths.frame import destination_of, parse_next_hop_mac
from xenoovs.agent.probe.sockets import RECEIVE_BYTES, SO_RCVBUFFORCE, in_namespace, naming_device
from xenoovs.log import info, warn

_RETRY_S = 0.5
_RENEW_S = 10.0
"""Time between two refreshes of the MAC for a remote that does not answer."""

OpenPort = Callable[..., "ProbePort"]
"""Opens a ProbePort in the network namespace of the devices."""


class Devices:
    """Packet sockets. A device that cannot be opened is logged once, and retried. `problems`: the reason, by device."""

    def __init__(self, open_port: OpenPort) -> None:
        self.problems: dict[str, str] = {}
        self._open_port = open_port
        self._ports: dict[str, ProbePort] = {}
        self._retry_s: dict[str, float] = {}

    def port(self, device: str, now_s: float) -> ProbePort | None:
        """Return the socket on a device; None if it cannot be opened now."""
        port = self._ports.get(device)
        if port is None and now_s >= self._retry_s.get(device, now_s):
            try:
                port = self._ports[device] = self._open_port(device)
            except OSError as error:
                self.failed(device, error, now_s)
            else:
                if self.problems.pop(device, ""):
                    info("probe port works again", port=device)
        return port

    def failed(self, device: str, error: OSError, now_s: float) -> None:
        """Log a failed device and close its socket; `port` opens it again later."""
        if (port := self._ports.pop(device, None)) is not None:
            port.close()
        self._retry_s[device] = now_s + _RETRY_S
        reason = error.strerror or str(error)
        if self.problems.get(device) != reason:
            warn("probe port does not work", port=device, reason=reason)
        self.problems[device] = reason

    def received(self, now_s: float) -> Iterator[Frame]:
        """Yield the frames that all devices have received."""
        for device, port in tuple(self._ports.items()):
            try:
                yield from port.received()
            except OSError as error:
                self.failed(device, error, now_s)

    def keep(self, devices: Collection[str]) -> None:
        """Close the sockets on all other devices."""
        for device in self._ports.keys() - set(devices):
            self._ports.pop(device).close()
        self.problems = {device: reason for device, reason in self.problems.items() if device in devices}


class NextHopMacs:
    """The MACs of the next hops of remotes, learned from the host's own tunnel packets.

    The host encapsulates, so that only its neighbour table has these MACs. The first packet of each flow passes the
    datapath in software even if later ones are offloaded.
    """

    def __init__(self, open_port: OpenPort) -> None:
        self._open_port = open_port
        self._found: dict[tuple[str, IPv4Address], bytes] = {}
        self._listeners: dict[str, ProbePort] = {}
        self._wanted: dict[tuple[str, IPv4Address], int] = {}
        self._renewed_s: dict[tuple[str, IPv4Address], float] = {}

    def find(self, host_port: str, remote: IPv4Address, *, tunnel_port: int) -> bytes | None:
        """Return the MAC, 6 bytes; None if no packet was received yet."""
        key = host_port, remote
        if key not in self._found:
            self._wanted[key] = tunnel_port
        return self._found.get(key)

    def renew(self, host_port: str, remote: IPv4Address, *, tunnel_port: int, now_s: float) -> None:
        """Learn the MAC again from the host's next packet: a replaced router has another MAC."""
        key = host_port, remote
        if key in self._found and now_s >= self._renewed_s.get(key, now_s):
            self._renewed_s[key] = now_s + _RENEW_S
            self._wanted[key] = tunnel_port

    def keep(self, keys: Collection[tuple[str, IPv4Address]]) -> None:
        """Forget all other ports and remotes."""
        for known in (self._found, self._wanted, self._renewed_s):
            for key in known.keys() - set(keys):
                del known[key]

    def listen(self) -> None:
        """Learn from the packets that the host has sent. Sockets are open only while a MAC is missing."""
        for device in {device for device, _ in self._wanted} - self._listeners.keys():
            try:
                self._listeners[device] = self._open_port(device, is_listener=True)
            except OSError:
                continue
        for device, listener in tuple(self._listeners.items()):
            try:
                for frame in listener.received():
                    self._learn(device, frame.data)
            except OSError:
                self._close(device)
            if not any(name == device for name, _ in self._wanted):
                self._close(device)

    def close(self) -> None:
        for device in tuple(self._listeners):
            self._close(device)

    def _learn(self, device: str, frame: bytes) -> None:
        remote = destination_of(frame)
        if remote is None or (tunnel_port := self._wanted.get((device, remote))) is None:
            return
        if (mac := parse_next_hop_mac(frame, remote, tunnel_port=tunnel_port)) is not None:
            self._found[device, remote] = mac
            del self._wanted[device, remote]

    def _close(self, device: str) -> None:
        if (listener := self._listeners.pop(device, None)) is not None:
            listener.close()


# The packet socket on one device: sends probes, and receives answers with the kernel's time stamps (packet(7)). The
# kernel stamps a frame on arrival (SO_TIMESTAMPNS, socket(7)), so that a late agent reads the same times. Such stamps
# are of CLOCK_REALTIME, so all times are. A change of the clock makes some probes of one round wrong, which does not
# matter to a score, which is a median.


_ETH_IPV4, _ETH_ALL = 0x0800, 0x0003
"""linux/if_ether.h. Only sockets for all protocols receive the frames of a device of Open vSwitch, because the datapath
takes these frames before other sockets (__netif_receive_skb_core() in net/core/dev.c)."""
_SO_TIMESTAMPNS = 35
"""asm-generic/socket.h: SO_TIMESTAMPNS_OLD; Python has no name for it."""
_TIMESPEC = Struct("@qq")
_ANCILLARY_BYTES = socket.CMSG_SPACE(_TIMESPEC.size)
_LARGEST_FRAME = 2048


class Frame(NamedTuple):
    """A frame with its Ethernet header, and when the kernel received it, in microseconds."""

    data: bytes
    received_us: float


class ProbePort:
    """A packet socket on one device, and its MAC of 6 bytes. Its methods do not block."""

    def __init__(self, device: str, *, netns: str | None = None, is_listener: bool = False) -> None:
        """Open the socket. `netns`: of the device, by name or path; None for that of this process. `is_listener`:
        receive all frames of a device in the datapath. Raises OSError: no such device, or EPERM without CAP_NET_RAW."""
        self._socket = in_namespace(netns, lambda: _open(device, _ETH_ALL if is_listener else _ETH_IPV4))
        self.mac: bytes = self._socket.getsockname()[4]

    def close(self) -> None:
        self._socket.close()

    def send(self, frame: bytes) -> float | None:
        """Send a frame and return when, in microseconds; None if the queue of the device was full. Raises OSError if
        the device does not exist, or has no link."""
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
        """Yield the received frames, at most `most`. Raises OSError if the device does not exist."""
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
