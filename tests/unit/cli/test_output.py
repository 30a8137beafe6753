"""Tables and sentences on terminals of some width, and in pipes."""

from __future__ import annotations

import os
import shutil
from fractions import Fraction

import pytest

from xenoovs.cli import output
from xenoovs.cli.output import percent, print_table, print_text, quantity

HEADERS = ["CHECK", "N", "SEEN"]
ROWS = [["one", "7", "short"], ["two", "8", "words that need much more room than there is"]]


@pytest.fixture
def columns(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    width = request.param
    monkeypatch.setattr(output, "is_terminal", lambda: width is not None)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: os.terminal_size((width or 80, 24)))


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


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (1.0, "100 %"),
        (Fraction(1), "100 %"),
        (sum([0.1] * 10), "100 %"),
        (1 - 1e-8, "99.99 %"),
        (Fraction(10**9 - 1, 10**9), "99.99 %"),
        (0.9999, "99.99 %"),
        (0.3344, "33.44 %"),
        (None, "-"),
    ],
)
def test_what_is_not_all_is_never_a_hundred_percent(share: Fraction | float | None, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize("share", [1e-9, Fraction(1, 2**20), 0.00009])
def test_a_share_that_is_not_zero_is_never_shown_as_zero(share: Fraction | float) -> None:
    assert percent(share) == "<0.01 %"
    assert percent(0.0001) == "0.01 %"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (999.4, "999"),
        (999.6, "1 k"),
        (1234567, "1.23 M"),
        (999_499, "999 k"),
        (999_600, "1 M"),
        (1.5e15, "1500 T"),
    ],
)
def test_quantities_have_three_digits_and_no_exponent(value: float, text: str) -> None:
    assert quantity(value) == text
