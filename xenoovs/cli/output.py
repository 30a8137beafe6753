"""Tables, percentages and JSON: coloured on a terminal, plain when piped."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import click

_LEAST_ROOM = 24
"""For the text of a last column, however narrow the terminal is."""
_MOST = 1 << 30
_WHOLE_WORDS: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}


def print_json(document: object) -> None:
    """Indented JSON, keys in the order in which they were made."""
    click.echo(json.dumps(document, indent=2))


def print_table(
    headers: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[int] = (), spare: Iterable[int] = ()
) -> None:
    """A table; columns whose index is in `right` hold numbers. Cells may carry colours (click.style).

    On a terminal that is too narrow the columns in `spare` are left out, in their order, as far as that helps; a last
    column of text goes on below itself. What is piped has every column and one line a row.
    """
    table = _Table([[*headers], *([*row] for row in rows)], frozenset(right))
    width = terminal_width()
    left_out: list[str] = []
    kept = list(range(len(headers)))
    for column in spare:
        if width is None or table.width(kept) <= width:
            break
        kept.remove(column)
        left_out.append(headers[column])
    for index, line in enumerate(table.lines(kept, width)):
        click.echo(click.style(line, bold=True) if index == 0 else line)
    if left_out:
        click.echo(f"(for want of room without {', '.join(left_out)})")


@dataclass(frozen=True, slots=True)
class _Table:
    """Cells with the headers first; `numbers`: columns that are aligned to the right."""

    cells: list[list[str]]
    numbers: frozenset[int]

    def widths(self, kept: Sequence[int]) -> list[int]:
        return [max(len(click.unstyle(row[column])) for row in self.cells) for column in kept]

    def width(self, kept: Sequence[int]) -> int:
        """The least: a last column of text can go on below itself."""
        *others, last = self.widths(kept)
        return sum(others) + (last if kept[-1] in self.numbers else min(last, _LEAST_ROOM)) + 2 * (len(kept) - 1)

    def lines(self, kept: Sequence[int], width: int | None) -> Iterator[str]:
        widths = self.widths(kept)
        indent = sum(widths[:-1]) + 2 * (len(kept) - 1)
        room = _MOST if width is None or kept[-1] in self.numbers else max(_LEAST_ROOM, width - indent)
        for row in self.cells:
            *cells, last = [row[column] for column in kept]
            is_number = [column in self.numbers for column in kept]
            padded = [_pad(cell, size, right=n) for cell, size, n in zip(cells, widths, is_number, strict=False)]
            parts = _wrap(last, room)
            text = _pad(parts[0], widths[-1], right=True) if is_number[-1] else parts[0]
            yield "  ".join([*padded, text]).rstrip()
            yield from (f"{' ' * indent}{part}" for part in parts[1:])


def say(text: str, *, indent: str = "", **style: Any) -> None:
    """Sentences; on a terminal wrapped between words, further lines after `indent`. `style`: as click.style."""
    width = terminal_width()
    lines = [text] if width is None else textwrap.wrap(text, width, subsequent_indent=indent, **_WHOLE_WORDS)
    click.echo(click.style("\n".join(lines), **style) if style else "\n".join(lines))


def terminal_width() -> int | None:
    """Columns of the terminal; None where no person is looking."""
    return shutil.get_terminal_size().columns if is_terminal() else None


def _wrap(cell: str, room: int) -> list[str]:
    # Colours would be cut through; cells that have some are short.
    if len(cell) <= room or "\x1b" in cell:
        return [cell]
    return textwrap.wrap(cell, room, **_WHOLE_WORDS) or [cell]


_ALMOST, _ALL = 0.9999, 1 - 1e-12
"""The largest share below all that is shown, and what counts as all: a sum of parts may be off by so much."""


def percent(share: Fraction | float | None) -> str:
    """A share 0..1 with two decimals at most; `-` for none. What is not all is never 100 %."""
    if share is None:
        return "-"
    if _ALMOST < share < _ALL:
        share = _ALMOST
    text = f"{float(share) * 100:.2f}".rstrip("0").rstrip(".")
    return f"{text} %"


def quantity(value: float) -> str:
    """A count or rate with an SI prefix: 1234567 is 1.23 M."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}"
    return f"{value:.3g}"


def is_terminal() -> bool:
    """Whether a person is looking at the output."""
    return sys.stdout.isatty()


def _pad(cell: str, width: int, *, right: bool) -> str:
    blanks = " " * (width - len(click.unstyle(cell)))
    return blanks + cell if right else cell + blanks
