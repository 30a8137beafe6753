"""Tables and sentences on terminals of some width, and in pipes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from xenoovs.terminal import output
from xenoovs.terminal.output import print_table, print_text

HEADERS = ["CHECK", "N", "SEEN"]
ROWS = [["one", "7", "short"], ["two", "8", "words that need much more room than there is"]]


@pytest.fixture
def columns(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    width = request.param
    monkeypatch.setattr(output, "is_terminal", lambda: width is not None)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda *_, **__: os.terminal_size((width or 80, 24)))


@pytest.mark.parametrize("columns", [40], indirect=True)
def test_a_last_column_of_text_goes_on_below_itself(columns: None, capsys: pytest.CaptureFixture[str]) -> None:
    print_table(HEADERS, ROWS)
    assert capsys.readouterr().out.splitlines() == [
        "CHECK  N  SEEN",
        "one    7  short",
        "two    8  words that need much more room",
        "          than there is",
    ]


@pytest.mark.parametrize("columns", [12], indirect=True)
def test_columns_that_can_be_spared_go_first(columns: None, capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["A", "SPARE", "MORE", "B"], [["1", "2", "3", "4"]], right=range(4), spare=[1, 2])
    assert capsys.readouterr().out.splitlines() == [
        "A  MORE  B",
        "1     3  4",
        "(terminal too narrow for SPARE)",
    ]


@pytest.mark.parametrize("columns", [None], indirect=True)
def test_a_pipe_gets_every_column_and_one_line_a_row(columns: None, capsys: pytest.CaptureFixture[str]) -> None:
    print_table(HEADERS, ROWS, spare=[1])
    print_text("a sentence " * 20)
    assert len(capsys.readouterr().out.splitlines()) == 4


@pytest.mark.parametrize("columns", [20], indirect=True)
def test_sentences_are_wrapped_between_words(columns: None, capsys: pytest.CaptureFixture[str]) -> None:
    print_text("  why: it takes long to say", indent="       ")
    assert capsys.readouterr().out.splitlines() == ["  why: it takes long", "       to say"]


def test_a_closed_standard_output_is_an_error_without_a_traceback() -> None:
    """The number of a stream that the shell has closed would be that of the next file or socket."""
    argv = f"{sys.executable} -m xenoovs --help >&-"
    done = subprocess.run(["sh", "-c", argv], stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "error: output: Bad file descriptor\n")
