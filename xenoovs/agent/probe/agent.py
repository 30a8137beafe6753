"""Requests to the agents of servers: a connection, an optional text, and one line in reply."""

from __future__ import annotations

import asyncio
import re
import socket

from xenoovs.agent.agent_check import MAX_REPLY_BYTES
from xenoovs.agent.probe.sockets import host_of, open_socket
from xenoovs.agent.probe.target import AgentTarget, Expectation, quoted


async def ask_agent(target: AgentTarget, expectation: Expectation) -> str | None:
    """Return why there is no reply; None: `expectation.reply` has it. Raises OSError.

    The reply ends with the first CR or LF, or with the connection.
    """
    loop, data = asyncio.get_running_loop(), b""
    with open_socket(target.address, socket.SOCK_STREAM, target.via) as sock:
        await loop.sock_connect(sock, (host_of(target.address), target.port))
        if target.send:
            await loop.sock_sendall(sock, target.send)
        expectation.missing = "no whole line"
        while not re.search(rb"[\r\n]", data):
            if len(data) >= MAX_REPLY_BYTES:
                return f"no line end in the first {MAX_REPLY_BYTES} bytes: {quoted(data)}"
            part = await loop.sock_recv(sock, MAX_REPLY_BYTES - len(data))
            if not part:
                break
            data += part
    line = re.split(rb"[\r\n]", data)[0]
    if not data:
        return "connection closed without a reply"
    if not line.isascii() or not line.replace(b"\t", b" ").decode("ascii").isprintable():
        return f"the reply is not printable ASCII: {quoted(line)}"
    expectation.reply = line.decode("ascii")
    return None
