"""Tables, percentages and JSON: coloured on a terminal, plain when piped."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from fractions import Fraction

import click


def print_json(document: object) -> None:
    """Indented JSON, keys in the order in which they were made."""
    click.echo(json.dumps(document, indent=2))


def print_table(headers: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[int] = ()) -> None:
    """A table; columns whose index is in `right` hold numbers. Cells may carry colours (click.style)."""
    lines = [[*headers], *([*row] for row in rows)]
    widths = [max(len(click.unstyle(line[column])) for line in lines) for column in range(len(headers))]
    numbers = frozenset(right)
    for index, line in enumerate(lines):
        cells = [
            _pad(cell, width, right=column in numbers)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        text = "  ".join(cells).rstrip()
        click.echo(click.style(text, bold=True) if index == 0 else text)


def percent(share: Fraction | float | None) -> str:
    """A share 0..1 with two decimals at most; `-` for none."""
    if share is None:
        return "-"
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
