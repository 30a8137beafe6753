"""Runs commands on other machines. They end when this process ends, even if it is killed.

The connection is a child process (this machine, ssh) or a port of a lab's virtual machine (nic/call.py). The program at
the other end is runner.py.
"""

from __future__ import annotations

import itertools
import json
import os
import select
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any

from xenoovs.display import printable, span
from xenoovs.errors import CommandFailed, CommandMissing, CommandTimeout, MeasureError, XenoovsError
from xenoovs.switch.process import PACKAGES, Completed, start_piped

_SOURCE = Path(__file__).with_name("runner.py")
_READY_TIMEOUT_S = 30.0
_PIECE_BYTES = 65536
_END_TIMEOUT_S = 10.0
_UNDO_TIMEOUT_S = 600.0
_NOT_STARTED = 127


class RunnerStream:
    """Bytes to and from the runner on a machine. `inlet`, `outlet`: descriptors of its input and output, which may be
    one. The input does not block."""

    def __init__(self, inlet: int, outlet: int) -> None:
        self._inlet, self._outlet = inlet, outlet
        self._unread = b""

    def write(self, data: bytes) -> None:
        """Raises OSError if the runner has exited."""
        left = memoryview(data)
        while left:
            # Read while writing, so that the two ends cannot block each other.
            can_read, can_write = self._ready(None, select.POLLOUT)
            if can_read:
                self._unread += self._receive()
            if can_write:
                with suppress(BlockingIOError):
                    left = left[os.write(self._inlet, left) :]

    def read(self, timeout_s: float) -> bytes:
        """Return the bytes that have arrived; empty after the timeout. Raises OSError if the runner has exited."""
        if not self._unread and self._ready(timeout_s)[0]:
            self._unread = self._receive()
        piece, self._unread = self._unread, b""
        return piece

    def _receive(self) -> bytes:
        if piece := os.read(self._outlet, _PIECE_BYTES):
            return piece
        raise BrokenPipeError

    def _ready(self, timeout_s: float | None, writing: int = 0) -> tuple[bool, bool]:
        """Wait, and return whether the output has bytes, and whether the input takes some (`writing`: POLLOUT)."""
        # Unlike select(2), poll(2) also takes descriptors of 1024 and more.
        poll = select.poll()
        if writing:
            poll.register(self._inlet, writing)
        poll.register(self._outlet, select.POLLIN | (writing if self._inlet == self._outlet else 0))
        found = dict(poll.poll(timeout_s and timeout_s * 1000))
        return bool(found.get(self._outlet, 0) & ~select.POLLOUT), bool(found.get(self._inlet, 0) & ~select.POLLIN)

    def lost(self, name: str) -> XenoovsError:
        """Return the error that says why the runner on machine `name` has exited."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the input of the runner and wait until it has exited."""
        raise NotImplementedError


def _text(data: bytes | bytearray) -> str:
    return data.decode(errors="backslashreplace")


class RemoteCommand:
    """A command that runs on a machine. `output`, `error`: its stdout and stderr that have not been read yet."""

    def __init__(self, place: Place, number: int, argv: tuple[str, ...]) -> None:
        self._place, self._number, self.argv = place, number, argv
        self.exit_code: int | None = None
        self.reason = ""
        self.output, self.error = bytearray(), bytearray()

    @property
    def errors(self) -> list[str]:
        return _text(self.error).splitlines()

    def feed(self, text: str | bytes) -> None:
        data = text.encode() if isinstance(text, str) else text
        self._place.send({"feed": self._number, "text": data.decode("latin-1")})

    def close_input(self) -> None:
        self._place.send({"close": self._number})

    def pump(self, timeout_s: float) -> None:
        """Wait for output or the exit of the command, at most `timeout_s`."""
        if self.exit_code is None:
            self._place.pump(timeout_s)

    def lines(self, timeout_s: float) -> Iterator[str]:
        """Yield lines of stdout until the command exits or the time is over. A later call continues there."""
        deadline = time.monotonic() + timeout_s
        while True:
            while b"\n" in self.output or (self.output and self.exit_code is not None):
                line, _, self.output = self.output.partition(b"\n")
                yield _text(line)
            if self.exit_code is not None or (left_s := deadline - time.monotonic()) <= 0:
                return
            self.pump(left_s)

    def wait(self, timeout_s: float) -> Completed:
        """Wait until the command exits, and return its output since the last `lines`. Raises CommandTimeout."""
        deadline = time.monotonic() + timeout_s
        while self.exit_code is None:
            if (left_s := deadline - time.monotonic()) <= 0:
                raise CommandTimeout(argv=self.argv, timeout_s=timeout_s)
            self.pump(left_s)
        stdout, self.output = _text(self.output), bytearray()
        return Completed(self.argv, self.exit_code, stdout, _text(self.error) + self.reason)

    def signal(self, number: int) -> None:
        if self.exit_code is None:
            self._place.send({"signal": self._number, "number": number})

    def resize(self, rows: int, columns: int) -> None:
        self._place.send({"size": self._number, "terminal": (rows, columns)})

    def end(self) -> Completed:
        """End the command with SIGTERM, after 2 s with SIGKILL. Raises CommandTimeout if it hangs in the kernel."""
        if self.exit_code is None:
            self._place.send({"end": self._number})
        return self.wait(_END_TIMEOUT_S)


