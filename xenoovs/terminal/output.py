"""The output of commands: text that cannot steer the terminal, tables, percentages, JSON, and colours on a terminal."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from io import StringIO
from typing import TYPE_CHECKING, Any, NoReturn

import click

from xenoovs import __version__
from xenoovs.dataclass import dataclass
from xenoovs.display import printable
from xenoovs.errors import Declined
from xenoovs.regex import regex
from xenoovs.show.terminal import TextTable, wrapped

if TYPE_CHECKING:
    from xenoovs.show.column import Column, Row

_PASSED = regex(r"(\x1b\[(?:[01247]|3[1-36]|90)m|[\n\t])")
"""Line feeds, tabs, and the escapes of `click.style` for the styles of commands. No other control character passes."""


def filtered(text: str) -> str:
    """Return the text with control characters as escapes, except line feeds, tabs and the styles of commands."""
    return "".join(part if index % 2 else printable(part) for index, part in enumerate(_PASSED.split(text)))


_errors_in_json = ContextVar("errors_in_json", default=False)


@contextmanager
def json_errors(*, chosen: bool) -> Iterator[None]:
    """If `chosen`, write errors and notes within the context as lines of JSON, as with `-o json`."""
    token = _errors_in_json.set(chosen)
    try:
        yield
    finally:
        _errors_in_json.reset(token)


def errors_in_json() -> bool:
    """Return whether stderr gets lines of JSON."""
    return _errors_in_json.get()


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print text that may have parts of a dump, a log, a switch or a config. All commands print with it. It has colours
    on a terminal, unless NO_COLOR is set (https://no-color.org)."""
    if err and errors_in_json():
        text, nl = json.dumps({"note": click.unstyle(text).strip()}), True
    click.echo(filtered(text), err=err, nl=nl, color=False if os.environ.get("NO_COLOR") else None)


def echo_over(text: str) -> None:
    """Replace the current line of stderr, if that is a terminal. An empty text clears the line."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{filtered(text)}", nl=False, err=True)


class _Frame(StringIO):
    """The output of one round of `repeat`."""

    def isatty(self) -> bool:
        return True


def repeat(show: Callable[[], object], pause_s: float) -> NoReturn:
    """Call a function that prints repeatedly. A terminal shows the end of the newest output in place."""
    if not is_terminal():
        while True:
            show()
            time.sleep(pause_s)
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False) as live:
        while True:
            with redirect_stdout(_Frame()) as frame:
                show()
            lines = frame.getvalue().splitlines()[-live.console.height :]
            live.update(Text.from_ansi("\n".join(lines)), refresh=True)
            time.sleep(pause_s)


def print_error(message: str, *, code: str = "failed", hint: str = "", **facts: object) -> None:
    """Print one error on stderr: in red on a terminal, as a line of JSON with `-o json`. `message`: what happened, with
    which value, and what to do. `code`: the kind of error, for programs. `hint`: a sentence on what else the user can
    do. `facts`: further keys of the JSON."""
    if errors_in_json():
        error = {"code": code, "message": message, "hint": hint or None, **facts}
        click.echo(filtered(json.dumps({"error": error})), err=True)
        return
    echo(f"{click.style('error:', fg='red', bold=True)} {message}", err=True)
    if hint:
        echo(hint, err=True)


def confirm(question: str, *, yes: bool, instead: str = "") -> None:
    """Ask the user on stderr, unless the command was called with --yes (`yes`). `instead`: what to do if stdin is no
    terminal. Raises click.UsageError if stdin is no terminal, Declined if the user declined."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"Confirmation is needed, and stdin is not a terminal: add --yes{instead}.")
    if not click.confirm(filtered(question), err=True):
        raise Declined


_collected: ContextVar[list[Any] | None] = ContextVar("collected", default=None)


@contextmanager
def collecting_json() -> Iterator[list[Any]]:
    """Collect the documents of `print_json` within the context, instead of printing them."""
    documents: list[Any] = []
    token = _collected.set(documents)
    try:
        yield documents
    finally:
        _collected.reset(token)


