"""HTTP and TLS: status, body, resets, trickles, garbage, certificates of an authority made here."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from ipaddress import ip_address

import pytest

from tests.patience import PATIENCE_S
from tests.probe_support import Talk, nothing_left, tcp_server
from xenoovs.agent.probe.run import Prober
from xenoovs.agent.probe.target import HttpTarget, ProbeResult

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


def reply_with(data: bytes, *, reset: bool = False, hold_s: float = 0) -> Talk:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(data)
        await asyncio.sleep(hold_s)
        if reset:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()

    return talk


def get(
    talk: Talk,
    *,
    host: str = "127.0.0.1",
    timeout_s: float = PATIENCE_S,
    server_tls: ssl.SSLContext | None = None,
    **more: object,
) -> ProbeResult:
    async def once() -> ProbeResult:
        async with tcp_server(talk, host=host, tls=server_tls) as port:
            target = HttpTarget(ip_address(host), port, **more)  # type: ignore[arg-type]
            return await Prober().probe(target, timeout_s=timeout_s)

    return asyncio.run(once())


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_status_and_body(host: str) -> None:
    assert get(reply_with(OK), host=host, body=b"ell").ok


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", "status 503, wanted 200-399"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad", "the body has no 'hello' in it: 'bad'"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbad", "the body was cut short"),
        (b"", "connection closed before an answer"),
    ],
)
def test_wrong_answers(answer: bytes, reason: str) -> None:
    result = get(reply_with(answer), body=b"hello")
    assert (result.ok, result.reason) == (False, reason)


def test_garbage() -> None:
    assert get(reply_with(b"\x00\xffSSH-2.0\r\n\r\n")).reason.startswith("the answer is no HTTP")


def test_reset_in_the_middle() -> None:
    assert get(reply_with(b"", reset=True)).reason == "connection reset"


def test_silent_and_trickling_servers_meet_the_deadline() -> None:
    assert get(reply_with(b"", hold_s=60), timeout_s=0.1).reason == "no answer within 100ms"
    trickle = reply_with(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nb", hold_s=60)
    assert get(trickle, timeout_s=0.1, body=b"hello").reason == "no complete body within 100ms"


def test_refused_leaves_nothing() -> None:
    async def once() -> ProbeResult:
        async with nothing_left():
            return await Prober().probe(HttpTarget(ip_address("127.0.0.1"), 1), timeout_s=PATIENCE_S)

    assert asyncio.run(once()).reason == "connection refused"


def test_host_and_path_are_sent_as_given() -> None:
    seen: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(OK)
        writer.close()

    async def once() -> ProbeResult:
        async with tcp_server(talk) as port:
            target = HttpTarget(ip_address("127.0.0.1"), port, path="/health?a=%2F", host="www.example")
            return await Prober().probe(target, timeout_s=PATIENCE_S)

    assert asyncio.run(once()).ok
    assert seen[0].startswith(b"GET /health?a=%2F HTTP/1.1\r\nHost: www.example\r\n")


@pytest.mark.parametrize("path", ["//192.0.2.9/", "//[::1", "/a//b"])
def test_a_path_never_names_another_server(path: str) -> None:
    seen: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(OK)
        writer.close()

    assert get(talk, path=path).ok
    assert seen[0].startswith(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:".encode())
