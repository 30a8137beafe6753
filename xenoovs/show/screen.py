"""A table on the whole screen, with a row under the cursor, that the user controls by keys."""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar
from unicodedata import east_asian_width

import click

from xenoovs.dataclass import dataclass
from xenoovs.display import printable
from xenoovs.show.column import Column, Row
from xenoovs.show.terminal import STYLES, fit

# Lines of a given width, as text with ANSI styles.


def one_column(text: str) -> str:
    """Return the text as `printable` does, with `?` for each character that is two columns wide."""
    return "".join("?" if east_asian_width(char) in "WF" else char for char in printable(text))


def line(width: int, *parts: tuple[str, str]) -> str:
    """Return a line of styled texts, cut to the width, without blanks at the end."""
    made, left = list[tuple[str, str]](), width
    for text, style in parts:
        made.append((text[:left], style))
        left -= len(text[:left])
    while made and not made[-1][0].strip():
        made.pop()
    texts = [*made[:-1], *((text.rstrip(), style) for text, style in made[-1:])]
    return "".join(click.style(text, **STYLES[style]) if STYLES[style] else text for text, style in texts)


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a frame, in characters. `height`: None for one line per row, without the line of keys."""

    width: int
    height: int | None = None


_MARK = 2
"""Width of the cursor, which is before each row."""
_MAX_NAME = 40
_WIDTH_OF_PIPES = 120


class Layout:
    """The columns that fit on the screen, and their widths. On a narrow screen, columns of text become narrower; a last
    column of text gets the room that is left."""

    def __init__(
        self,
        columns: Iterable[Column],
        rows: Sequence[Row[Any]],
        visible: Sequence[Row[Any]],
        width: int,
        *,
        has_cursor: bool = False,
    ) -> None:
        """`visible`: the rows that set the widths of the columns, except the first one, whose width all rows set."""
        self.width, self._mark = width, _MARK if has_cursor else 0
        self._columns = [
            each for each in columns if each.shown.live and each.shown.live_from <= width and each.shown.is_for(rows)
        ]
        self._shown = shown = [each.shown for each in self._columns]
        self._widths = [
            max(look.live, len(look.header) + 1, *(len(each.text(row)) + 1 for row in (visible if index else rows)))
            for index, (each, look) in enumerate(zip(self._columns, shown, strict=True))
        ]
        self._widths[0] = min(self._widths[0], _MAX_NAME)
        # A gap separates a column of text from a number before it.
        self._gaps = [0] + [2 if left.is_number > look.is_number else 0 for left, look in pairwise(shown)]
        if not shown[-1].is_number:
            self._widths[-1] = shown[-1].live
        for index, look in enumerate(shown):
            left = self._left()
            if left < 0 and not look.is_number:
                self._widths[index] = max(look.live, self._widths[index] + left)
        if not shown[-1].is_number:
            self._widths[-1] = max(0, self._widths[-1] + self._left())

    def _left(self) -> int:
        return self.width - self._mark - sum(self._widths) - sum(self._gaps)

    def titles(self) -> str:
        """Return the line with the headers."""
        cells = (self._cell(index, look.header) for index, look in enumerate(self._shown))
        return line(self.width, (" " * self._mark + "".join(cells), "head"))

    def line(self, row: Row[Any], *, is_chosen: bool = False) -> str:
        """Return the line of a row."""
        cells = [
            (self._cell(index, one_column(each.text(row))), each.shown.style(row))
            for index, each in enumerate(self._columns)
        ]
        name = f"{'▸ ' if is_chosen else ' ' * self._mark}{cells[0][0]}"
        return line(self.width, (name, "cursor" if is_chosen else "plain"), *cells[1:])

    def cut(self, row: Row[Any]) -> str:
        """Return the text of the last column, if it is cut; otherwise nothing."""
        text = one_column(self._columns[-1].text(row))
        return text if len(text) > self._widths[-1] else ""

    def _cell(self, index: int, text: str) -> str:
        width, is_number = self._widths[index], self._shown[index].is_number
        cell = fit(text, width - 1)
        return " " * self._gaps[index] + (cell.rjust(width) if is_number else cell.ljust(width))


def framed(above: Sequence[str], rows: Sequence[str], foot: str, size: Size) -> list[str]:
    """Return as many lines as the screen has, the last one `foot`; without a height all lines and no `foot`."""
    if size.height is None:
        return [*above, *rows]
    lines = [*above, *rows][: size.height - 1]
    return [*lines, *[""] * (size.height - 1 - len(lines)), foot]


def once_size() -> Size:
    return Size(shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH_OF_PIPES)


# The terminal: reads single keys, draws frames over each other, and gets its old state back at the end.


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

_COMPLETE = frozenset(_KEYS) - {b"\x1b"}
_LONGEST_KEY = 8


def row_after(key: str, at: int, last: int, *, page: int) -> int | None:
    """Return the index of the row under the cursor after a key; None if the key does not move it. `last`: the largest
    index. `page`: number of rows that a page key moves by."""
    steps = {"up": -1, "k": -1, "down": 1, "j": 1, "page-up": -page, "page-down": page, "home": -last, "end": last}
    return min(max(at + steps[key], 0), last) if key in steps else None


def is_live() -> bool:
    """Return whether input and output are a terminal that can move its cursor."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


