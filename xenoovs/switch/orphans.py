"""A separate program that kills the programs of a killed process, and all that they have started.

The kernel does that for one process only: the signal of PR_SET_PDEATHSIG goes to a child, not to its children, and it
is sent when the *thread* ends that made the child (prctl(2)). It must be set between fork and exec, where Python must
not run in a process with threads (documentation of subprocess, `preexec_fn`). So this program waits for the end of its
parent. It reads a pipe whose other end only the parent has; the kernel closes that end however the parent ends.
Programs are known by the pipe of their output, before they are started. So none is missed.

It imports only the standard library, so it starts in milliseconds.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

_PATIENCE_S, _RETRY_S = 5.0, 0.01


def kill_holders(pipes: Collection[int], *, session: int, spared: Collection[int]) -> bool:
    """Kill all processes that hold one of these pipes, and their groups. Return whether there was any. `pipes`: inodes.
    `session`: of the killed process; groups in it also belong to other programs. `spared`: processes not to kill."""
    names, is_any = {f"pipe:[{pipe}]" for pipe in pipes}, False
    for process in list(Path("/proc").iterdir()):
        if not process.name.isdecimal() or (pid := int(process.name)) in spared or not _holds(process, names):
            continue
        is_any = True
        with suppress(ProcessLookupError, PermissionError):
            if os.getsid(pid) == session:
                os.kill(pid, signal.SIGKILL)
            else:
                os.killpg(os.getpgid(pid), signal.SIGKILL)
    return is_any


def _holds(process: Path, names: Collection[str]) -> bool:
    with suppress(OSError):
        for descriptor in list((process / "fd").iterdir()):
            with suppress(OSError):
                if str(descriptor.readlink()) in names:
                    return True
    return False


def _main() -> None:
    pipes, session = set[int](), int(sys.argv[1])
    for line in sys.stdin:
        (pipes.add if line[0] == "+" else pipes.discard)(int(line[1:]))
    give_up_s = time.monotonic() + _PATIENCE_S
    while pipes and kill_holders(pipes, session=session, spared=(os.getpid(),)) and time.monotonic() < give_up_s:
        time.sleep(_RETRY_S)


if __name__ == "__main__":
    _main()
