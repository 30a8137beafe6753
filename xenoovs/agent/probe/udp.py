"""A datagram is answered (RFC 768). The socket is connected: datagrams of others never reach it (udp(7))."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from xenoovs.agent.probe.result import quoted
from xenoovs.agent.probe.sockets import host_of, open_socket
from xenoovs.agent.probe.target import UdpTarget, Via
from xenoovs.model.address import IPAddress

_LONGEST = 65535


async def probe_udp(target: UdpTarget) -> str | None:
    """Why not, or None. Raises OSError; `connection refused` is an ICMP error that came back."""
    async with talk(target.address, target.port, target.via) as conversation:
        answer = await conversation.ask(target.send)
    if target.expect in answer:
        return None
    return f"answered {quoted(answer)}, wanted {quoted(target.expect)} in it"


class Conversation:
    """One connected datagram socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    async def ask(self, request: bytes) -> bytes:
        """Send, and the next datagram that comes."""
        self._sock.send(request)
        return await self.next()

    async def next(self) -> bytes:
        """The next datagram that comes."""
        return await asyncio.get_running_loop().sock_recv(self._sock, _LONGEST)


@asynccontextmanager
async def talk(address: IPAddress, port: int, via: Via) -> AsyncIterator[Conversation]:
    """A socket for datagrams to and from one address and port."""
    with open_socket(address, socket.SOCK_DGRAM, via) as sock:
        sock.connect((host_of(address), port))
        yield Conversation(sock)
