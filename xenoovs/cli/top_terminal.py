"""The terminal of `xenoovs top`: keys one by one, frames in place, and everything as it was before at the end."""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

import click

from xenoovs.cli.top_frame import Size
from xenoovs.cli.top_line import Line

# Control sequences of xterm (ctlseqs): the other screen, the cursor, one line, the rest of the screen.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"

_KEYS = {
    b"\x1b[A": "up",
    b"\x1bOA": "up",
    b"\x1b[B": "down",
    b"\x1bOB": "down",
    b"\x1b[5~": "page-up",
    b"\x1b[6~": "page-down",
    b"\x1b[H": "home",
    b"\x1b[1~": "home",
    b"\x1b[F": "end",
    b"\x1b[4~": "end",
    b"\x1b": "escape",
    b"\x03": "ctrl-c",
    b"\x04": "q",
    b"\x1a": "ctrl-z",
}
_LOOKS: dict[str, dict[str, object]] = {
    "plain": {},
    "bold": {"bold": True},
    "quiet": {"dim": True},
    "good": {"fg": "green"},
    "warn": {"fg": "yellow"},
    "bad": {"fg": "red", "bold": True},
    "note": {"fg": "cyan"},
    "head": {"bold": True, "underline": True},
    "cursor": {"reverse": True},
}
_LONGEST_KEY = 8


def painted(line: Line) -> str:
    """A line with its looks as ANSI sequences; without colours where NO_COLOR is set (https://no-color.org)."""
    is_plain = bool(os.environ.get("NO_COLOR"))
    looks = {name: {k: v for k, v in look.items() if k != "fg" or not is_plain} for name, look in _LOOKS.items()}
    return "".join(click.style(text, **looks[look]) if looks[look] else text for text, look in line)  # type: ignore[arg-type]


class Terminal:
    """A terminal in raw mode; made by `raw_terminal`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._before = descriptor, termios.tcgetattr(descriptor)
        self._woken, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def enter(self) -> None:
        tty.setraw(self._descriptor)
        sys.stdout.write(_ENTER)
        sys.stdout.flush()

    def leave(self) -> None:
        """All as it was before."""
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
        termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)

    def suspend(self) -> None:
        """As a shell wants it after Ctrl-Z, until it lets this go on."""
        self.leave()
        # The whole job: sudo(8) and scripts above this wait for a stop of theirs.
        os.killpg(os.getpgrp(), signal.SIGTSTP)
        self.enter()

    def wake(self) -> None:
        """Let `key` return now; from any thread, and from handlers of signals."""
        with suppress(OSError):
            os.write(self._waker, b"!")

    @property
    def size(self) -> Size:
        found = shutil.get_terminal_size()
        return Size(found.columns, max(found.lines, 6))

    def show(self, lines: Iterable[Line]) -> None:
        """Put a frame over the last one, without a blink."""
        text = "\r\n".join(f"{painted(line)}{_CLEAR_LINE}" for line in lines)
        sys.stdout.write(f"{_HOME}{text}{_CLEAR_BELOW}")
        sys.stdout.flush()

    def key(self, timeout_s: float) -> str | None:
        """The next key; None: none came within the time, the window changed its size, or somebody called `wake`."""
        descriptor = self._descriptor
        ready, _, _ = select.select([descriptor, self._woken], [], [], max(timeout_s, 0))
        if self._woken in ready:
            os.read(self._woken, 4096)
        if descriptor not in ready:
            return None
        data = os.read(descriptor, 1)
        while data.startswith(b"\x1b") and data not in _COMPLETE and len(data) < _LONGEST_KEY:
            more, _, _ = select.select([descriptor], [], [], 0.02)
            if not more:
                break
            data += os.read(descriptor, 1)
        if not data:
            return "q"
        return _KEYS.get(data, data.decode(errors="replace"))


def _interrupt(_number: int, _frame: object) -> None:
    """As if by Ctrl-C: a terminal left in raw mode is of no use to anybody."""
    raise KeyboardInterrupt


_COMPLETE = frozenset(_KEYS) - {b"\x1b"}


@contextmanager
def raw_terminal() -> Iterator[Terminal]:
    """Keys without Enter and without echo, on the screen that full-screen programs use."""
    terminal = Terminal(sys.stdin.fileno())
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    signal.signal(signal.SIGWINCH, lambda *_: terminal.wake())
    terminal.enter()
    try:
        yield terminal
    finally:
        terminal.leave()
