"""Processes of a lab: found by a mark in their environment, ended for good. Reads /proc (proc(5))."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

_STOP_TIMEOUT_S = 5.0
_STEP_S = 0.005

_PROC = Path("/proc")


def environment_of(pid: int) -> Mapping[str, str]:
    """The environment with which a process was started; empty when it has ended or is not ours to read."""
    with suppress(OSError):
        pairs = (_PROC / str(pid) / "environ").read_bytes().decode(errors="surrogateescape").split("\0")
        return dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    return {}


def marked_processes(name: str, value: str) -> tuple[int, ...]:
    """Every other process whose environment has `name=value`, in order of process id."""
    pids = sorted(int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit())
    return tuple(pid for pid in pids if pid != os.getpid() and environment_of(pid).get(name) == value)


def is_alive(pid: int) -> bool:
    """Whether a process is at work. A zombie is not: its parent merely has not read its status yet."""
    with suppress(OSError):
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def stop_and_wait(pids: Iterable[int]) -> bool:
    """SIGTERM; False when some live on after a few seconds."""
    return _signal_and_wait(pids, signal.SIGTERM)


def kill_and_wait(pids: Iterable[int]) -> bool:
    """SIGKILL; False when some hang in the kernel."""
    return _signal_and_wait(pids, signal.SIGKILL)


def _signal_and_wait(pids: Iterable[int], number: signal.Signals) -> bool:
    left = list(pids)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
    deadline = time.monotonic() + _STOP_TIMEOUT_S
    while (left := [pid for pid in left if is_alive(pid)]) and time.monotonic() < deadline:
        time.sleep(_STEP_S)
    return not left
