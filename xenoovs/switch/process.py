"""The only place that starts other programs: argument lists, never a shell. `start` alone sets no time limit."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import environ
from typing import IO

from xenoovs.errors import CommandFailed, CommandMissing, CommandTimeout, SystemFailure

DEFAULT_TIMEOUT_S = 30.0

# Which Debian package brings a program, for the message when it is missing.
_PACKAGES = {
    "ovs-ofctl": "openvswitch-switch",
    "ovs-appctl": "openvswitch-switch",
    "ovs-vsctl": "openvswitch-switch",
    "ovs-vswitchd": "openvswitch-switch",
    "ovsdb-server": "openvswitch-switch",
    "ovsdb-tool": "openvswitch-switch",
    "ip": "iproute2",
    "tc": "iproute2",
    "ethtool": "ethtool",
    "qemu-system-x86_64": "qemu-system-x86",
    "busybox": "busybox-static",
    "modprobe": "kmod",
}


@dataclass(frozen=True, slots=True)
class Completed:
    """A program that has ended, with stdout and stderr apart."""

    argv: tuple[str, ...]
    exit_code: int
    stdout: str
    stderr: str


def run(
    argv: Sequence[str],
    *,
    stdin: str | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    env: Mapping[str, str] | None = None,
) -> Completed:
    """Run to the end and return what it said. `env` is added to the environment of this process.

    Raises CommandMissing, CommandTimeout (the program was killed), CommandFailed (status other than 0).
    """
    done = try_run(argv, stdin=stdin, timeout_s=timeout_s, env=env)
    if done.exit_code != 0:
        raise CommandFailed(argv=done.argv, exit_code=done.exit_code, stdout=done.stdout, stderr=done.stderr)
    return done


def try_run(
    argv: Sequence[str],
    *,
    stdin: str | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    env: Mapping[str, str] | None = None,
) -> Completed:
    """As `run`, but any exit status is an answer."""
    try:
        done = subprocess.run(
            argv,
            input=stdin if stdin is not None else "",
            capture_output=True,
            encoding="utf-8",
            errors="backslashreplace",
            timeout=timeout_s,
            env={**environ, "LC_ALL": "C", **(env or {})},
            check=False,
        )
    except FileNotFoundError:
        raise CommandMissing(program=argv[0], package=_PACKAGES.get(argv[0], argv[0])) from None
    except subprocess.TimeoutExpired:
        raise CommandTimeout(argv=argv, timeout_s=timeout_s) from None
    except OSError as error:
        raise SystemFailure(reason=f"{argv[0]} cannot be started: {error.strerror or error}") from None
    return Completed(tuple(argv), done.returncode, done.stdout, done.stderr)


def start(argv: Sequence[str], *, output: int, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a program as leader of a session of its own, with nothing to read. The caller ends and reaps it.

    Args:
        argv: The program and its arguments.
        output: Descriptor for stdout and stderr.
        env: Its whole environment.

    Raises:
        OSError: It cannot be started.
    """
    return subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, env=env
    )


@contextmanager
def open_pipe_to(argv: Sequence[str]) -> Iterator[IO[bytes]]:
    """A program in a session of its own, and the pipe that it reads; it is waited for at the end.

    It outlives this process where that is killed: its pipe ends then. Raises CommandMissing.
    """
    try:
        child = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except FileNotFoundError:
        raise CommandMissing(program=argv[0], package=_PACKAGES.get(argv[0], argv[0])) from None
    with child:
        if child.stdin is None:
            raise RuntimeError("Popen gave no pipe")
        yield child.stdin
