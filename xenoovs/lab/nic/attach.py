"""A command in the guest with the terminal or the streams of this process."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from xenoovs.lab.nic.call import Call
from xenoovs.lab.nic.frames import Kind, Request, render_size
from xenoovs.lab.nic.machine import Machine

_PIECE_BYTES = 32768
# Between two looks at the keyboard.
_STEP_S = 0.02
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
        for kind, payload in call.read(timeout_s=_STEP_S):
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
        piece = os.read(0, _PIECE_BYTES)
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
