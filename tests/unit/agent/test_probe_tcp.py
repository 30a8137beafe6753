"""TCP: accepted, refused, dropped, cancelled; both families; nothing left over."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from ipaddress import ip_address

import pytest

from tests.probe_support import ask, nothing_left
from xenoovs.agent.probe.run import Prober
from xenoovs.agent.probe.target import TcpTarget, Via


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_accepted(host: str) -> None:
    with socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as server:
        result = ask(TcpTarget(ip_address(host), server.getsockname()[1]))
    assert (result.ok, result.reason) == (True, "answered")


def test_reset_is_what_the_server_sees() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ask(TcpTarget(ip_address("127.0.0.1"), server.getsockname()[1]))
        connection, _ = server.accept()
        with connection, pytest.raises(ConnectionResetError):
            connection.recv(1)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_refused(host: str) -> None:
    assert ask(TcpTarget(ip_address(host), 1)).reason == "connection refused"


@pytest.fixture
def full_port() -> Iterator[int]:
    """A port whose backlog is full: the kernel drops every SYN."""
    with (
        socket.create_server(("127.0.0.1", 0), backlog=0) as server,
        socket.socket() as first,
        socket.socket() as second,
    ):
        for sock in (first, second):
            sock.setblocking(False)
            sock.connect_ex(server.getsockname())
        yield server.getsockname()[1]


def test_dropped(full_port: int) -> None:
    result = ask(TcpTarget(ip_address("127.0.0.1"), full_port), timeout_s=0.1)
    assert (result.ok, result.reason) == (False, "no answer within 100ms")
    assert result.latency_s >= 0.1


def test_cancelled_cleanly(full_port: int) -> None:
    async def cancel() -> None:
        async with nothing_left():
            task = asyncio.create_task(Prober().probe(TcpTarget(ip_address("127.0.0.1"), full_port), timeout_s=9))
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(cancel())


def test_a_clock_that_jumps_changes_nothing(full_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    jumping = iter(range(0, 10**9, 3600))
    monkeypatch.setattr(time, "time", lambda: float(next(jumping)))
    result = ask(TcpTarget(ip_address("127.0.0.1"), full_port), timeout_s=0.05)
    assert result.reason == "no answer within 50ms"
    assert 0.05 <= result.latency_s < 3600


def test_absent_device_and_namespace_are_named() -> None:
    target = TcpTarget(ip_address("127.0.0.1"), 80, via=Via("nosuch0"))
    assert ask(target).reason == "interface nosuch0 does not exist"
    target = TcpTarget(ip_address("127.0.0.1"), 80, via=Via(netns="nosuch"))
    assert ask(target).reason == "network namespace nosuch does not exist"
