"""Tables on a terminal. If it is too narrow, the least important columns are left out, and long names are cut."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import click

from xenoovs.dataclass import dataclass
from xenoovs.display import printable
from xenoovs.show.column import Column, Row, shown_columns

STYLES: dict[str, dict[str, Any]] = {
    "plain": {},
    "bold": {"bold": True},
    "quiet": {"dim": True},
    "good": {"fg": "green"},
    "warn": {"fg": "yellow"},
    "bad": {"fg": "red"},
    "note": {"fg": "cyan"},
    "head": {"bold": True, "underline": True},
    "cursor": {"reverse": True},
}
"""The arguments of `click.style` for each style of columns and notices."""

_MIN_TEXT_WIDTH = 24
"""Least width of text in a last column; names are cut to keep it."""
_MIN_NAME_WIDTH = 12
"""Least width of text in other columns, to which they are cut on a narrow terminal."""
_UNLIMITED = 1 << 30


class _Wrapper(textwrap.TextWrapper):
    # Breaks lines between words and after the commas of megaflows, but not after those of numbers.
    wordsep_simple_re = re.compile(r"(\s+)|(?<=,)(?=[a-z{])")


def wrapped(text: str, width: int, *, first: str = "", indent: str = "", breaks_words: bool = False) -> list[str]:
    """Return lines of at most `width` characters, the first after `first`, others after `indent`. `breaks_words`:
    whether to break longer words; otherwise they exceed the width."""
    made = _Wrapper(width, first, indent, break_long_words=breaks_words, break_on_hyphens=False)
    return made.wrap(text)


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table of text. `rows`: cells of each row; they may have colours (click.style). `right`: indices of the columns
    that are aligned to the right. `spare`: indices of the columns that can be left out, the least important one
    first."""

    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Collection[int] = ()
    spare: Sequence[int] = ()

    @classmethod
    def of(cls, columns: Iterable[Column], rows: Iterable[Row[Any]]) -> TextTable:
        """Return a table of the columns that terminals show, without control characters in its text."""
        rows = list(rows)
        shown = shown_columns(columns, rows)
        droppable = sorted((each.shown.keep, index) for index, each in enumerate(shown) if each.shown.keep)
        return cls(
            [each.shown.header for each in shown],
            [[_cell(each, row) for each in shown] for row in rows],
            [index for index, each in enumerate(shown) if each.shown.is_number],
            [index for _, index in droppable],
        )

    def lines(self, width: int | None, *, wraps: bool = True) -> Iterator[str]:
        """Yield the lines, the headers in bold, and at the end which columns are left out. `width`: of the terminal;
        None for all columns and one line per row. `wraps`: whether to wrap, not cut, text in the last column."""
        shown, hidden = list(range(len(self.headers))), list[str]()
        for column in self.spare:
            if width is None or self._width(shown) <= width:
                break
            shown.remove(column)
            hidden.append(self.headers[column])
        for index, line in enumerate(self._lines(shown, width, wraps=wraps)):
            yield click.style(line, bold=True) if index == 0 else line
        if hidden:
            yield f"(terminal too narrow for {', '.join(hidden)})"

    def _widths(self, shown: Sequence[int]) -> list[int]:
        return [max(len(click.unstyle(row[column])) for row in (self.headers, *self.rows)) for column in shown]

    def _width(self, shown: Sequence[int]) -> int:
        """Return the least width of these columns: text in a last column can be wrapped."""
        *others, last = self._widths(shown)
        return sum(others) + (last if shown[-1] in self.right else min(last, _MIN_TEXT_WIDTH)) + 2 * (len(shown) - 1)

    def _cut_widths(self, shown: Sequence[int], width: int | None) -> Sequence[int]:
        """Return the widths of columns. The widest text is cut first, except in the last column; numbers never are."""
        widths, over = self._widths(shown), 0 if width is None else self._width(shown) - width
        cut = [column for column in shown if any(not row[column][:1].isdigit() for row in self.rows)]
        names = (place for place, column in enumerate(shown[:-1]) if column in cut and column not in self.right)
        for place in sorted(names, key=lambda place: -widths[place]):
            less = max(0, min(over, widths[place] - _MIN_NAME_WIDTH))
            widths[place], over = widths[place] - less, over - less
        return widths

    def _lines(self, shown: Sequence[int], width: int | None, *, wraps: bool) -> Iterator[str]:
        widths = self._cut_widths(shown, width)
        indent = sum(widths[:-1]) + 2 * (len(shown) - 1)
        room = _UNLIMITED if width is None or shown[-1] in self.right else max(_MIN_NAME_WIDTH, width - indent)
        for row in (self.headers, *self.rows):
            *padded, last = [
                _pad(row[column], size, right=column in self.right) for column, size in zip(shown, widths, strict=True)
            ]
            parts = _wrap(last.rstrip(), room)
            if not wraps and len(parts) > 1:
                parts = [f"{parts[0][: room - 1]}…"]
            yield "  ".join([*padded, parts[0]]).rstrip()
            yield from (f"{' ' * indent}{part}" for part in parts[1:])


def _cell(column: Column, row: Row[Any]) -> str:
    text = printable(column.text(row))
    style = STYLES[column.shown.style(row)]
    return click.style(text, **style) if style else text


def fit(text: str, width: int) -> str:
    """Return at most `width` characters, with an ellipsis in place of further ones."""
    return text if len(text) <= width else f"{text[: max(width - 1, 0)]}…"


def _pad(cell: str, width: int, *, right: bool) -> str:
    cell = cell if "\x1b" in cell else fit(cell, width)
    blanks = " " * (width - len(click.unstyle(cell)))
    return blanks + cell if right else cell + blanks


def _wrap(cell: str, room: int) -> list[str]:
    # Wrapping would split colour codes; cells with colours are short.
    if len(cell) <= room or "\x1b" in cell:
        return [cell]
    return wrapped(cell, room, breaks_words=True) or [cell]
