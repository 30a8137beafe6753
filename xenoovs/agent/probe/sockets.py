"""Sockets that a probe sends by: of a family, a device and a namespace, never blocking."""

from __future__ import annotations

import errno
import socket
from ipaddress import IPv6Address

from xenoovs.agent.probe.namespace import inside
from xenoovs.agent.probe.target import Via
from xenoovs.model.address import IPAddress

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
