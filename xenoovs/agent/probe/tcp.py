"""TCP and HTTP probes, and requests to the agents of servers."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import struct
from functools import lru_cache
from pathlib import Path

import aiohttp
from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector
from yarl import URL

from xenoovs.agent.agent_check import MAX_REPLY_BYTES
from xenoovs.agent.probe.check import Check, Expectation, failure_reason, quoted
from xenoovs.agent.probe.sockets import host_of, open_socket
from xenoovs.model.balancer import ProbeKind

_RESET = struct.pack("ii", 1, 0)
"""struct linger of socket(7): on, with 0 s, so that close(2) sends a reset."""


async def probe_tcp(check: Check) -> str | None:
    """Return None if the backend accepts a connection, which is reset, so that no TIME_WAIT is left. Raises OSError."""
    with _open(check) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        await asyncio.get_running_loop().sock_connect(sock, (host_of(check.address), check.health.port))
    return None


def _open(check: Check) -> socket.socket:
    return open_socket(check.address, socket.SOCK_STREAM, check.health.interface, check.health.netns)


# HTTP (RFC 9110). Each probe opens a new connection: a connection kept alive would hide a dead listener.


_MAX_BODY_BYTES = 1 << 20
_NO_LIMIT = ClientTimeout(total=None, sock_connect=None, sock_read=None)

# x509_vfy.h of OpenSSL: the faults that an operator can fix. For all others, the text of OpenSSL is used.
_CERTIFICATE_FAULTS = {
    9: "certificate not valid yet",
    10: "certificate expired",
    18: "certificate signed by itself",
    19: "certificate from an authority that is not trusted",
    20: "certificate from an authority that is not trusted",
    23: "certificate revoked",
    62: "certificate for another name",
    64: "certificate for another address",
}


@lru_cache(maxsize=1024)
def _tls_context(*, insecure: bool, ca_file: str | None, modified_ns: int) -> ssl.SSLContext:
    """Return a TLS context of a client. Reading the authorities takes milliseconds, so the last ones are reused until
    the file changes (`modified_ns`). Raises OSError for a file without a CA."""
    del modified_ns
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except ssl.SSLError:
        raise OSError(f"{ca_file} holds no certificate in PEM form") from None
    # Python 3.13 adds VERIFY_X509_STRICT to the defaults, which refuses certificates of a private authority made by
    # openssl(1): they have no authority key identifier.
    context.verify_flags = ssl.VERIFY_X509_TRUSTED_FIRST | ssl.VERIFY_X509_PARTIAL_CHAIN
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


async def probe_http(check: Check, expectation: Expectation) -> str | None:
    """Return why the backend failed; None if it answered as configured. Raises OSError, ResourceShortage."""
    context, ca_file = None, check.health.ca_file
    if check.health.probe is ProbeKind.HTTPS:
        modified_ns = Path(ca_file).stat().st_mtime_ns if ca_file else 0
        context = _tls_context(insecure=check.health.insecure, ca_file=ca_file, modified_ns=modified_ns)
    connector = TCPConnector(
        force_close=True, limit=0, happy_eyeballs_delay=None, socket_factory=lambda _: _open(check)
    )
    async with ClientSession(
        connector=connector, timeout=_NO_LIMIT, cookie_jar=DummyCookieJar(), auto_decompress=False
    ) as session:
        try:
            return await _get(session, check, expectation, context)
        except aiohttp.ClientError as error:
            return _failure(error)
        except UnicodeError as error:
            return f"the request cannot be made: {error}"


async def _get(
    session: ClientSession, check: Check, expectation: Expectation, context: ssl.SSLContext | None
) -> str | None:
    # Not resolved against a base URL (RFC 3986, 5.2), by which a path could name another server.
    health = check.health
    path, _, query = health.path.partition("#")[0].partition("?")
    server = URL.build(scheme="http" if context is None else "https", host=host_of(check.address), port=health.port)
    url = URL.build(scheme=server.scheme, authority=server.raw_authority, path=path, query_string=query, encoded=True)
    name = health.server_name or health.host
    headers = {"Host": health.host} if health.host else {}
    async with session.get(
        url, headers=headers, allow_redirects=False, ssl=context or True, server_hostname=name if context else None
    ) as response:
        first, last = health.status
        if not first <= response.status <= last:
            return f"status {response.status}, wanted {first}" + (f"-{last}" if last != first else "")
        expectation.await_part("no complete body")
        return None if not health.body else await _body_failure(response.content, health.body.encode())


async def _body_failure(content: aiohttp.StreamReader, wanted: bytes) -> str | None:
    body = bytearray()
    async for part in content.iter_any():
        body += part
        if wanted in body:
            return None
        if len(body) > _MAX_BODY_BYTES:
            return f"{quoted(wanted)} is not in the first {_MAX_BODY_BYTES} bytes of the body"
    return f"the body has no {quoted(wanted)} in it: {quoted(bytes(body))}"


def _failure(error: aiohttp.ClientError) -> str:
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return _tls_fault(error.certificate_error)
        case aiohttp.ClientConnectorError():
            is_tls = isinstance(error.os_error, ssl.SSLError)
            return _tls_fault(error.os_error) if is_tls else failure_reason(error.os_error)
        case aiohttp.ServerDisconnectedError():
            return "connection closed before an answer"
        case aiohttp.ClientPayloadError():
            return "the body was cut short"
        case aiohttp.ClientResponseError():
            return f"the answer is no HTTP: {_first_line(error.message)}"
        case OSError():
            return failure_reason(error)
        case _:
            return _first_line(str(error)) or type(error).__name__


def _tls_fault(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return _CERTIFICATE_FAULTS.get(error.verify_code, f"certificate refused: {error.verify_message}")
    reason = error.reason if isinstance(error, ssl.SSLError) else None
    return f"TLS failed: {(reason or str(error)).replace('_', ' ').lower()}"


def _first_line(text: str) -> str:
    return ascii(text.strip().split("\n")[0][:80])[1:-1]


# Requests to the agents of servers: a connection, an optional text, and one line in reply.


async def ask_agent(check: Check, expectation: Expectation) -> str | None:
    """Return why there is no reply; None if `expectation` has it. It ends with the first CR or LF, or with the
    connection. Raises OSError."""
    loop, data = asyncio.get_running_loop(), b""
    with _open(check) as sock:
        await loop.sock_connect(sock, (host_of(check.address), check.health.port))
        if check.health.send:
            await loop.sock_sendall(sock, check.health.send.encode())
        expectation.await_part("no whole line")
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
    expectation.answer(line.decode("ascii"))
    return None
