"""A backend that answers every kind of probe: `python -m tests.systemd.guest.servers CERTIFICATE ADDRESS`.

CERTIFICATE: a file with chain and key, PEM. ADDRESS: where LOCAL is. Notifies systemd when it listens.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from typing import Any

import dns.message

from xenoovs.log import notify

TCP, HTTP, HTTPS, DNS, UDP, LOCAL = 7000, 8080, 8443, 53, 7001, 7002
"""Ports on all addresses; LOCAL on one alone."""


class _Answering(asyncio.DatagramProtocol):
    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._transport.sendto(self.answer(data), addr)

    def answer(self, data: bytes) -> bytes:
        return b"pong" if data == b"ping" else b"what?"


class _Names(_Answering):
    def answer(self, data: bytes) -> bytes:
        response = dns.message.make_response(dns.message.from_wire(data))
        response.answer.append(dns.rrset.from_text(response.question[0].name, 60, "IN", "A", "192.0.2.1"))
        return response.to_wire()


async def _talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        request = await reader.readuntil(b"\r\n\r\n")
        found = b"200 OK" if request.startswith(b"GET /health ") else b"404 Not Found"
        writer.write(b"HTTP/1.1 " + found + b"\r\nContent-Length: 4\r\nConnection: close\r\n\r\nfine")
        await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass  # A tcp probe sends nothing.
    finally:
        writer.close()


async def main() -> None:
    """Serve for ever."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(sys.argv[1])
    loop = asyncio.get_running_loop()
    for port, protocol in ((DNS, _Names), (UDP, _Answering)):
        await loop.create_datagram_endpoint(protocol, local_addr=("0.0.0.0", port))
    serving = [await asyncio.start_server(_talk, "0.0.0.0", port) for port in (TCP, HTTP)]
    serving.append(await asyncio.start_server(_talk, "0.0.0.0", HTTPS, ssl=tls))
    serving.append(await asyncio.start_server(_talk, sys.argv[2], LOCAL))
    notify("READY=1")
    await asyncio.gather(*(server.serve_forever() for server in serving))


if __name__ == "__main__":
    asyncio.run(main())
