"""Commands by fork(2) of a process that has everything imported: for each line on stdin one starts, its pid is told.

It is then at work a moment after it was asked for, and can be killed a hundred times a minute.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module

from xenoovs.cli.main import run

_AGENT = ("xenoovs.agent.daemon", "xenoovs.agent.probe.run", "xenoovs.engine.engine", "xenoovs.cli.agent")
_LATE = {
    "agent": _AGENT,
    "controller": (*_AGENT, "xenoovs.cli.agent", "xenoovs.cli.via", "xenoovs.controller.server"),
}
"""Imported by the command when it runs, else."""


def main() -> None:
    """`python -m tests.ovs.forking COMMAND ARGUMENT...`: as after `xenoovs`."""
    # Children are reaped by the kernel (sigaction(2), SA_NOCLDWAIT).
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for name in _LATE[sys.argv[1]]:
        import_module(name)
    for _ in sys.stdin:
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os._exit(run(sys.argv[1:]))
        print(pid, flush=True)


main()
