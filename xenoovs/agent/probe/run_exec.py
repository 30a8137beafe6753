"""A program ends with status 0. It gets a list of arguments, never a shell, and nothing to read; then all is killed."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress

from xenoovs.agent.probe.namespace import namespace_identity, namespace_path
from xenoovs.agent.probe.result import quoted
from xenoovs.agent.probe.target import ExecTarget
from xenoovs.switch.process import start

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
