"""Sockets of probes: of a family, a device and a namespace, never blocking; some shared by many probes."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv6Address
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from xenoovs.agent.probe.target import Via
from xenoovs.model.address import IPAddress

# Sockets of another network namespace: a socket stays in the namespace in which it was opened (network_namespaces(7)).
#
# setns(2) changes the calling thread alone, so a thread of its own goes there, opens the socket and ends; the event
# loop stays where it is. Python 3.11 has no os.setns.


T = TypeVar("T")

_NAMED = "/run/netns"
_CLONE_NEWNET = 0x40000000  # linux/sched.h


def namespace_path(netns: str) -> str:
    """The file of a namespace given by name (ip-netns(8)) or by path."""
    return netns if "/" in netns else f"{_NAMED}/{netns}"


def namespace_identity(netns: str | None) -> int | None:
    """Tells a namespace from a later one of the same name: the inode of namespaces(7). Raises OSError."""
    return None if netns is None else _existing(netns).stat().st_ino


def inside(netns: str | None, make: Callable[[], T]) -> T:
    """What `make` returns or raises, run inside a namespace. Raises OSError when there is no such namespace."""
    if netns is None:
        return make()
    descriptor = os.open(_existing(netns), os.O_RDONLY | os.O_CLOEXEC)
    made: list[T] = []
    raised: list[Exception] = []

    def visit() -> None:
        try:
            _enter(descriptor)
            made.append(make())
        except (OSError, ValueError) as error:
            raised.append(error)

    try:
        visitor = threading.Thread(target=visit, name=f"netns {netns}", daemon=True)
        visitor.start()
        visitor.join()
    finally:
        os.close(descriptor)
    if raised:
        raise raised[0]
    return made[0]


def _existing(netns: str) -> Path:
    path = Path(namespace_path(netns))
    if not path.exists():
        raise OSError(f"network namespace {netns} does not exist")
    return path


def _enter(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        if number == errno.EINVAL:
            raise OSError("this is not a network namespace")
        raise OSError(number, os.strerror(number))


# Sockets that many probes share: opened for the first, closed after the last, so none is ever left over.


class Closable(Protocol):
    """Anything that holds a socket."""

    def close(self) -> None: ...


C = TypeVar("C", bound=Closable)


@dataclass(slots=True)
class _Entry(Generic[C]):
    channel: C
    users: int = 0


class Shared(Generic[C]):
    """Channels by key. A channel that fails with OSError gets no new users: its device may be gone for good."""

    def __init__(self) -> None:
        self._entries: dict[Hashable, _Entry[C]] = {}

    @contextmanager
    def use(self, key: Hashable, start: Callable[[], C]) -> Iterator[C]:
        """The channel of this key; `start` makes it when nobody uses one. Raises what `start` raises."""
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry(start())
        entry.users += 1
        try:
            yield entry.channel
        except OSError:
            self._forget(key, entry)
            raise
        finally:
            entry.users -= 1
            if entry.users == 0:
                self._forget(key, entry)
                entry.channel.close()

    def _forget(self, key: Hashable, entry: _Entry[C]) -> None:
        if self._entries.get(key) is entry:
            del self._entries[key]


SO_RCVBUFFORCE = 33  # asm-generic/socket.h; Python does not name it
RECEIVE_BYTES = 4 << 20
"""Room for the answers of thousands of targets at once."""


def family_of(address: IPAddress) -> socket.AddressFamily:
    """AF_INET or AF_INET6."""
    return socket.AF_INET if address.version == 4 else socket.AF_INET6


def host_of(address: IPAddress) -> str:
    """The address without its scope."""
    return str(address).partition("%")[0]


def device_of(address: IPAddress, via: Via) -> str | None:
    """The device to send by: that of the probe, else the scope of the address."""
    return via.interface or (address.scope_id if isinstance(address, IPv6Address) else None)


def open_socket(address: IPAddress, kind: socket.SocketKind, via: Via, *, protocol: int = 0) -> socket.socket:
    """A socket to reach an address by. Raises OSError, also when device or namespace do not exist."""
    family, device = family_of(address), device_of(address, via)

    def make() -> socket.socket:
        sock = socket.socket(family, kind | socket.SOCK_NONBLOCK, protocol)
        try:
            if device is not None:
                bind_to_device(sock, device)
        except OSError:
            sock.close()
            raise
        return sock

    return inside(via.netns, make)


def bind_to_device(sock: socket.socket, device: str) -> None:
    """SO_BINDTODEVICE of socket(7). Raises OSError that names a device that is not there."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
    except OSError as error:
        raise absent(error, device) from None


def absent(error: OSError, device: str) -> OSError:
    """The same error, or one that says that there is no such device."""
    return OSError(f"interface {device} does not exist") if error.errno in (errno.ENODEV, errno.ENXIO) else error
