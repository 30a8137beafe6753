"""A probe of any kind that is cancelled at any moment leaves nothing open: no socket, pipe, task, thread or process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.probe_support import nothing_left, tcp_server, udp_answers
from tests.processes import command_line
from xenoovs.agent.probe.run import Prober
from xenoovs.agent.probe.target import DnsTarget, ExecTarget, HttpTarget, Target, TcpTarget, Tls, UdpTarget

LOCAL = IPv4Address("127.0.0.1")
KINDS = ("tcp", "udp", "dns", "http", "https", "exec")
TURNS = (0, 1, 2, 3, 5, 8, 20, 200)


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


@asynccontextmanager
async def target_of(kind: str) -> AsyncIterator[Target]:
    """One that never answers."""
    with udp_answers(lambda _: []) as udp:
        async with tcp_server(silent) as tcp:
            targets: dict[str, Target] = {
                "tcp": TcpTarget(LOCAL, tcp),
                "udp": UdpTarget(LOCAL, udp, b"a"),
                "dns": DnsTarget(LOCAL, "www.example", port=udp),
                "http": HttpTarget(LOCAL, tcp),
                "https": HttpTarget(LOCAL, tcp, tls=Tls(verify=False)),
                "exec": ExecTarget(("/bin/sleep", "60")),
            }
            yield targets[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_cancelled(kind: str) -> None:
    async def main() -> None:
        async with target_of(kind) as target:
            for turns in TURNS:
                async with nothing_left():
                    probe = asyncio.create_task(Prober(exec_allowed=True).probe(target, timeout_s=30))
                    for _ in range(turns):
                        await asyncio.sleep(0.0001)
                    probe.cancel()
                    await asyncio.wait([probe], timeout=PATIENCE_S)
                    assert probe.done()

    asyncio.run(main())
    children = Path("/proc/thread-self/children").read_text().split()
    assert [pid for pid in children if b"sleep" in command_line(pid)] == []
