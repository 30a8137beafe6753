"""Probes of any kind leave nothing open, and keep their deadline; exec probes and their child processes."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S, eventually
from tests.probe_support import ask, nothing_left, tcp_server, udp_answers
from tests.processes import command_line
from xenoovs.agent.probe.run import Prober
from xenoovs.agent.probe.target import DnsTarget, ExecTarget, HttpTarget, ProbeResult, Target, TcpTarget, Tls, UdpTarget
from xenoovs.display import span

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
                    assert probe.cancelled() or (kind == "tcp" and probe.result().ok)

    asyncio.run(main())
    children = Path("/proc/thread-self/children").read_text().split()
    assert [pid for pid in children if b"sleep" in command_line(pid)] == []


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


def test_off_until_allowed(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    result = ask(ExecTarget(("touch", str(mark))))
    assert (result.ok, mark.exists()) == (False, False)
    assert result.reason == "touch was not run: the agent was started without --allow-exec"
    assert ask(ExecTarget(("touch", str(mark))), exec_allowed=True).ok
    assert mark.exists()


ENDS = {
    "raise SystemExit('no disk')": "ended with status 1: 'no disk'",
    "import os; os.kill(os.getpid(), 9)": "killed by SIGKILL",
    "import os; os.kill(os.getpid(), 40)": "killed by signal 40",
    "print('x' * 1_000_000)": "answered",  # Much output does not block.
    "": "/no/such: no such file or directory",
}


@pytest.mark.parametrize("code", ENDS)
def test_how_a_program_ends(code: str) -> None:
    found = ask(ExecTarget((sys.executable, "-c", code) if code else ("/no/such",)), exec_allowed=True)
    assert (found.ok, found.reason) == (ENDS[code] == "answered", ENDS[code])


def test_deadline_kills_the_children_too(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    target = ExecTarget(("sh", "-c", f"sleep 600 & echo $! > {pid}.new; mv {pid}.new {pid}; wait"))
    # Until the deadline comes after the child, which on a busy machine may take its time.
    for timeout_s in (0.5, 4, 30):
        assert ask(target, timeout_s=timeout_s, exec_allowed=True).reason == f"sh did not end within {span(timeout_s)}"
        if pid.exists():
            break
    child = Path("/proc", pid.read_text().strip())
    eventually(lambda: not child.exists() or state_of(child) == "Z", "the end of the child")


def test_the_group_is_killed_before_its_leader_is_reaped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A number that was reaped may be that of another process group by then."""
    states, kill = [], os.killpg

    def killpg(group: int, number: int) -> None:
        states.append(state_of(Path("/proc", str(group))) if Path("/proc", str(group)).exists() else "reaped")
        kill(group, number)

    monkeypatch.setattr(os, "killpg", killpg)
    assert ask(ExecTarget(("true",)), exec_allowed=True).ok
    assert not ask(ExecTarget(("sleep", "60")), timeout_s=0.2, exec_allowed=True).ok
    assert states[0] == "Z"
    assert "reaped" not in states


def state_of(process: Path) -> str:
    """`Z` for one that has ended (proc(5), /proc/pid/stat); also for one that ends during the read."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


def test_the_program_gets_the_documented_variables_and_no_others_of_our_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SECRET", "s")
    code = "import os; raise SystemExit(' '.join(sorted(k for k in os.environ if k != 'LC_CTYPE')))"
    target = ExecTarget((sys.executable, "-c", code), environment=(("XENOOVS_ADDRESS", "192.0.2.1"),))
    reason = ask(target, exec_allowed=True).reason
    assert reason == "ended with status 1: 'LC_ALL PATH XENOOVS_ADDRESS'"
