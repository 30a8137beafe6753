"""The command line in this process (fast) or in one of its own (for signals, pipes and full disks)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import wait
from os import environ
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S
from xenoovs.cli.main import run

SMALL_CONFIG = """\
version: 1
switch: {bridge: ovsbr1, ingress: [p0], egress: p1}
services:
  - name: dns
    vip: 10.3.10.45
    protocol: udp
    ports: [53]
    backends:
      - {name: fips2, mac: 02:00:5e:10:00:02, weight: 70}
      - {name: fips3, mac: 02:00:5e:10:00:03, weight: 30}
"""

XENOOVS = Path(sys.executable).parent / "xenoovs"


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The exit status and the output of a command."""

    status: int
    out: str
    err: str


Command = Callable[..., CommandResult]
"""Runs a command with these words, and with some that are always the same."""


@dataclass(frozen=True, slots=True)
class CommandLine:
    """Runs commands in this process."""

    capsys: pytest.CaptureFixture[str]

    def __call__(self, *arguments: object) -> CommandResult:
        self.capsys.readouterr()
        status = run([str(argument) for argument in arguments])
        captured = self.capsys.readouterr()
        return CommandResult(status, captured.out, captured.err)


class Forked(subprocess.Popen[str]):
    """A command of `tests/forking.py`, with its output in pipes."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str]) -> None:
        pipe = subprocess.PIPE
        super().__init__(
            words, env=environment, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, bufsize=-1
        )

    def _execute_child(self, args: Sequence[str], *settings: Any) -> None:
        """Order it, in place of fork(2) and exec(2) (`_execute_child` of Lib/subprocess.py)."""
        environment, ends = settings[5], settings[9:15]
        stdin, _, _, stdout, _, stderr = ends
        status, writable = os.pipe()
        self._status = os.fdopen(status, "rb", buffering=0)
        files = {"stdin": stdin, "stdout": stdout, "stderr": stderr, "status": writable}
        order = {name: f"/proc/{os.getpid()}/fd/{number}" for name, number in files.items()}
        document = {**order, "words": args, "environment": dict(environment), "directory": str(Path.cwd())}
        server = _forking()
        assert server.stdin is not None
        print(json.dumps(document), file=server.stdin, flush=True)
        self.pid = int(self._status.readline())
        self._child_created = True
        os.close(writable)
        self._close_pipe_fds(*ends)  # type: ignore[attr-defined]

    def _internal_poll(self, _deadstate: object = None) -> int | None:
        return self._end(0.0)

    def _wait(self, timeout: float | None) -> int:
        if self._end(timeout) is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return self.returncode

    def _end(self, timeout_s: float | None) -> int | None:
        if self.returncode is None and wait([self._status.fileno()], timeout_s):
            self.returncode = int(self._status.readline())
            self._status.close()
        return self.returncode


@cache
def _forking() -> subprocess.Popen[str]:
    """One of each process of pytest; it ends with it."""
    return subprocess.Popen([sys.executable, "-m", "tests.forking"], stdin=subprocess.PIPE, text=True)


def start(*arguments: object, env: Mapping[str, str] | None = None, netns: str | None = None) -> subprocess.Popen[str]:
    """Start the command in a process of its own, with its output in pipes. `netns`: its network namespace."""
    words, environment = [*map(str, arguments)], {**environ, **(env or {})}
    if netns is None and environment.get("PYTHONPATH") == environ.get("PYTHONPATH"):
        return Forked(words, environment)
    enter = [] if netns is None else ["ip", "netns", "exec", netns]
    return subprocess.Popen(
        [*enter, str(XENOOVS), *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


@contextmanager
def running(*arguments: object, env: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """A command that is killed at the end of the `with`, if it still runs then."""
    process = start(*arguments, env=env)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def finish(process: subprocess.Popen[str]) -> CommandResult:
    """Wait for its end."""
    out, err = process.communicate(timeout=PATIENCE_S)
    return CommandResult(process.returncode, out, err)
