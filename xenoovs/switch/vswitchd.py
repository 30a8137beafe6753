"""The process ovs-vswitchd: which one it is, where it writes its log, and the log itself."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from xenoovs.switch.endpoint import Endpoint

_PROC = Path("/proc")
_LOG_NAME = "ovs-vswitchd.log"
"""Where `--log-file` names none (ovs-vswitchd(8), "Logging Options")."""
_OPTION = "--log-file="
_TAIL_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Process:
    """One run of ovs-vswitchd. `started`: clock ticks since boot (proc(5), /proc/PID/stat, field 22)."""

    pid: int
    started: int

    @property
    def namespace(self) -> str | None:
        """The network namespace, as the kernel names it (namespaces(7)); None: not allowed to look."""
        with suppress(OSError):
            return str((_PROC / str(self.pid) / "ns" / "net").readlink())
        return None


@dataclass(frozen=True, slots=True)
class LogPosition:
    """A place in the log. `inode` tells whether the file is still the same, as logrotate(8) may change it."""

    inode: int
    offset: int


def find_process(endpoint: Endpoint) -> Process | None:
    """The ovs-vswitchd of the pid file in the run directory; None: it does not run, or not among our processes."""
    with suppress(OSError, ValueError, IndexError):
        pid = int((endpoint.local_rundir / "ovs-vswitchd.pid").read_text())
        # The name of the program may hold blanks and parentheses; the fields behind it are numbers.
        name, _, fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")
        if name.endswith("(ovs-vswitchd"):
            return Process(pid, int(fields.split()[19]))
    return None


def same_namespace(process: Process) -> bool:
    """Whether ovs-vswitchd has the network devices that we see. False where that cannot be told."""
    with suppress(OSError):
        return process.namespace == str((_PROC / "self" / "ns" / "net").readlink())
    return False


def log_position(process: Process) -> LogPosition | None:
    """The end of the log at this moment; None: it writes none that we may read."""
    path = _log(process)
    if path is None:
        return None
    with suppress(OSError):
        state = path.stat()
        return LogPosition(state.st_ino, state.st_size)
    return None


def read_log(process: Process, *, since: LogPosition | None = None) -> str:
    """The log from `since` on, or its last 16 MiB. Empty where there is none, or none that we may read."""
    path = _log(process)
    if path is None:
        return ""
    with suppress(OSError), path.open("rb") as file:
        state = os.fstat(file.fileno())
        is_same = since is not None and since.inode == state.st_ino and since.offset <= state.st_size
        start = since.offset if since is not None and is_same else 0
        file.seek(max(start, state.st_size - _TAIL_BYTES))
        return file.read().decode("utf-8", "replace")
    return ""


def _log(process: Process) -> Path | None:
    """The log as the process itself has it open: right also in a container, and after a rename."""
    home = _PROC / str(process.pid)
    with suppress(OSError):
        words = (home / "cmdline").read_bytes().split(b"\0")
        told = next((Path(os.fsdecode(w)[len(_OPTION) :]) for w in words if w.startswith(_OPTION.encode())), None)
        name = told.name if told is not None else _LOG_NAME
        for descriptor in sorted((home / "fd").iterdir(), key=lambda path: int(path.name)):
            target = _target(descriptor)
            # Until `vlog/reopen` a log that was rotated or removed stays open: as NAME.1, or as `NAME (deleted)`.
            if target is not None and target.name.startswith(name):
                return descriptor
    return None


def _target(descriptor: Path) -> Path | None:
    with suppress(OSError):
        return descriptor.readlink()
    return None
