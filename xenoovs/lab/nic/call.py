"""Runs commands in the guest from the host: to their end, or with the terminal of this process."""

from __future__ import annotations

import fcntl
import os
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

from xenoovs.display import span
from xenoovs.errors import CommandTimeout, LabError
from xenoovs.lab.nic.frames import PORTS, FrameKind, FrameReader, GuestCommand, render_command, render_frame
from xenoovs.lab.nic.machine import VirtualMachine
from xenoovs.switch.process import Completed

# A guest without KVM on a busy machine accepts a command within this time. The command itself may take longer.
BEGIN_TIMEOUT_S = 60.0
_STEP_S = 0.2
_PIECE_BYTES = 65536


class Call:
    """A command that runs in a guest, from `begin` to its exit status. Ends with the command or with this process."""

    def __init__(self, machine: VirtualMachine) -> None:
        self._machine = machine
        self._stack = ExitStack()
        self._frames = FrameReader()
        self._unsent = bytearray()
        self._socket = self._free_port()

    def __enter__(self) -> Call:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def begin(self, command: GuestCommand, *, timeout_s: float = BEGIN_TIMEOUT_S) -> None:
        """Send the command. Raises LabError when the guest is dead, or has not started it in time."""
        self.send(FrameKind.CALL, render_command(command))
        begin = render_frame(FrameKind.BEGIN, command.token.encode())
        deadline = time.monotonic() + timeout_s
        while not self._frames.seek(self._receive(_STEP_S), begin):
            if time.monotonic() > deadline:
                raise LabError(
                    f"the virtual machine does not answer within {span(timeout_s)}; {self._machine.last_words()}"
                )

    def send(self, kind: FrameKind, payload: bytes = b"") -> None:
        """Queue one frame for the guest; `read` transmits it. It is lost when the guest has ended."""
        self._unsent += render_frame(kind, payload)
        self._transmit()

    def read(self, *, timeout_s: float = _STEP_S) -> list[tuple[FrameKind, bytes]]:
        """Return what the guest has sent, after waiting at most so long. Raises LabError when it has ended."""
        # Frames may have come together with the one that began.
        return list(self._frames.feed(b"")) or list(self._frames.feed(self._receive(timeout_s)))

    def answers(self, command: GuestCommand, *, timeout_s: float) -> Iterator[tuple[FrameKind, bytes]]:
        """Yield what the guest sends until the end of the command; the last is EXIT with its status.

        Raises LabError when the guest ends meanwhile, CommandTimeout after `timeout_s` of silence.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            if time.monotonic() > deadline:
                raise CommandTimeout(argv=command.argv, timeout_s=timeout_s)
            for kind, payload in self.read():
                yield kind, payload
                if kind is FrameKind.EXIT:
                    return
                deadline = time.monotonic() + timeout_s

    def _receive(self, timeout_s: float) -> bytes:
        # Neither end may wait for the other to read first.
        readable, writable, _ = select.select([self._socket], [self._socket] if self._unsent else [], [], timeout_s)
        if writable:
            self._transmit()
        piece = b""
        if readable:
            with suppress(ConnectionResetError):
                piece = self._socket.recv(_PIECE_BYTES)
        if not piece and (readable or self._machine.pid is None):
            raise LabError(f"the virtual machine has ended; {self._machine.last_words()}")
        return piece

    def _transmit(self) -> None:
        with suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            while self._unsent:
                del self._unsent[: self._socket.send(self._unsent)]

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


def run_inside(
    machine: VirtualMachine,
    argv: Sequence[str],
    *,
    stdin: str = "",
    timeout_s: float = 60.0,
    begin_timeout_s: float = BEGIN_TIMEOUT_S,
) -> Completed:
    """Run a command in the guest to its end. Any exit status is an answer.

    Raises LabError when the guest ends meanwhile, CommandTimeout (the command is killed then) after `timeout_s` of
    silence.
    """
    frames = {kind: bytearray() for kind in FrameKind}
    command = GuestCommand(tuple(argv))
    for kind, payload in conversation(
        machine, command, stdin=stdin, timeout_s=timeout_s, begin_timeout_s=begin_timeout_s
    ):
        frames[kind] += payload
    output, error = (frames[kind].decode(errors="backslashreplace") for kind in (FrameKind.OUTPUT, FrameKind.ERROR))
    return Completed(tuple(argv), int(frames[FrameKind.EXIT]), output, error)


def conversation(
    machine: VirtualMachine,
    command: GuestCommand,
    *,
    stdin: str,
    timeout_s: float,
    begin_timeout_s: float = BEGIN_TIMEOUT_S,
) -> Iterator[tuple[FrameKind, bytes]]:
    """Run a command in the guest and yield its output, piece by piece; the last is EXIT with its status.

    Raises LabError when the guest ends meanwhile, CommandTimeout (the command is killed then) after `timeout_s` of
    silence.
    """
    with Call(machine) as call:
        call.begin(command, timeout_s=begin_timeout_s)
        call.send(FrameKind.INPUT, stdin.encode())
        call.send(FrameKind.END_OF_INPUT)
        yield from call.answers(command, timeout_s=timeout_s)


# A command in the guest with the terminal or the streams of this process.


_TERMINAL_PIECE_BYTES = 32768
_KEYBOARD_INTERVAL_S = 0.02
_STREAMS = {FrameKind.OUTPUT: 1, FrameKind.ERROR: 2}


def attach(machine: VirtualMachine, command: GuestCommand) -> int:
    """Run a command to its end and return its exit status; on a terminal it gets the keys and the size of that.

    Raises LabError when the guest ends meanwhile.
    """
    on_terminal = all(os.isatty(number) for number in range(3))
    sys.stdout.flush()
    with Call(machine) as call:
        call.begin(replace(command, terminal=_size() if on_terminal else None))
        with _raw_terminal(call) if on_terminal else _signals(call):
            return _converse(call)


def _size() -> tuple[int, int]:
    columns, rows = os.get_terminal_size()
    return rows, columns


def _converse(call: Call) -> int:
    has_input = Path("/proc/self/fd/0").exists()
    while True:
        if has_input and select.select([0], [], [], 0.0)[0]:
            piece = b""
            with suppress(OSError):
                piece = os.read(0, _TERMINAL_PIECE_BYTES)
            call.send(FrameKind.INPUT if piece else FrameKind.END_OF_INPUT, piece)
            has_input = bool(piece)
        for kind, payload in call.read(timeout_s=_KEYBOARD_INTERVAL_S):
            if kind is FrameKind.EXIT:
                return int(payload)
            rest = memoryview(payload)
            while rest:
                rest = rest[os.write(_STREAMS[kind], rest) :]


@contextmanager
def _raw_terminal(call: Call) -> Iterator[None]:
    """Send every key to the guest, whose terminal knows what Ctrl-C means there."""
    before = termios.tcgetattr(0)
    old = signal.signal(signal.SIGWINCH, lambda *_: call.send(FrameKind.SIZE, "{} {}".format(*_size()).encode()))
    tty.setraw(0)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
        signal.signal(signal.SIGWINCH, old)


@contextmanager
def _signals(call: Call) -> Iterator[None]:
    """Send Ctrl-C and SIGTERM to the command."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    old = {
        number: signal.signal(number, lambda n, _: call.send(FrameKind.SIGNAL, str(n).encode())) for number in numbers
    }
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
