"""Runs commands in a lab's virtual machine through one of its ports, if needed with the terminal of this process."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
import sys
import termios
import tty
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

from xenoovs.display import span
from xenoovs.errors import LabError, MeasureError
from xenoovs.lab.nic.machine import PORTS, VirtualMachine
from xenoovs.lab.place import Place, RemoteCommand, RunnerStream
from xenoovs.switch.process import Completed

# A guest without KVM on a busy machine accepts a command within this time. The command itself may take longer.
BEGIN_TIMEOUT_S = 60.0


class _GuestPort(RunnerStream):
    """The transport of a place through a free port of a guest."""

    def __init__(self, machine: VirtualMachine) -> None:
        self._machine, self._stack = machine, ExitStack()
        try:
            port = self._free_port().fileno()
        except BaseException:
            self._stack.close()
            raise
        super().__init__(port, port)

    def read(self, timeout_s: float) -> bytes:
        piece = super().read(timeout_s)
        if not piece and self._machine.pid is None:
            raise BrokenPipeError
        return piece

    def lost(self, _name: str) -> LabError:
        return LabError(f"the virtual machine has ended; {self._machine.last_words()}")

    def close(self) -> None:
        self._stack.close()

    def _free_port(self) -> socket.socket:
        for port in range(PORTS):
            lock = self._stack.enter_context(self._machine.socket(port).with_suffix(".lock").open("w"))
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
        else:
            raise LabError(f"{PORTS} commands run in the virtual machine already: wait for one of them to end")
        connection = self._stack.enter_context(socket.socket(socket.AF_UNIX))
        try:
            connection.connect(str(self._machine.socket(port)))
            connection.settimeout(0.0)
        except (FileNotFoundError, ConnectionRefusedError):
            raise LabError(f"the virtual machine does not run; {self._machine.last_words()}") from None
        return connection


def guest_place(
    machine: VirtualMachine, *, name: str = "the virtual machine", timeout_s: float = BEGIN_TIMEOUT_S
) -> Place:
    """Return the guest. Raises LabError if it has stopped, or does not answer in time."""
    try:
        return Place(name, _GuestPort(machine), timeout_s=timeout_s)
    except MeasureError:
        raise LabError(
            f"the virtual machine does not answer within {span(timeout_s)}; {machine.last_words()}"
        ) from None


def run_inside(
    machine: VirtualMachine,
    argv: Sequence[str],
    *,
    stdin: str = "",
    timeout_s: float = 60.0,
    begin_timeout_s: float = BEGIN_TIMEOUT_S,
) -> Completed:
    """Run a command in the guest to its end, and return any exit status. Raises LabError, CommandTimeout."""
    with guest_place(machine, timeout_s=begin_timeout_s) as place:
        return place.try_run(argv, stdin=stdin, timeout_s=timeout_s)


# A command in the guest with the terminal or the streams of this process.

_KEYBOARD_PIECE_BYTES = 32768
_KEYBOARD_INTERVAL_S = 0.02


def attach(
    machine: VirtualMachine,
    argv: Sequence[str],
    *,
    directory: str = "/",
    environment: Mapping[str, str] | None = None,
    files: Mapping[str, str] | None = None,
) -> int:
    """Run a command to its end and return its exit status. On a terminal it gets that terminal's keys and size.

    `directory`: its working directory, created if needed. `files`: text by absolute path of files to write before the
    command starts.

    Raises LabError if the guest stops before that.
    """
    on_terminal = all(os.isatty(number) for number in range(3))
    sys.stdout.flush()
    with guest_place(machine) as place, ExitStack() as stack:
        more = {"directory": directory, "files": dict(files or {}), "terminal": _size() if on_terminal else None}
        command = place.start(argv, stdin="", env={"LC_ALL": "", **(environment or {})}, **more)
        orders = Orders()
        handlers: dict[int, Callable[[int, object], None]]
        if on_terminal:
            # Every key goes to the guest, whose terminal handles Ctrl-C.
            stack.callback(termios.tcsetattr, 0, termios.TCSADRAIN, termios.tcgetattr(0))
            tty.setraw(0)
            handlers = {signal.SIGWINCH: lambda *_: orders.append(lambda: command.resize(*_size()))}
        else:
            numbers = (signal.SIGINT, signal.SIGTERM)
            handlers = dict.fromkeys(numbers, lambda number, _: orders.append(partial(command.signal, number)))
        for number, handler in handlers.items():
            stack.callback(signal.signal, number, signal.signal(number, handler))
        return _converse(command, orders)


def _size() -> tuple[int, int]:
    columns, rows = os.get_terminal_size()
    return rows, columns


Orders = deque[Callable[[], None]]
"""Orders that signal handlers have queued. Handlers must not write in the middle of another order."""


def _converse(command: RemoteCommand, orders: Orders) -> int:
    has_input = Path("/proc/self/fd/0").exists()
    while command.exit_code is None:
        while orders:
            orders.popleft()()
        if has_input and select.select([0], [], [], 0.0)[0]:
            piece = b""
            with suppress(OSError):
                piece = os.read(0, _KEYBOARD_PIECE_BYTES)
            has_input = bool(piece)
            if has_input:
                command.feed(piece)
            else:
                command.close_input()
        command.pump(_KEYBOARD_INTERVAL_S)
        for number, buffer in ((1, command.output), (2, command.error)):
            while buffer:
                del buffer[: os.write(number, buffer)]
    if command.reason:
        print(command.reason, file=sys.stderr)
    # As shells do it.
    return 128 - command.exit_code if command.exit_code < 0 else command.exit_code