def is_text() -> bool:
    """Return whether the command prints text, for people, and no JSON (-o)."""
    return bool(click.get_current_context().meta.get("output", "text") == "text")


def answer(
    document: Callable[[], object], text: Callable[[], None], findings: Callable[[], Iterable[SarifResult]] = tuple
) -> None:
    """Print the answer of a command: the document of one function, or the text that another prints."""
    if is_text():
        text()
    else:
        is_sarif = click.get_current_context().meta["output"] == "sarif"
        print_json(to_sarif(findings()) if is_sarif else document())


def print_json(document: object) -> None:
    """Print indented JSON, with keys in their order."""
    if (documents := _collected.get()) is not None:
        documents.append(document)
    else:
        echo(json.dumps(document, indent=2))


def print_text(text: str, *, indent: str = "", head: str = "", **style: Any) -> None:
    """Print sentences, on a terminal wrapped between words, with further lines after `indent`. `head`: text before them
    without `style`, which is as in click.style."""
    echo("\n".join(text_lines(text, indent=indent, head=head, **style)))


def text_lines(text: str, *, indent: str = "", head: str = "", **style: Any) -> list[str]:
    """Return the lines that `print_text` prints."""
    text, width, first = filtered(text), terminal_width(), " " * len(click.unstyle(head))
    lines = [first + text]
    if width is not None:
        lines = wrapped(text, width, first=first, indent=indent) or lines
    lines[0] = lines[0].removeprefix(first)
    styled = [click.style(line, **style) for line in lines] if style else lines
    return [head + styled[0], *styled[1:]]


def is_terminal() -> bool:
    return sys.stdout.isatty()


def terminal_width() -> int | None:
    """Columns of the terminal; None where stdout is no terminal."""
    if not is_terminal():
        return None
    # Imported here, and in rooms below: it loads three libraries for archives.
    import shutil

    return shutil.get_terminal_size().columns


def print_table(
    headers: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[int] = (), spare: Iterable[int] = ()
) -> None:
    """Print a table, without some columns if the terminal is too narrow. The arguments are those of TextTable."""
    _print(TextTable(headers, [[filtered(cell) for cell in row] for row in rows], frozenset(right), tuple(spare)))


def print_columns(columns: Iterable[Column], rows: Iterable[Row[Any]], *, wraps: bool = True) -> None:
    """Print rows with the columns for terminals, as `print_table` does. `wraps`: as in `TextTable.lines`."""
    _print(TextTable.of(columns, rows), wraps=wraps)


def _print(table: TextTable, *, wraps: bool = True) -> None:
    for line in table.lines(terminal_width(), wraps=wraps):
        echo(line)


# Findings as SARIF 2.1.0 (OASIS Static Analysis Results Interchange Format), which code hosts show beside a change.


@dataclass(frozen=True, slots=True)
class SarifResult:
    """One finding. `level`: `error`, `warning` or `note`. `file`: None if it is about no file. `line`, `column`: from
    1, or None for the whole file."""

    rule: str
    level: str
    text: str
    file: str | None = None
    line: int | None = None
    column: int | None = None


def to_sarif(results: Iterable[SarifResult]) -> dict[str, object]:
    listed = list(results)
    rules = [{"id": rule} for rule in sorted({each.rule for each in listed})]
    driver = {"name": "xenoovs", "version": __version__, "rules": rules}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": [_result(each) for each in listed]}],
    }


def _result(each: SarifResult) -> dict[str, object]:
    found: dict[str, object] = {"ruleId": each.rule, "level": each.level, "message": {"text": each.text}}
    if each.file is None or each.file.startswith(("<", "-")):
        return found
    from urllib.parse import quote

    place: dict[str, object] = {"artifactLocation": {"uri": quote(each.file)}}
    if each.line is not None:
        place["region"] = {"startLine": each.line, "startColumn": each.column or 1}
    return found | {"locations": [{"physicalLocation": place}]}
