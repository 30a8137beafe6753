"""A connection is accepted (RFC 9293, 3.5). Nothing is sent on it."""

from __future__ import annotations

import asyncio
import socket
import struct

from xenoovs.agent.probe.sockets import host_of, open_socket
from xenoovs.agent.probe.target import TcpClose, TcpTarget

_RESET = struct.pack("ii", 1, 0)
"""struct linger of socket(7): on, for 0 s, which makes close(2) send a reset."""


async def probe_tcp(target: TcpTarget) -> str | None:
    """Why not, or None. Raises OSError where no connection comes about."""
    with open_socket(target.address, socket.SOCK_STREAM, target.via) as sock:
        if target.close is TcpClose.RESET:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        await asyncio.get_running_loop().sock_connect(sock, (host_of(target.address), target.port))
    return None
