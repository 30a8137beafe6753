"""Commands in the guest, as the host starts them: with a request, or with the terminal of this process."""

from __future__ import annotations

import fcntl
import os
import secrets
import select
import signal
import socket
import sys
import termios
import time
import tty
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from xenoovs.errors import CommandFailed, CommandTimeout, LabError
from xenoovs.lab.nic.frames import (
    PORTS,
    TOKEN_BYTES,
    FrameReader,
    Kind,
    Request,
    render_frame,
    render_request,
    render_size,
)
from xenoovs.lab.nic.machine import Machine
from xenoovs.switch.process import Completed

# A guest without KVM on a busy machine; until it has taken the call, that is. Commands take what time they need.
BEGIN_TIMEOUT_S = 30.0
_STEP_S = 0.2
_PIECE_BYTES = 65536


class Call:
    """A command that runs in a guest, from `begin` to its exit status. Ends with the command or with this process."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._stack = ExitStack()
        self._reader = FrameReader()
        self._unsent = bytearray()
        self._socket = self._free_port()

    def __enter__(self) -> Call:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def fileno(self) -> int:
        """To wait for what the guest says."""
        return self._socket.fileno()

    def begin(self, request: Request, *, timeout_s: float = BEGIN_TIMEOUT_S) -> None:
        """Hand over the request. Raises LabError when the guest is dead, or has not taken it in time."""
        start = render_frame(Kind.BEGIN, bytes.fromhex(request.token))
        self.send(Kind.CALL, render_request(request))
        deadline = time.monotonic() + timeout_s
        while not self._reader.seek(self._receive() if self._wait(_STEP_S) else b"", start):
            if self._machine.pid is None:
                raise LabError(f"the virtual machine has ended; {self._machine.last_words()}")
            if time.monotonic() > deadline:
                raise LabError(
                    f"the virtual machine does not answer within {timeout_s:.0f} s; {self._machine.last_words()}"
                )

    def send(self, kind: Kind, payload: bytes = b"") -> None:
        """One frame to the guest, which takes it as `read` goes on; lost when it has ended, as `read` will find."""
        self._unsent += render_frame(kind, payload)
        self._push()

    def read(self, *, timeout_s: float = _STEP_S) -> list[tuple[Kind, bytes]]:
        """What the guest has said, after waiting for it at most so long. Raises LabError when it has ended."""
        # Frames may have come together with the one that began.
        if early := list(self._reader.feed(b"")):
            return early
        if self._wait(timeout_s):
            return list(self._reader.feed(self._receive()))
        if self._machine.pid is None:
            raise LabError(f"the virtual machine has ended; {self._machine.last_words()}")
        return []

    def _wait(self, timeout_s: float) -> bool:
        # Neither end may wait for the other to read first.
        readable, writable, _ = select.select([self._socket], [self._socket] if self._unsent else [], [], timeout_s)
        if writable:
            self._push()
        return bool(readable)

    def _push(self) -> None:
        with suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            while self._unsent:
                del self._unsent[: self._socket.send(self._unsent)]

    def _receive(self) -> bytes:
        with suppress(ConnectionResetError):
            if piece := self._socket.recv(_PIECE_BYTES):
                return piece
        raise LabError(f"the virtual machine has ended; {self._machine.last_words()}")

    def _free_port(self) -> socket.socket:
        for port in range(PORTS):
            lock = self._stack.enter_context(self._machine.socket(port).with_suffix(".lock").open("w"))
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return self._connect(self._machine.socket(port))
        raise LabError(f"{PORTS} commands run in the virtual machine already: wait for one of them to end")

    def _connect(self, path: Path) -> socket.socket:
        connection = self._stack.enter_context(socket.socket(socket.AF_UNIX))
        try:
            connection.connect(str(path))
            connection.settimeout(0.0)
        except (FileNotFoundError, ConnectionRefusedError):
            raise LabError(f"the virtual machine does not run; {self._machine.last_words()}") from None
        return connection


def new_request(argv: Sequence[str], *, directory: str = "/", **facts: object) -> Request:
    """A request with a token of its own; `facts`: further fields of Request."""
    return Request(secrets.token_hex(TOKEN_BYTES), tuple(argv), directory, **facts)  # type: ignore[arg-type]


def run_inside(
    machine: Machine,
    argv: Sequence[str],
    *,
    stdin: str = "",
    timeout_s: float = 60.0,
    directory: str = "/",
) -> Completed:
    """Run a command in the guest to its end. Any exit status is an answer.

    Raises LabError when the guest ends meanwhile, CommandTimeout (the command is killed then).
    """
    said: dict[Kind, bytearray] = {Kind.OUTPUT: bytearray(), Kind.ERROR: bytearray()}
    request = new_request(argv, directory=directory)
    for kind, payload in conversation(machine, request, stdin=stdin, timeout_s=timeout_s):
        if kind is Kind.EXIT:
            texts = (said[part].decode(errors="backslashreplace") for part in (Kind.OUTPUT, Kind.ERROR))
            return Completed(tuple(argv), int(payload), *texts)
        said[kind] += payload
    raise AssertionError("a conversation ends with EXIT")


def conversation(
    machine: Machine, request: Request, *, stdin: str, timeout_s: float, begin_timeout_s: float = BEGIN_TIMEOUT_S
) -> Iterator[tuple[Kind, bytes]]:
    """What a command says, piece by piece; the last is EXIT with its status."""
    deadline = time.monotonic() + timeout_s
    with Call(machine) as call:
        call.begin(request, timeout_s=begin_timeout_s)
        call.send(Kind.INPUT, stdin.encode())
        call.send(Kind.END_OF_INPUT)
        while True:
            if time.monotonic() > deadline:
                raise CommandTimeout(argv=request.argv, timeout_s=timeout_s)
            for kind, payload in call.read():
                yield kind, payload
                if kind is Kind.EXIT:
                    return


def check(done: Completed) -> Completed:
    """Raises CommandFailed unless the command ended with 0."""
    if done.exit_code != 0:
        raise CommandFailed(argv=done.argv, exit_code=done.exit_code, stdout=done.stdout, stderr=done.stderr)
    return done


# A command in the guest with the terminal or the streams of this process.


_TERMINAL_PIECE_BYTES = 32768
# Between two looks at the keyboard.
_TERMINAL_STEP_S = 0.02
_STREAMS = {Kind.OUTPUT: 1, Kind.ERROR: 2}


def attach(machine: Machine, request: Request) -> int:
    """Run to the end and return the exit status; on a terminal the command has it, with its keys and its size.

    Raises LabError when the guest ends meanwhile.
    """
    on_terminal = all(os.isatty(number) for number in range(3))
    size = os.get_terminal_size() if on_terminal else None
    request = replace(request, terminal=(size.lines, size.columns) if size else None)
    sys.stdout.flush()
    with Call(machine) as call:
        call.begin(request)
        with _raw_terminal(call) if on_terminal else _signals(call):
            return _converse(call)


def _converse(call: Call) -> int:
    listening = _is_open(0)
    while True:
        if listening and select.select([0], [], [], 0.0)[0]:
            listening = _send_input(call)
        for kind, payload in call.read(timeout_s=_TERMINAL_STEP_S):
            if kind is Kind.EXIT:
                return int(payload)
            _write(_STREAMS[kind], payload)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _send_input(call: Call) -> bool:
    """False at the end of the input."""
    piece = b""
    with suppress(OSError):
        piece = os.read(0, _TERMINAL_PIECE_BYTES)
    call.send(*((Kind.INPUT, piece) if piece else (Kind.END_OF_INPUT, b"")))
    return bool(piece)


def _write(number: int, payload: bytes) -> None:
    rest = memoryview(payload)
    while rest:
        rest = rest[os.write(number, rest) :]


@contextmanager
def _raw_terminal(call: Call) -> Iterator[None]:
    """Every key goes to the guest, whose terminal knows what Ctrl-C means there."""
    before = termios.tcgetattr(0)
    old = signal.signal(signal.SIGWINCH, lambda *_: _send_size(call))
    tty.setraw(0)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
        signal.signal(signal.SIGWINCH, old)


def _send_size(call: Call) -> None:
    size = os.get_terminal_size()
    call.send(Kind.SIZE, render_size(size.lines, size.columns))


@contextmanager
def _signals(call: Call) -> Iterator[None]:
    """Ctrl-C and SIGTERM are the command's."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    old = {number: signal.signal(number, lambda n, _: call.send(Kind.SIGNAL, str(n).encode())) for number in numbers}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
