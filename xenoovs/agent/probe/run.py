"""Runs probes: any target, one hard deadline, one result. A probe that fails is a result and never an exception."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from types import TracebackType
from typing import Self, assert_never

from xenoovs.agent.probe.arp import ArpChannel, probe_arp
from xenoovs.agent.probe.icmp import IcmpChannel, probe_all_nodes, probe_icmp
from xenoovs.agent.probe.sockets import Shared, namespace_identity, namespace_path
from xenoovs.agent.probe.target import (
    ArpTarget,
    DnsTarget,
    ExecTarget,
    HttpTarget,
    IcmpTarget,
    ProbeResult,
    Target,
    TcpTarget,
    UdpTarget,
    Waiting,
    quoted,
    reason_of,
)
from xenoovs.agent.probe.tcp import TlsContexts, probe_http, probe_tcp
from xenoovs.agent.probe.udp import probe_dns, probe_udp
from xenoovs.switch.process import start

# The deadline of a probe, on the clock of the event loop, which forgives the loop its own lateness.
#
# When the loop comes late to a deadline, as under a heavy computation, the answer may have been lying in the kernel
# for long. `asyncio.timeout` would then cancel a probe that was answered in time: here a deadline that was met late is
# moved by as much as it was late, and what is readable is read before any probe is given up.


_ON_TIME_S = 0.005
"""Lateness of a loop that is not overloaded."""
_MOST_MOVES = 3


class Deadline:
    """A context in which the task works for `timeout_s`. Raises TimeoutError behind it."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._moves = 0
        self._loop = asyncio.get_running_loop()
        self.is_over = False

    async def __aenter__(self) -> Self:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a deadline needs a task")
        self._task, self._cancelled_before = task, task.cancelling()
        self._due_s = self._loop.time() + self._timeout_s
        self._handle: asyncio.Handle = self._loop.call_at(self._due_s, self._due)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._handle.cancel()
        if self.is_over and self._task.uncancel() <= self._cancelled_before and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _due(self) -> None:
        late_s = self._loop.time() - self._due_s
        if late_s > _ON_TIME_S and self._moves < _MOST_MOVES:
            self._moves += 1
            self._due_s = self._loop.time() + min(late_s, self._timeout_s)
            self._handle = self._loop.call_at(self._due_s, self._due)
            return
        # In this turn of the loop answers may have been read whose task runs in the next one.
        self._handle = self._loop.call_soon(self._last_turn)

    def _last_turn(self) -> None:
        self._handle = self._loop.call_soon(self._give_up)

    def _give_up(self) -> None:
        self.is_over = True
        self._task.cancel()


# A program ends with status 0. It gets a list of arguments, never a shell, and nothing to read; then all is killed.


_KEPT_BYTES = 4096


async def probe_exec(target: ExecTarget) -> str | None:
    """Why not, or None. Raises OSError when there is no such program or namespace."""
    namespace_identity(target.netns)
    output = _Output()
    try:
        process = await _start(target, output)
        try:
            status = await process.wait()
        finally:
            _kill_group(process.pid)
            if process.returncode is None:
                await process.wait()
        output.drain()
    finally:
        output.close()
    return None if status == 0 else _fault(status, output.first_line())


async def _start(target: ExecTarget, output: _Output) -> asyncio.subprocess.Process:
    # No more of our environment: it may hold what is nobody else's business.
    env = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", **dict(target.environment)}
    enter = [] if target.netns is None else ["nsenter", f"--net={namespace_path(target.netns)}", "--"]
    try:
        return await start([*enter, *target.argv], output=output.writer, env=env)
    finally:
        output.close_writer()


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def _fault(status: int, said: bytes) -> str:
    ended = f"ended with status {status}" if status > 0 else f"killed by {signal.Signals(-status).name}"
    return f"{ended}: {quoted(said, most=100)}" if said else ended


class _Output:
    """A pipe that is emptied all the time, of which the beginning is kept: a program never blocks on what it says."""

    def __init__(self) -> None:
        self._reader, self.writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(self.writer, True)
        self._writer_open = True
        self._kept = bytearray()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._reader, self._readable)

    def first_line(self) -> bytes:
        return bytes(self._kept).strip().split(b"\n")[0]

    def drain(self) -> None:
        """Take what is there without waiting."""
        while self._readable():
            pass

    def close_writer(self) -> None:
        if self._writer_open:
            self._writer_open = False
            os.close(self.writer)

    def close(self) -> None:
        self.close_writer()
        self._loop.remove_reader(self._reader)
        os.close(self._reader)

    def _readable(self) -> bool:
        try:
            data = os.read(self._reader, 65536)
        except BlockingIOError:
            return False
        if not data:
            self._loop.remove_reader(self._reader)
        self._kept += data[: _KEPT_BYTES - len(self._kept)]
        return bool(data)


class Prober:
    """Probes that share sockets and TLS contexts, within one event loop. Nothing to close: the last probe closes all.

    exec_allowed: whether programs may be run; off, a probe by a program fails and says so.
    """

    def __init__(self, *, exec_allowed: bool = False) -> None:
        self._exec_allowed = exec_allowed
        self._icmp: Shared[IcmpChannel] = Shared()
        self._arp: Shared[ArpChannel] = Shared()
        self._tls = TlsContexts()

    async def probe(self, target: Target, *, timeout_s: float) -> ProbeResult:
        """Ask once. timeout_s: for all of it, on the monotonic clock. Raises CancelledError alone, when cancelled."""
        clock = asyncio.get_running_loop().time
        started = clock()
        waiting = Waiting()
        try:
            async with Deadline(timeout_s) as deadline:
                fault = await self._ask(target, waiting)
        except OSError as error:
            overdue = isinstance(error, TimeoutError) and deadline.is_over
            fault = waiting.overdue(timeout_s) if overdue else reason_of(error)
        return ProbeResult(fault is None, clock() - started, fault or "answered")

    async def _ask(self, target: Target, waiting: Waiting) -> str | None:
        match target:
            case IcmpTarget():
                return await probe_icmp(target, self._icmp)
            case ArpTarget(address=None):
                return await probe_all_nodes(target, self._icmp)
            case ArpTarget():
                await probe_arp(target, waiting, self._arp)
                return None
            case TcpTarget():
                return await probe_tcp(target)
            case UdpTarget():
                return await probe_udp(target)
            case DnsTarget():
                return await probe_dns(target, waiting)
            case HttpTarget():
                return await probe_http(target, waiting, self._tls)
            case ExecTarget():
                return await self._run(target, waiting)
            case _:
                assert_never(target)

    async def _run(self, target: ExecTarget, waiting: Waiting) -> str | None:
        if not self._exec_allowed:
            return f"{target.argv[0]} was not run: the agent was started without --allow-exec"
        waiting.missing = f"{target.argv[0]} did not end"
        return await probe_exec(target)


async def probe(target: Target, *, timeout_s: float, exec_allowed: bool = False) -> ProbeResult:
    """One probe on its own; many belong to one Prober, which shares sockets between them."""
    return await Prober(exec_allowed=exec_allowed).probe(target, timeout_s=timeout_s)
