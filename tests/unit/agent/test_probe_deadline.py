"""An event loop that runs late fails no probe that was answered in time."""

from __future__ import annotations

import asyncio
import time
from ipaddress import IPv4Address

import pytest

from tests.patience import PATIENCE_S, eventually
from tests.probe_support import nothing_left, tcp_server, udp_answers
from xenoovs.agent.probe.run import Deadline, Prober
from xenoovs.agent.probe.target import HttpTarget, ProbeResult, TcpTarget, UdpTarget

LOCAL = IPv4Address("127.0.0.1")


def test_an_answer_that_lay_in_the_kernel_counts() -> None:
    async def main() -> None:
        async with nothing_left():
            prober = Prober()
            probes = [asyncio.create_task(prober.probe(UdpTarget(LOCAL, port, b"a"), timeout_s=0.1)) for _ in range(50)]
            await asyncio.sleep(0)
            eventually(lambda: len(asked) == 50, "all requests are received")
            time.sleep(0.3)
            assert [probe.ok for probe in await asyncio.gather(*probes)] == [True] * 50

    def answer(request: bytes) -> list[bytes]:
        asked.append(request)
        return [request]

    asked: list[bytes] = []
    with udp_answers(answer) as port:
        asyncio.run(main())


def test_the_deadline_excludes_time_in_which_the_loop_was_blocked() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        writer.close()

    async def main() -> None:
        async with tcp_server(answer) as port:
            probe = asyncio.create_task(Prober().probe(HttpTarget(LOCAL, port, body=b"ok"), timeout_s=1))
            await asyncio.sleep(0)
            time.sleep(1.5)
            assert (await probe).ok

    asyncio.run(main())


def test_silence_is_still_a_failure() -> None:
    async def main() -> ProbeResult:
        probe = asyncio.create_task(Prober().probe(UdpTarget(LOCAL, port, b"a"), timeout_s=0.1))
        await asyncio.sleep(0)
        time.sleep(0.3)
        return await asyncio.wait_for(probe, PATIENCE_S)

    with udp_answers(lambda _: []) as port:
        assert asyncio.run(main()).reason == "no answer within 100ms"


def test_cancelling_from_outside_is_no_timeout() -> None:
    async def wait() -> None:
        async with Deadline(5.0):
            await asyncio.sleep(10)

    async def main() -> None:
        task = asyncio.create_task(wait())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_a_refusal_is_reported_at_once() -> None:
    result = asyncio.run(Prober().probe(TcpTarget(LOCAL, 1), timeout_s=5.0))
    assert result.reason == "connection refused"
