"""Commands that run for long, started in milliseconds: see `forking.py`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path


class Nest:
    """Brings forth processes of `xenoovs ARGUMENT...`. `log`: the file of their stderr; None: nobody reads it."""

    def __init__(self, *arguments: object, log: Path | None = None) -> None:
        argv = [sys.executable, "-m", "tests.ovs.forking", *map(str, arguments)]
        pipe = subprocess.PIPE
        with Path(log or os.devnull).open("ab") as stderr:
            self._process = subprocess.Popen(
                argv, stdin=pipe, stdout=pipe, stderr=stderr, text=True, start_new_session=True
            )

    def start(self) -> int:
        """The pid of one more."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())

    def close(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()