class Terminal:
    """A terminal in raw mode, made by `raw_terminal`."""

    def __init__(self, descriptor: int) -> None:
        # Imported here, as `top --help` needs no screen.
        from rich.live import Live

        self._descriptor, self._before = descriptor, termios.tcgetattr(descriptor)
        self._woken, self.waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._live = Live(screen=True, auto_refresh=False)

    def enter(self) -> None:
        tty.setraw(self._descriptor)
        mode = termios.tcgetattr(self._descriptor)
        # rich ends a line with a line feed alone, to which the terminal adds the return to the first column.
        mode[1] |= termios.OPOST | termios.ONLCR
        termios.tcsetattr(self._descriptor, termios.TCSADRAIN, mode)
        self._live.start()

    def leave(self) -> None:
        """Restore the state that the terminal had before `enter`."""
        self._live.stop()
        termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)

    def suspend(self) -> None:
        """Stop after Ctrl-Z, until the shell continues this process."""
        self.leave()
        # The whole job: sudo(8) and scripts that started this have to stop too.
        os.killpg(os.getpgrp(), signal.SIGTSTP)
        self.enter()

    def wake(self) -> None:
        """Make `key` return now. Any thread may call this."""
        with suppress(OSError):
            os.write(self.waker, b"!")

    @property
    def size(self) -> Size:
        found = shutil.get_terminal_size()
        return Size(found.columns, max(found.lines, 6))

    def show(self, lines: Iterable[str]) -> None:
        """Draw a frame over the last one, without flicker."""
        from rich.text import Text

        text = Text("\n", no_wrap=True, overflow="crop").join(map(Text.from_ansi, lines))
        self._live.update(text, refresh=True)

    def key(self, timeout_s: float) -> str | None:
        """Return the next key; None if the time is over, the window was resized, or `wake` was called."""
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
    """End as after Ctrl-C, so that the terminal is not left in raw mode."""
    raise KeyboardInterrupt


@contextmanager
def raw_terminal() -> Iterator[Terminal]:
    """Read keys without Enter and without echo, on the screen for full-screen programs."""
    terminal = Terminal(sys.stdin.fileno())
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    signal.signal(signal.SIGWINCH, lambda *_: None)
    terminal.enter()
    # Each signal makes `key` return, also one that comes just before select(2).
    before = signal.set_wakeup_fd(terminal.waker, warn_on_full_buffer=False)
    try:
        yield terminal
    finally:
        signal.set_wakeup_fd(before)
        terminal.leave()


# The loop.


_LONGEST_S = 60.0
"""Longest time between two frames."""
_PAUSE_RATIO = 9
"""A pause is at least this many times as long as the request took: one for 16,000 backends takes 0.5 s of CPU."""
S = TypeVar("S")


Ask = Callable[[], Callable[[S], S]]
"""A request. It runs in a thread, so that keys do not wait. It returns a function that adds the answer to the state."""


def run_live(
    interval_s: float,
    state: S,
    *,
    draw: Callable[[S, Size], list[str]],
    refresh: Ask[S],
    press: Callable[[S, str, Size], tuple[S, Ask[S] | None] | None],
) -> None:
    """Draw a state on the whole screen, refresh it, and change it by keys, until the user quits.

    `interval_s`: time between two refreshes; longer if they take long. `press`: returns the state after a key, and a
    request if the key makes one; None if the user quits.
    """
    answers: SimpleQueue[tuple[Callable[[S], S] | Exception, float, bool]] = SimpleQueue()
    next_s, is_pending = time.monotonic() + interval_s, False

    def request(ask: Ask[S], *, is_refresh: bool) -> None:
        def answer() -> None:
            begun_s = time.monotonic()
            try:
                use: Callable[[S], S] | Exception = ask()
            except Exception as error:  # noqa: BLE001 - raised in the view, which would wait forever
                use = error
            pause_s = max(interval_s, (time.monotonic() - begun_s) * _PAUSE_RATIO) if is_refresh else 0.0
            answers.put((use, time.monotonic() + pause_s, is_refresh))
            terminal.wake()

        # A daemon thread, so that the view can end while its server hangs.
        Thread(target=answer, daemon=True).start()

    with raw_terminal() as terminal:
        while True:
            terminal.show(draw(state, terminal.size))
            key = terminal.key(_LONGEST_S if is_pending else next_s - time.monotonic())
            if key == "ctrl-z":
                terminal.suspend()
            elif key is not None:
                if (after := press(state, key, terminal.size)) is None:
                    return
                state, asked = after
                if asked is not None:
                    request(asked, is_refresh=False)
            while not answers.empty():
                use, next_s, is_refresh = answers.get()
                if isinstance(use, Exception):
                    raise use
                state, is_pending = use(state), is_pending and not is_refresh
            if not is_pending and time.monotonic() >= next_s:
                is_pending = True
                request(refresh, is_refresh=True)