class Place:
    """A machine that runs commands. `name`: its name in a bed file, for messages."""

    def __init__(self, name: str, transport: RunnerStream, *, timeout_s: float = _READY_TIMEOUT_S) -> None:
        self.name, self._transport = name, transport
        self._numbers = itertools.count(1)
        self._commands: dict[int, RemoteCommand] = {}
        self._unread = bytearray()
        self.is_root = False
        # A port may still deliver output for an earlier process.
        self._token, self._is_ready = token_hex(), False
        deadline = time.monotonic() + timeout_s
        try:
            self._transport.write(b"\n")
            self.send({"hello": self._token})
            while not self._is_ready:
                if time.monotonic() > deadline:
                    raise MeasureError(f"{name} does not answer within {span(timeout_s)}")
                self.pump(min(1.0, timeout_s))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End every command on the machine, and run the pending commands of `undone_at_end`."""
        self._transport.close()

    def start(
        self, argv: Sequence[str], *, stdin: str | None = None, env: Mapping[str, str] | None = None, **more: object
    ) -> RemoteCommand:
        """Start a command. `stdin`: its first input; None if it has none. `more`: keys for nic/guest/agent.py."""
        number = next(self._numbers)
        command = self._commands[number] = RemoteCommand(self, number, tuple(argv))
        variables = {"LC_ALL": "C", **(env or {})}
        self.send({"start": number, "argv": list(argv), "env": variables, "stdin": stdin is not None, **more})
        if stdin:
            command.feed(stdin)
        return command

    def try_run(
        self, argv: Sequence[str], *, stdin: str = "", timeout_s: float = 30.0, env: Mapping[str, str] | None = None
    ) -> Completed:
        """Run a command to its end, and return any exit status. Raises CommandMissing, CommandTimeout."""
        command = self.start(argv, stdin=stdin, env=env)
        command.close_input()
        try:
            done = command.wait(timeout_s)
        except CommandTimeout:
            command.end()
            raise
        if command.reason and done.exit_code == _NOT_STARTED:
            raise CommandMissing(program=argv[0], package=PACKAGES.get(argv[0], argv[0]))
        return done

    def run(
        self, argv: Sequence[str], *, stdin: str = "", timeout_s: float = 30.0, env: Mapping[str, str] | None = None
    ) -> Completed:
        """Run a command as `try_run` does. Raises CommandFailed, and what `try_run` raises."""
        done = self.try_run(argv, stdin=stdin, timeout_s=timeout_s, env=env)
        if done.exit_code != 0:
            raise CommandFailed(argv=done.argv, exit_code=done.exit_code, stdout=done.stdout, stderr=done.stderr)
        return done

    @contextmanager
    def undone_at_end(self, argv: Sequence[str], *, stdin: str = "") -> Iterator[None]:
        """Run a command at the end of the block, even if this process is killed. Raises what `run` raises."""
        number = next(self._numbers)
        self.send({"at_end": number, "argv": list(argv), "text": stdin.encode().decode("latin-1")})
        try:
            yield
        finally:
            self.run(argv, stdin=stdin, timeout_s=_UNDO_TIMEOUT_S)
            self.send({"forget": number})

    def lock(self, name: str) -> bool:
        """Hold a lock of the machine until all changes there are undone. Return False if another program holds it."""
        number = next(self._numbers)
        command = self._commands[number] = RemoteCommand(self, number, ("lock", name))
        self.send({"lock": number, "name": name})
        return command.wait(_READY_TIMEOUT_S).exit_code == 0

    def send(self, order: Mapping[str, object]) -> None:
        """Send an order to the runner. Raises MeasureError if the runner has exited."""
        try:
            self._transport.write(f"{json.dumps(order)}\n".encode())
        except OSError:
            raise self._transport.lost(self.name) from None

    def pump(self, timeout_s: float) -> None:
        """Wait for output of any command, at most `timeout_s`, and add it to that command. Raises MeasureError."""
        try:
            piece = self._transport.read(timeout_s)
        except OSError:
            raise self._transport.lost(self.name) from None
        self._unread += piece
        if b"\n" in piece:
            *lines, self._unread = self._unread.split(b"\n")
            for line in lines:
                if self._is_ready or self._begins(line):
                    self._accept(json.loads(line))

    def _begins(self, line: bytearray) -> bool:
        with suppress(ValueError, AttributeError, RecursionError):
            return bool(json.loads(line).get("ready") == self._token)
        return False

    def _accept(self, document: Mapping[str, Any]) -> None:
        if "ready" in document:
            self._is_ready, self.is_root = True, document["uid"] == 0
        elif command := self._commands.get(document["id"]):
            if "text" in document:
                (command.error if document["error"] else command.output).extend(document["text"].encode("latin-1"))
            else:
                command.exit_code, command.reason = document["exit"], document.get("reason", "")
                del self._commands[document["id"]]


class _Pipes(RunnerStream):
    """The streams of a child process: python3 on this machine, or ssh."""

    def __init__(self, argv: Sequence[str]) -> None:
        self._program, self._child = argv[0], start_piped(argv)
        if self._child.stdin is None or self._child.stdout is None:
            raise RuntimeError("Popen gave no pipes")
        super().__init__(self._child.stdin.fileno(), self._child.stdout.fileno())
        os.set_blocking(self._inlet, False)

    def lost(self, name: str) -> MeasureError:
        _, errors = self._child.communicate(timeout=_END_TIMEOUT_S)
        lines = [line for line in errors.decode(errors="replace").splitlines() if line.strip()]
        reason = lines[-1] if lines else f"`{self._program}` ended with status {self._child.returncode}"
        return MeasureError(f"{name}: {printable(reason)}")

    def close(self) -> None:
        if self._child.stdin is not None:
            with suppress(OSError):
                self._child.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            # Read its last output, which would block it otherwise.
            self._child.stdin = None
            self._child.communicate(timeout=_END_TIMEOUT_S)
        self._child.kill()
        self._child.wait()


def this_machine() -> Place:
    """Return the machine on which this process runs."""
    return Place("this machine", _Pipes([sys.executable, "-I", "-c", _SOURCE.read_text()]))


_SSH = (
    *("ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"),
    *("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"),
)
"""All commands of a machine share one connection. The loss of a machine is detected within 15 s."""


def machine_by_ssh(name: str, *, target: str, port: int | None, options: Sequence[str] = ()) -> Place:
    """Return a machine to which ssh(1) connects, with the user's keys and settings. `port`: None for that of the
    settings. Raises MeasureError if the machine cannot be reached or has no python3."""
    program = f"python3 -I -c {shlex.quote(_SOURCE.read_text())}"
    # Devices and Open vSwitch need root: use sudo if it needs no password.
    elevated = f"sudo -n true 2>/dev/null && exec sudo -n {program}"
    command = f'[ "$(id -u)" = 0 ] || {{ {elevated}; }}; exec {program}'
    where = [*options, *(["-p", str(port)] if port else []), "--", target]
    try:
        return Place(name, _Pipes([*_SSH, *where, f"exec sh -c {shlex.quote(command)}"]))
    except MeasureError as error:
        raise MeasureError(
            f"{error}; `ssh -o BatchMode=yes {target} python3 -V` must work without a question"
        ) from None
