"""Ends what a recording has started, and removes its directory, when the recording ends: however it ends.

Machines run in the background (QEMU's -daemonize), so a recording that is killed would leave them. `python -m
tests.nic.ending DIRECTORY` waits for the end of its input, which the kernel closes with the recording.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from xenoovs.lab.host import kill_and_wait, marked_processes

_MARK = "XENOOVS_RECORDING"
"""Its value in the environment of each process that the recording starts is the recording's directory."""
_REPOSITORY = Path(__file__).parents[2]


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """Yield a new directory. After the block, or this process, it is gone, with all processes started meanwhile."""
    directory = Path(tempfile.mkdtemp(prefix="xenoovs-nic-"))
    argv = [sys.executable, "-m", "tests.nic.ending", str(directory)]
    # A session of its own: Ctrl-C is for the recording.
    with (
        subprocess.Popen(argv, cwd=_REPOSITORY, stdin=subprocess.PIPE, start_new_session=True),
        patch.dict(os.environ, {_MARK: str(directory)}),
    ):
        yield directory


def main() -> None:
    directory = Path(sys.argv[1])
    sys.stdin.read()
    while processes := marked_processes(_MARK, str(directory)):
        kill_and_wait(processes)
    shutil.rmtree(directory)


if __name__ == "__main__":
    main()
