"""The only module that starts other programs: argument lists, never a shell. Only `start` sets no time limit."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from os import environ
from pathlib import Path
from threading import Lock

from xenoovs.dataclass import dataclass
from xenoovs.errors import CommandFailed, CommandMissing, CommandTimeout, SystemFailure
from xenoovs.switch.tape import ABSENT, MISSING, TIMEOUT, Answer, answered

DEFAULT_TIMEOUT_S = 30.0
PYTHON_MODULE = (sys.executable, "-P" if sys.version_info >= (3, 11) else "-I", "-m")
"""Runs a module that no file in the current directory replaces (python(1); -I ignores PYTHONPATH too)."""

PACKAGES: Mapping[str, str] = {
    **dict.fromkeys(("ovs-ofctl", "ovs-appctl", "ovs-vsctl", "ovs-vswitchd", "ovsdb-server"), "openvswitch-switch"),
    **dict.fromkeys(("ovsdb-tool", "ovsdb-client"), "openvswitch-common"),
    **dict.fromkeys(("ip", "tc"), "iproute2"),
    **dict.fromkeys(("apt-get", "apt-cache"), "apt"),
    **dict.fromkeys(("modprobe", "depmod"), "kmod"),
    "qemu-system-x86_64": "qemu-system-x86",
    "busybox": "busybox-static",
    "tee": "coreutils",
    "vtysh": "frr",
    "ssh": "openssh-client",
}
"""The Debian package of a program, if it has another name."""


def missing_programs(programs: Iterable[str]) -> dict[str, str]:
    """Return the programs that are not installed, and their packages."""
    import shutil

    return {program: PACKAGES.get(program, program) for program in programs if shutil.which(program) is None}


@dataclass(frozen=True, slots=True)
class Completed:
    """The status and the output of a program."""

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
    umask: int = -1,
) -> Completed:
    """Run a program to its end. `env`: added to the environment of this process. `umask`: of the program; -1 for that
    of this process. Raises CommandMissing, CommandTimeout (the program was killed), CommandFailed (status other than
    0)."""
    done = try_run(argv, stdin=stdin, timeout_s=timeout_s, env=env, umask=umask)
    if done.exit_code != 0:
        raise CommandFailed(argv=done.argv, exit_code=done.exit_code, stdout=done.stdout, stderr=done.stderr)
    return done


def run_vsctl(db: str, *words: str, timeout_s: int = 30) -> Completed:
    """Run ovs-vsctl(8) on a database. Raises what `run` raises."""
    return run(["ovs-vsctl", f"--db={db}", f"--timeout={timeout_s}", *words], timeout_s=timeout_s + 5)


def try_run(
    argv: Sequence[str],
    *,
    stdin: str | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    env: Mapping[str, str] | None = None,
    umask: int = -1,
) -> Completed:
    """Run a program as `run` does, but accept any exit status."""

    def ask() -> Answer:
        try:
            done = subprocess.run(
                argv,
                input=stdin if stdin is not None else "",
                capture_output=True,
                encoding="utf-8",
                errors="backslashreplace",
                timeout=timeout_s,
                env={**environ, "LC_ALL": "C", **(env or {})},
                umask=umask,
                check=False,
            )
        except FileNotFoundError:
            return Answer(failure=MISSING)
        except subprocess.TimeoutExpired:
            return Answer(failure=TIMEOUT)
        except OSError as error:
            return Answer(failure=error.strerror or str(error))
        return Answer(done.stdout, done.returncode, done.stderr)

    answer = answered((*argv, "<", stdin) if stdin else argv, ask)
    if answer.failure == MISSING:
        raise _missing(argv)
    if answer.failure == TIMEOUT:
        raise CommandTimeout(argv=argv, timeout_s=timeout_s)
    if answer.failure and answer != ABSENT:
        raise SystemFailure(reason=f"{argv[0]} cannot be started: {answer.failure}")
    return Completed(tuple(argv), answer.exit_code, answer.text, answer.stderr)


def start(argv: Sequence[str], *, output: int, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a program as leader of a new session, with empty stdin. The caller ends and reaps it.

    Within `killed_with_this_process(output)` it ends with this process. `output`: descriptor for stdout and stderr.
    Raises OSError if it cannot be started.
    """
    return subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, env=env
    )


# Programs that must not outlive this process.


_ORPHANS = Path(__file__).with_name("orphans.py")


class _Guard:
    """The process that kills our programs when this process is killed (`orphans.py`). The first program starts it."""

    def __init__(self) -> None:
        self._lock, self._pipes = Lock(), set[int]()
        self._process: subprocess.Popen[bytes] | None = None

    def add(self, pipe: int) -> None:
        """Register the programs that hold the pipe with this inode. Raises OSError."""
        with self._lock:
            self._pipes.add(pipe)
            self._say(f"+{pipe}\n")

    def remove(self, pipe: int) -> None:
        with self._lock:
            self._pipes.discard(pipe)
            with suppress(OSError):
                self._say(f"-{pipe}\n")

    def _say(self, line: str) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(BrokenPipeError):
                os.write(self._process.stdin.fileno(), line.encode())
                return
            # It was killed.
            self._process.stdin.close()
            self._process.wait()
            self._process = None
        argv = [sys.executable, "-I", "-S", str(_ORPHANS), str(os.getsid(0))]
        null = subprocess.DEVNULL
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=null, stderr=null, start_new_session=True, env={}, bufsize=0
        )
        if self._process.stdin is not None:
            os.write(self._process.stdin.fileno(), "".join(f"+{pipe}\n" for pipe in self._pipes).encode())


_guard = cache(_Guard)


@contextmanager
def killed_with_this_process(output: int) -> Iterator[None]:
    """Programs that start within the context and write to the pipe `output` end with this process. Raises OSError."""
    pipe = os.fstat(output).st_ino
    _guard().add(pipe)
    try:
        yield
    finally:
        _guard().remove(pipe)


def start_piped(argv: Sequence[str], *, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start a program in a new session with pipes for its streams. The caller ends and reaps it. Raises
    CommandMissing."""
    pipe = subprocess.PIPE
    try:
        return subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True, env=env)
    except FileNotFoundError:
        raise _missing(argv) from None


def _missing(argv: Sequence[str]) -> CommandMissing:
    return CommandMissing(program=argv[0], package=PACKAGES.get(argv[0], argv[0]))


@contextmanager
def open_conversation(argv: Sequence[str], *, stdin: str, env: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program in a new session with pipes for stdout and stderr. It is killed at the end of the context. `env`:
    added to the environment of this process. Raises CommandMissing."""
    with start_piped(argv, env={**environ, "LC_ALL": "C", **env}) as child:
        try:
            if child.stdin is not None:
                with suppress(BrokenPipeError), child.stdin as stream:
                    stream.write(stdin.encode())
            yield child
        finally:
            child.kill()
