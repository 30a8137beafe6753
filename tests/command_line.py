"""The command line in this process (fast) or in one of its own (for signals, pipes and full disks)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from os import environ
from pathlib import Path

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


@dataclass(frozen=True, slots=True)
class CommandLine:
    """Runs commands in this process."""

    capsys: pytest.CaptureFixture[str]

    def __call__(self, *arguments: object) -> CommandResult:
        self.capsys.readouterr()
        status = run([str(argument) for argument in arguments])
        captured = self.capsys.readouterr()
        return CommandResult(status, captured.out, captured.err)


def start(*arguments: object, env: Mapping[str, str] | None = None, netns: str | None = None) -> subprocess.Popen[str]:
    """Start the command in a process of its own, with its output in pipes. `netns`: its network namespace."""
    enter = [] if netns is None else ["ip", "netns", "exec", netns]
    return subprocess.Popen(
        [*enter, str(XENOOVS), *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**environ, **(env or {})},
    )


def finish(process: subprocess.Popen[str]) -> CommandResult:
    """Wait for its end."""
    out, err = process.communicate(timeout=PATIENCE_S)
    return CommandResult(process.returncode, out, err)
