"""A signal ends a command at any moment."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.patience import PATIENCE_S

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


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_an_interrupt_in_the_end_of_a_program_is_not_lost(name: str) -> None:
    """In 1 of 28 runs `apply` ignored Ctrl-C and went on waiting for the end of a drain."""
    program = PROGRAM.format(name=name, patience=PATIENCE_S)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S / 2)
    assert (done.returncode, done.stderr) == (128 + signal.SIGINT, "interrupted\n")
