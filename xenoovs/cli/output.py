"""What commands print: text that cannot drive the terminal, tables, percentages, JSON; colours on a terminal alone."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import click

from xenoovs.display import printable
from xenoovs.errors import Declined

_PASSED = re.compile(r"(\x1b\[(?:[01247]|3[1-36]|90)m|[\n\t])")
"""Line feeds, tabs, and what `click.style` writes for the styles of commands. No other control character passes."""


def filtered(text: str) -> str:
    """Return the text with control characters as escapes, except line feeds, tabs and the styles of commands."""
    return "".join(part if index % 2 else printable(part) for index, part in enumerate(_PASSED.split(text)))


_errors_in_json = ContextVar("errors_in_json", default=False)


@contextmanager
def json_errors(*, chosen: bool) -> Iterator[None]:
    """Write errors and notes of the block as lines of JSON, as with `-o json`, if `chosen`."""
    token = _errors_in_json.set(chosen)
    try:
        yield
    finally:
        _errors_in_json.reset(token)


def errors_in_json() -> bool:
    """Return whether stderr gets lines of JSON."""
    return _errors_in_json.get()


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print text, of which parts may come from a dump, a log, a switch or a config. All commands print with it.

    Colours are for terminals, and not where NO_COLOR is set (https://no-color.org).
    """
    if err and errors_in_json():
        text, nl = json.dumps({"note": click.unstyle(text).strip()}), True
    click.echo(filtered(text), err=err, nl=nl, color=False if os.environ.get("NO_COLOR") else None)


def echo_over(text: str) -> None:
    """Replace the current line of stderr, where stderr is a terminal; an empty text clears the line."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{filtered(text)}", nl=False, err=True)


def clear_terminal() -> None:
    """Clear the terminal, where stdout is one."""
    if is_terminal():
        click.clear()


def print_error(message: str, *, code: str = "failed", hint: str = "", **facts: object) -> None:
    """Print one error on stderr: in red on a terminal, as a line of JSON with `-o json`.

    Args:
        message: What happened, with which value, and what to do.
        code: The kind of error, for programs.
        hint: What else can be done, a sentence.
        facts: More keys of the JSON.
    """
    if errors_in_json():
        error = {"code": code, "message": message, "hint": hint or None, **facts}
        click.echo(filtered(json.dumps({"error": error})), err=True)
        return
    echo(f"{click.style('error:', fg='red', bold=True)} {message}", err=True)
    if hint:
        echo(hint, err=True)


def confirm(question: str, *, yes: bool, instead: str = "") -> None:
    """Ask the user on stderr; with `yes` ask nothing.

    Args:
        question: Ends with a question mark.
        yes: Whether the command was called with --yes.
        instead: What else can be done where stdin is no terminal.

    Raises:
        click.UsageError: Stdin is no terminal.
        Declined: The user declined.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"Confirmation is needed, and stdin is not a terminal: add --yes{instead}.")
    if not click.confirm(filtered(question), err=True):
        raise Declined


_collected: ContextVar[list[Any] | None] = ContextVar("collected", default=None)


@contextmanager
def collecting_json() -> Iterator[list[Any]]:
    """Collect the documents that `print_json` gets in the block, instead of printing them."""
    documents: list[Any] = []
    token = _collected.set(documents)
    try:
        yield documents
    finally:
        _collected.reset(token)


def print_json(document: object) -> None:
    """Print indented JSON, keys in the order in which they were made."""
    if (documents := _collected.get()) is not None:
        documents.append(document)
    else:
        echo(json.dumps(document, indent=2))


def print_text(text: str, *, indent: str = "", **style: Any) -> None:
    """Print sentences; on a terminal wrapped between words, further lines after `indent`. `style`: as click.style."""
    text, width = filtered(text), terminal_width()
    lines = [text] if width is None else textwrap.wrap(text, width, subsequent_indent=indent, **_WHOLE_WORDS)
    echo(click.style("\n".join(lines), **style) if style else "\n".join(lines))


def is_terminal() -> bool:
    """Whether stdout is a terminal."""
    return sys.stdout.isatty()


def terminal_width() -> int | None:
    """Columns of the terminal; None where stdout is no terminal."""
    return shutil.get_terminal_size().columns if is_terminal() else None


_MIN_TEXT_WIDTH = 24
"""For the text of a last column, however narrow the terminal is."""
_UNLIMITED = 1 << 30
_WHOLE_WORDS: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}


def print_table(
    headers: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[int] = (), spare: Iterable[int] = ()
) -> None:
    """Print a table.

    On a terminal that is too narrow, the columns in `spare` are left out one after the other until the table fits, and
    text in the last column is wrapped. In a pipe the table has every column, and one line a row.

    Args:
        headers: Names of the columns.
        rows: Cells of each row; they may carry colours (click.style).
        right: Indices of the columns that are aligned to the right.
        spare: Indices of the columns that can be left out, the least important one first.
    """
    table = _Table([[*headers], *([filtered(cell) for cell in row] for row in rows)], frozenset(right))
    width = terminal_width()
    hidden: list[str] = []
    shown = list(range(len(headers)))
    for column in spare:
        if width is None or table.width(shown) <= width:
            break
        shown.remove(column)
        hidden.append(headers[column])
    for index, line in enumerate(table.lines(shown, width)):
        echo(click.style(line, bold=True) if index == 0 else line)
    if hidden:
        echo(f"(terminal too narrow for {', '.join(hidden)})")


@dataclass(frozen=True, slots=True)
class _Table:
    """Cells with the headers first; `numbers`: columns that are aligned to the right."""

    cells: list[list[str]]
    numbers: frozenset[int]

    def widths(self, shown: Sequence[int]) -> list[int]:
        return [max(len(click.unstyle(row[column])) for row in self.cells) for column in shown]

    def width(self, shown: Sequence[int]) -> int:
        """The least: text in a last column can be wrapped."""
        *others, last = self.widths(shown)
        return sum(others) + (last if shown[-1] in self.numbers else min(last, _MIN_TEXT_WIDTH)) + 2 * (len(shown) - 1)

    def lines(self, shown: Sequence[int], width: int | None) -> Iterator[str]:
        widths = self.widths(shown)
        indent = sum(widths[:-1]) + 2 * (len(shown) - 1)
        room = _UNLIMITED if width is None or shown[-1] in self.numbers else max(_MIN_TEXT_WIDTH, width - indent)
        for row in self.cells:
            *padded, last = [
                _pad(row[column], size, right=column in self.numbers)
                for column, size in zip(shown, widths, strict=True)
            ]
            parts = _wrap(last.rstrip(), room)
            yield "  ".join([*padded, parts[0]]).rstrip()
            yield from (f"{' ' * indent}{part}" for part in parts[1:])


def _pad(cell: str, width: int, *, right: bool) -> str:
    blanks = " " * (width - len(click.unstyle(cell)))
    return blanks + cell if right else cell + blanks


def _wrap(cell: str, room: int) -> list[str]:
    # A wrap would cut through colours; cells with colours are short.
    if len(cell) <= room or "\x1b" in cell:
        return [cell]
    return textwrap.wrap(cell, room, **_WHOLE_WORDS) or [cell]
