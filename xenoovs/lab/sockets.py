"""Sockets that set a packet's source and return its destination (IP_PKTINFO of ip(7), IPV6_PKTINFO of ipv6(7)).

It imports only the standard library, as the helper programs of the lab start often.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable

Ancillary = list[tuple[int, int, bytes]]

ECHOED_BYTES = 64
"""How many bytes of a UDP request the answer repeats at most."""

# linux/in.h and linux/in6.h; Python 3.11 does not name these.
_IP_PKTINFO = 8
_IP_FREEBIND = 15
_IPV6_FREEBIND = 78
_SO_RCVBUFFORCE = 33

_BUFFER_BYTES = 4 << 20

# struct in_pktinfo: interface, local address, destination of the header; struct in6_pktinfo: address, interface.
_PKTINFO4 = struct.Struct("=I4s4s")
_PKTINFO6 = struct.Struct("=16sI")


def udp_socket(family: socket.AddressFamily) -> socket.socket:
    """Return a nonblocking UDP socket for packets from and to any local address."""
    sock = socket.socket(family, socket.SOCK_DGRAM)
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    prepare(sock)
    return sock


def prepare(sock: socket.socket) -> None:
    """Prepare a datagram or raw socket for `from_address`: nonblocking, with a large receive buffer."""
    sock.settimeout(0)
    sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
    allow_any_local(sock)
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
    else:
        sock.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)


def allow_any_local(sock: socket.socket) -> None:
    """Let a socket use addresses that only a local route has; IPv6 otherwise requires them on an interface."""
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_FREEBIND, 1)
    else:
        sock.setsockopt(socket.IPPROTO_IP, _IP_FREEBIND, 1)


def from_address(source: bytes) -> Ancillary:
    """Return the control message with which sendmsg(2) sends from this address (4 or 16 bytes)."""
    if len(source) == 4:
        return [(socket.IPPROTO_IP, _IP_PKTINFO, _PKTINFO4.pack(0, source, bytes(4)))]
    return [(socket.IPPROTO_IPV6, socket.IPV6_PKTINFO, _PKTINFO6.pack(source, 0))]


def destination_of(ancillary: Iterable[tuple[int, int, bytes]]) -> bytes:
    """Return the destination of a packet from the control messages of recvmsg(2). Raises OSError if they have none."""
    for level, kind, data in ancillary:
        if (level, kind) == (socket.IPPROTO_IP, _IP_PKTINFO):
            return bytes(_PKTINFO4.unpack(data)[2])
        if (level, kind) == (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO):
            return bytes(_PKTINFO6.unpack(data)[0])
    raise OSError("the kernel did not say to which address the packet came")
