"""A TCP connection is accepted, or answers an HTTP request."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable
from pathlib import Path

import aiohttp
from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector
from yarl import URL

from xenoovs.agent.probe.sockets import device_of, host_of, open_socket
from xenoovs.agent.probe.target import HttpTarget, TcpClose, TcpTarget, Tls, Via, Waiting, quoted, reason_of

_RESET = struct.pack("ii", 1, 0)
"""struct linger of socket(7): on, for 0 s, which makes close(2) send a reset."""


async def probe_tcp(target: TcpTarget) -> str | None:
    """Why not, or None. Raises OSError where no connection comes about."""
    with open_socket(target.address, socket.SOCK_STREAM, target.via) as sock:
        if target.close is TcpClose.RESET:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        await asyncio.get_running_loop().sock_connect(sock, (host_of(target.address), target.port))
    return None


# GET is answered as wanted (RFC 9110), over a connection of its own: one that is kept would hide a dead listener.


_MOST_BODY_BYTES = 1 << 20
_NO_LIMIT = ClientTimeout(total=None, sock_connect=None, sock_read=None)

# x509_vfy.h of OpenSSL, what a person can act on; others are told in OpenSSL's words.
_CERTIFICATE = {
    9: "certificate not valid yet",
    10: "certificate expired",
    18: "certificate signed by itself",
    19: "certificate from an authority that is not trusted",
    20: "certificate from an authority that is not trusted",
    23: "certificate revoked",
    62: "certificate for another name",
    64: "certificate for another address",
}


class TlsContexts:
    """Contexts of clients by what is asked of them, made once: reading the system's authorities takes milliseconds."""

    def __init__(self) -> None:
        self._made: dict[Tls, tuple[int, ssl.SSLContext]] = {}

    def context(self, tls: Tls) -> ssl.SSLContext:
        """A context; anew when ca_file was changed. Raises OSError for a file that cannot be read or holds no CA."""
        changed = Path(tls.ca_file).stat().st_mtime_ns if tls.ca_file else 0
        key = Tls(tls.verify, tls.ca_file)
        known = self._made.get(key)
        if known is None or known[0] != changed:
            known = self._made[key] = (changed, _new_context(tls))
        return known[1]


def _new_context(tls: Tls) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
    except ssl.SSLError:
        raise OSError(f"{tls.ca_file} holds no certificate in PEM form") from None
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


async def probe_http(target: HttpTarget, waiting: Waiting, contexts: TlsContexts) -> str | None:
    """Why not, or None. Raises OSError."""
    context = contexts.context(target.tls) if target.tls else None
    connector = TCPConnector(
        force_close=True,
        limit=0,
        happy_eyeballs_delay=None,
        socket_factory=_socket_factory(target),
    )
    async with ClientSession(
        connector=connector, timeout=_NO_LIMIT, cookie_jar=DummyCookieJar(), auto_decompress=False
    ) as session:
        try:
            return await _ask(session, target, waiting, context)
        except aiohttp.ClientError as error:
            return _fault(error)
        except UnicodeError as error:
            return f"the request cannot be made: {error}"


async def _ask(
    session: ClientSession, target: HttpTarget, waiting: Waiting, context: ssl.SSLContext | None
) -> str | None:
    url = URL.build(scheme="http" if context is None else "https", host=host_of(target.address), port=target.port).join(
        URL(target.path, encoded=True)
    )
    name = (target.tls.name if target.tls else None) or target.host
    headers = {"Host": target.host} if target.host else {}
    async with session.get(
        url, headers=headers, allow_redirects=False, ssl=context or True, server_hostname=name if context else None
    ) as response:
        first, last = target.status
        if not first <= response.status <= last:
            return f"status {response.status}, wanted {first}" + (f"-{last}" if last != first else "")
        waiting.missing = "no complete body"
        return None if not target.body else await _body_fault(response.content, target.body)


async def _body_fault(content: aiohttp.StreamReader, wanted: bytes) -> str | None:
    seen = bytearray()
    async for part in content.iter_any():
        seen += part
        if wanted in seen:
            return None
        if len(seen) > _MOST_BODY_BYTES:
            return f"{quoted(wanted)} is not in the first {_MOST_BODY_BYTES} bytes of the body"
    return f"the body has no {quoted(wanted)} in it: {quoted(bytes(seen))}"


def _socket_factory(target: HttpTarget) -> Callable[[object], socket.socket]:
    via = Via(device_of(target.address, target.via), target.via.netns)
    return lambda _: open_socket(target.address, socket.SOCK_STREAM, via)


def _fault(error: aiohttp.ClientError) -> str:
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return certificate_fault(error.certificate_error)
        case aiohttp.ClientConnectorError():
            return tls_fault(error.os_error) if isinstance(error.os_error, ssl.SSLError) else reason_of(error.os_error)
        case aiohttp.ServerDisconnectedError():
            return "connection closed before an answer"
        case aiohttp.ClientPayloadError():
            return "the body was cut short"
        case aiohttp.ClientResponseError():
            return f"the answer is no HTTP: {_first_line(error.message)}"
        case OSError():
            return reason_of(error)
        case _:
            return _first_line(str(error)) or type(error).__name__


def certificate_fault(error: Exception) -> str:
    """What is wrong with a certificate."""
    if not isinstance(error, ssl.SSLCertVerificationError):
        return "certificate for another name"
    return _CERTIFICATE.get(error.verify_code, f"certificate refused: {error.verify_message}")


def tls_fault(error: ssl.SSLError) -> str:
    """Why there is no TLS."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return certificate_fault(error)
    return f"TLS failed: {(error.reason or str(error)).replace('_', ' ').lower()}"


def _first_line(text: str) -> str:
    return ascii(text.strip().split("\n")[0][:80])[1:-1]
