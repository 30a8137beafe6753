"""Helpers for tests of probes: a loop that must be left as it was, and servers with faults that a test selects."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE_S, eventually
from xenoovs.agent.probe.check import Check, ProbeResult
from xenoovs.agent.probe.run import Prober
from xenoovs.switch.process import killed_with_this_process, run

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def ask(check: Check, *, timeout_s: float = PATIENCE_S, **allowed: Any) -> ProbeResult:
    """One probe in a loop of its own, which leaves nothing behind. `allowed`: of the prober."""

    async def once() -> ProbeResult:
        async with nothing_left():
            return await Prober(**allowed).probe(check, timeout_s=timeout_s)

    return asyncio.run(once())


@asynccontextmanager
async def nothing_left() -> AsyncIterator[None]:
    """What is opened inside is gone soon after: descriptors, tasks, threads (closing a transport takes some turns)."""
    start_guard()
    before = _held()
    yield
    end_s = time.monotonic() + PATIENCE_S
    while _held() - before and time.monotonic() < end_s:
        await asyncio.sleep(0.01)
    assert _held() - before == set()


def start_guard() -> None:
    """One guard serves all programs of a process, and stays."""
    ends = os.pipe()
    with killed_with_this_process(ends[1]):
        for end in ends:
            os.close(end)


def _held() -> set[object]:
    files = {(entry.name, str(entry.readlink())) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()}
    open_now = {file for file in files if file[1].startswith(("socket:", "pipe:"))}
    return {*open_now, *asyncio.all_tasks(), *threading.enumerate()}


@asynccontextmanager
async def tcp_server(talk: Talk, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A server on a port of its own."""
    server = await asyncio.start_server(talk, host, 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@contextmanager
def udp_answers(answers: Callable[[bytes], list[bytes]], *, host: str = "127.0.0.1") -> Iterator[int]:
    """A thread that answers each datagram with some; port of its own."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.bind((host, 0))

        def serve() -> None:
            while True:
                request, sender = sock.recvfrom(65535)
                if request == b"stop":
                    return
                for answer in answers(request):
                    sock.sendto(answer, sender)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield sock.getsockname()[1]
        finally:
            sock.sendto(b"stop", sock.getsockname())
            thread.join()


NEAR_MAC, FAR_MAC = "02:00:5e:20:00:01", "02:00:5e:20:00:02"


@contextmanager
def two_namespaces(name: str) -> Iterator[tuple[str, str]]:
    """Namespaces `near` (n0, 192.0.2.1, 2001:db8::1) and `far` (f0, 192.0.2.2, 2001:db8::2), joined by a veth."""
    near, far = f"pr{os.getpid()}-{name}-n", f"pr{os.getpid()}-{name}-f"
    try:
        for namespace in (near, far):
            run(["ip", "netns", "add", namespace])
        peer = ["peer", "name", "f0", "netns", far, "address", FAR_MAC]
        run(["ip", "link", "add", "n0", "netns", near, "address", NEAR_MAC, "type", "veth", *peer])
        for namespace, device, host in ((near, "n0", 1), (far, "f0", 2)):
            inside_ip(namespace, "link", "set", "lo", "up")
            inside_ip(namespace, "addr", "add", f"192.0.2.{host}/24", "dev", device)
            inside_ip(namespace, "addr", "add", f"2001:db8::{host}/64", "dev", device, "nodad")
            run(["ip", "netns", "exec", namespace, "tee", f"/proc/sys/net/ipv6/conf/{device}/accept_dad"], stdin="0")
            inside_ip(namespace, "link", "set", device, "up")
        for namespace in (near, far):
            _wait_until_up(namespace)
        yield near, far
    finally:
        for namespace in (near, far):
            run(["ip", "netns", "del", namespace])


def _wait_until_up(namespace: str) -> None:
    """The kernel drops what is sent until it has noticed the carrier of both ends (operational state, RFC 2863)."""
    seek = ["ip", "-n", namespace, "-o", "link", "show", "up", "type", "veth"]
    eventually(lambda: "state UP" in run(seek).stdout, f"the veth of {namespace} comes up")


def inside_ip(namespace: str, *argv: str) -> None:
    """ip(8) in a namespace."""
    run(["ip", "-n", namespace, *argv])
