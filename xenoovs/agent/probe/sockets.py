"""Sockets of probes: non-blocking, by address family, device and network namespace. Some are shared by many probes."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import socket
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from ipaddress import IPv6Address
from pathlib import Path
from typing import IO, Any, Generic, TypeVar

from xenoovs.model.address import IPAddress

T = TypeVar("T")

_NAMED_NAMESPACES = "/run/netns"
_OWN_NAMESPACE = Path("/proc/thread-self/ns/net")
_CLONE_NEWNET = 0x40000000  # linux/sched.h
_LIBC = ctypes.CDLL(None, use_errno=True)


def namespace_path(netns: str) -> str:
    """Return the file of a namespace given by name (ip-netns(8)) or by path."""
    return netns if "/" in netns else f"{_NAMED_NAMESPACES}/{netns}"


def namespace_inode(netns: str | None) -> int | None:
    """Return the inode of a namespace, which differs if the name is used again. Raises OSError if it is absent."""
    return None if netns is None else _require_namespace(netns).stat().st_ino


def in_namespace(netns: str | None, make: Callable[[], T]) -> T:
    """Call `make` in a network namespace. A socket stays in the namespace in which it was opened.

    setns(2) moves only the calling thread, which is moved back before other code runs in it. `netns`: name or path;
    None for the namespace of the calling thread. `make` must not block, start a thread or call into the event loop.
    Raises OSError if there is no such namespace, and what `make` raises.
    """
    if netns is None:
        return make()
    path = _require_namespace(netns)
    with _OWN_NAMESPACE.open("rb") as own, path.open("rb") as other:
        _set_namespace(other)
        try:
            return make()
        finally:
            try:
                _set_namespace(own)
            except OSError as error:
                # This thread must not continue in the wrong namespace.
                raise RuntimeError(f"cannot return from network namespace {netns}") from error


def _require_namespace(netns: str) -> Path:
    path = Path(namespace_path(netns))
    if not path.exists():
        raise OSError(f"network namespace {netns} does not exist")
    return path


def _set_namespace(file: IO[bytes]) -> None:
    # Python has os.setns only since 3.12.
    if _LIBC.setns(file.fileno(), _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        if number == errno.EINVAL:
            raise OSError("this is not a network namespace")
        raise OSError(number, os.strerror(number))


_READS_PER_EVENT = 256


class Channel:
    """A non-blocking socket from which the event loop reads every packet."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self._loop = sock, asyncio.get_running_loop()
        self._loop.add_reader(sock, self._readable)

    def close(self) -> None:
        self._loop.remove_reader(self._sock)
        self._sock.close()

    def _readable(self) -> None:
        for _ in range(_READS_PER_EVENT):
            try:
                packet, origin = self._sock.recvfrom(2048)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                continue
            self._received(packet, origin)

    def _received(self, packet: bytes, origin: tuple[Any, ...]) -> None:
        """Handle a packet. `origin`: the address of its sender, as recvfrom(2) returns it."""
        raise NotImplementedError


C = TypeVar("C", bound=Channel)


class ChannelPool(Generic[C]):
    """Channels by key: opened for the first probe, closed after the last one. A channel that fails with OSError gets no
    more probes, because its device may no longer exist."""

    def __init__(self) -> None:
        self._channels: dict[Hashable, C] = {}
        self._users = Counter[C]()

    @contextmanager
    def use(self, key: Hashable, open_channel: Callable[[], C]) -> Iterator[C]:
        """Yield the channel of a key; open it if no probe uses one. Raises what `open_channel` raises."""
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = open_channel()
        self._users[channel] += 1
        try:
            yield channel
        except OSError:
            self._forget(key, channel)
            raise
        finally:
            self._users[channel] -= 1
            if not self._users[channel]:
                del self._users[channel]
                self._forget(key, channel)
                channel.close()

    def _forget(self, key: Hashable, channel: C) -> None:
        if self._channels.get(key) is channel:
            del self._channels[key]


SO_RCVBUFFORCE = 33  # asm-generic/socket.h; Python has no name for it
RECEIVE_BYTES = 4 << 20
"""Receive buffer for the answers of thousands of targets at once."""


def family_of(address: IPAddress) -> socket.AddressFamily:
    """Return AF_INET or AF_INET6."""
    return socket.AF_INET if address.version == 4 else socket.AF_INET6


def host_of(address: IPAddress) -> str:
    """Return the address without its scope."""
    return str(address).partition("%")[0]


def device_of(address: IPAddress, interface: str | None) -> str | None:
    """Return the device to send from: that of the probe, else the scope of the address (fe80::1%eth0, RFC 4007, section
    11); None for the kernel's choice."""
    return interface or (address.scope_id if isinstance(address, IPv6Address) else None)


def open_socket(
    address: IPAddress, kind: socket.SocketKind, interface: str | None, netns: str | None, *, protocol: int = 0
) -> socket.socket:
    """Return a socket for packets to an address, sent by `interface` (SO_BINDTODEVICE, socket(7)). `netns`: as for
    `in_namespace`. Raises OSError if its device or namespace does not exist."""
    family, device = family_of(address), device_of(address, interface)

    def make() -> socket.socket:
        sock = socket.socket(family, kind | socket.SOCK_NONBLOCK, protocol)
        if device is not None:
            with naming_device(device, sock):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
        return sock

    return in_namespace(netns, make)


@contextmanager
def naming_device(device: str, sock: socket.socket) -> Iterator[None]:
    """Close the socket if binding it within the `with` fails. The OSError names a device that does not exist."""
    try:
        yield
    except OSError as error:
        sock.close()
        if error.errno in (errno.ENODEV, errno.ENXIO):
            raise OSError(f"interface {device} does not exist") from None
        raise
