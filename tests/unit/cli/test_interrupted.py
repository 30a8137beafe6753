"""A signal ends a command at any moment, also while it imports its modules, and `apply` reverts then."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.command_line import CommandLine
from tests.patience import PATIENCE_S
from xenoovs.cli.apply_rollback import rolled_back_on_error
from xenoovs.errors import RolledBack
from xenoovs.switch.watchdog import RollbackWatchdog

# Python drops exceptions of `__del__` (sys.unraisablehook); a signal that comes in a system call is often raised there.
PROGRAM = """
import os, signal, subprocess, sys, time
from unittest.mock import patch
from xenoovs.cli import main
from xenoovs.cli.apply_rollback import Interrupted

def interrupted(number, frame):
    raise Interrupted(signal.Signals(number).name)

class Interrupting(subprocess.Popen):
    def __del__(self):
        os.kill(os.getpid(), signal.{name})
        super().__del__()

def work(**_):
    process = Interrupting(["true"])
    process.wait()
    del process
    time.sleep({patience})

signal.signal(signal.SIGTERM, interrupted)
with patch.object(main.cli, "main", work):
    main.main([])
"""


# The thread that sends it again starts so slowly that it comes in the hook.
SLOW_THREADS = """
import threading, time
starting = threading.Thread.start
def start(thread):
    threading.Thread.start = starting
    starting(thread)
    time.sleep(0.5)
threading.Thread.start = start
"""


@pytest.mark.parametrize("before", ["", SLOW_THREADS], ids=["quick threads", "slow threads"])
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_an_interrupt_in_the_end_of_a_program_is_not_lost(name: str, before: str) -> None:
    """In 1 of 28 runs `apply` ignored Ctrl-C and went on waiting for the end of a drain."""
    program = before + PROGRAM.format(name=name, patience=PATIENCE_S)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S / 2)
    assert (done.returncode, done.stderr) == (128 + signal.SIGINT, "interrupted\n")


def interrupted_while_importing(*arguments: str) -> tuple[int, list[str]]:
    """Send SIGINT when the first module of click has been imported. Return exit status and lines of stderr."""
    argv = [sys.executable, "-X", "importtime", "-m", "xenoovs", *arguments]
    # The command reads its standard input, which never ends.
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=subprocess.DEVNULL, stderr=pipe, text=True) as process:
        assert process.stderr is not None
        next(line for line in process.stderr if line.rpartition("|")[2].strip().startswith("click."))
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read().splitlines()
        process.wait(PATIENCE_S)
    return process.returncode, [line for line in rest if not line.startswith("import time:")]


def test_it_is_reported_without_a_traceback() -> None:
    assert interrupted_while_importing("validate", "-") == (130, ["interrupted"])


@pytest.mark.parametrize("spelling", ["-ojson", "--output=json"])
def test_it_is_reported_in_json(spelling: str) -> None:
    status, (line,) = interrupted_while_importing("validate", "-", spelling)
    assert status == 130
    assert json.loads(line)["error"]["code"] == "interrupted"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_no_library_swallows_an_interrupt(number: signal.Signals) -> None:
    """click.echo catches any Exception when it caches a stream: it swallowed the interrupt, and the change stayed."""
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    guard = RollbackWatchdog(lambda: None)
    with (
        pytest.raises(RolledBack, match=f"interrupted by {number.name}"),
        rolled_back_on_error(guard),
        suppress(Exception),
    ):
        os.kill(os.getpid(), number)
    assert not guard.keep()
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == handlers


def test_bug_a_fleet_controller_that_was_refused_left_its_handlers(xenoovs: CommandLine, tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    assert xenoovs("fleet", "--directory", tmp_path, "serve", "--web", "0.0.0.0:0").status == 1
    assert signal.getsignal(signal.SIGINT) is before
