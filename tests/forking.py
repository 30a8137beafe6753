"""Commands by fork(2) of a process that has imported them: each is a process of its own, and at work at once.

Each line on stdin is an order in JSON (`tests/command_line.py`): the words of a command, its environment and directory,
and the files of its three streams. Into `status` goes its pid, and at its end its exit status.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from importlib import import_module
from pkgutil import walk_packages

import xenoovs.agent
import xenoovs.controller
import xenoovs.fleet
import xenoovs.model
import xenoovs.store
from xenoovs.__main__ import main as run_command

_ROOMS = (xenoovs.agent, xenoovs.controller, xenoovs.fleet, xenoovs.model, xenoovs.store)
_LATE = (
    *("xenoovs.cli.agent", "xenoovs.cli.agent_fleet", "xenoovs.cli.run_agents"),
    *("xenoovs.cli.apply", "xenoovs.cli.control", "xenoovs.cli.status", "xenoovs.cli.via"),
    *("xenoovs.engine.engine", "xenoovs.lab.commands.lab", "xenoovs.cli.main"),
    *(module.name for room in _ROOMS for module in walk_packages(room.__path__, f"{room.__name__}.")),
)
"""Imported by the command when it runs, else."""


def supervise(order: dict[str, object]) -> None:
    """Fork the command, and report its pid and exit status; only its own process returns."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    status = os.open(str(order["status"]), os.O_WRONLY)
    streams = [os.open(str(order[name]), os.O_WRONLY if name != "stdin" else os.O_RDONLY) for name in _STREAMS]
    if pid := os.fork():
        for stream in streams:
            os.close(stream)
        os.write(status, b"%d\n" % pid)
        os.write(status, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        os._exit(0)
    os.close(status)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)


_STREAMS = ("stdin", "stdout", "stderr")


def main() -> None:
    """Import everything, and follow orders until the end of stdin."""
    # The supervisors of commands are reaped by the kernel (sigaction(2), SA_NOCLDWAIT).
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for name in _LATE:
        import_module(name)
    for line in sys.stdin:
        if os.fork():
            continue
        order = json.loads(line)
        supervise(order)
        os.chdir(order["directory"])
        os.environ.clear()
        os.environ.update(order["environment"])
        sys.argv = ["xenoovs", *order["words"]]
        run_command()


if __name__ == "__main__":
    main()
