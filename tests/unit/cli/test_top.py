"""`xenoovs top`: keys, sizes, and the display of text from outside."""

from __future__ import annotations

from dataclasses import replace
from unicodedata import east_asian_width

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.snapshots import snapshot
from xenoovs.cli.top import Order, Quit, Sort, Task, View, frame, names_of, pressed, sorted_rows
from xenoovs.show.screen import Size, line, one_column
from xenoovs.show.terminal import fit

DNS = "dns<script>alert(1)</script>"
KEYS = ("up", "down", "j", "k", "page-up", "page-down", "home", "end", "d", "u", "s", "y", "n", "x", "escape")


def after(*keys: str, view: View | None = None) -> tuple[View, Order | Quit | None]:
    wanted: Order | Quit | None = None
    made = view or View()
    for key in keys:
        made, wanted = pressed(made, key, snapshot())
    return made, wanted


@pytest.mark.parametrize(
    ("keys", "chosen"),
    [
        (("down",), ("web", "b1")),
        (("j", "j"), ("web", "b2")),
        (("down", "up"), ("web", "b0")),
        (("up",), ("web", "b0")),
        (("end",), (DNS, "b1")),
        (("page-down",), (DNS, "b1")),
        (("end", "home"), ("web", "b0")),
    ],
)
def test_arrows_choose_and_stay_within(keys: tuple[str, ...], chosen: tuple[str, str]) -> None:
    assert after(*keys)[0].chosen == chosen


def test_nothing_is_drained_before_it_is_confirmed() -> None:
    view, wanted = after("down", "d")
    assert wanted is None
    assert view.question == Order(Task.DRAIN, ("web", "b1"))
    assert after("down", "d", "y") == (View(("web", "b1")), Order(Task.DRAIN, ("web", "b1")))


@pytest.mark.parametrize("key", [key for key in KEYS if key != "y"])
def test_every_key_but_y_means_no(key: str) -> None:
    view, wanted = after("d", key)
    assert (wanted, view.question, view.message) == (None, None, "nothing was changed")


def test_what_is_drained_is_not_drained_again() -> None:
    view, _ = after("d", view=View(("web", "b3")))
    assert (view.question, view.message) == (None, "web/b3 is already drained")


def test_undrain_is_for_backends_with_another_weight() -> None:
    assert after("u", "y", view=View(("web", "b3")))[1] == Order(Task.RESET, ("web", "b3"))
    assert after("u", view=View(("web", "b0")))[0].question is None


@pytest.mark.parametrize("keys", [("q",), ("Q",), ("ctrl-c",), ("d", "ctrl-c")])
def test_q_ends(keys: tuple[str, ...]) -> None:
    assert after(*keys)[1] is Quit.QUIT


def test_s_goes_through_all_orders_and_one_begins_with_most_packets_in_software() -> None:
    assert [after(*"s" * presses)[0].sort for presses in range(len(Sort) + 1)] == [*Sort, Sort.CONFIG]
    assert names_of(sorted_rows(snapshot(), Sort.SOFTWARE)[0]) == ("web", "b1")


@given(st.lists(st.sampled_from(KEYS), max_size=30), st.integers(20, 200), st.integers(6, 60))
def test_any_keys_and_any_window_give_a_frame_that_fits(keys: list[str], width: int, height: int) -> None:
    lines = frame(snapshot(), after(*keys)[0], Size(width, height))
    assert len(lines) == height
    assert all(len(click.unstyle(line)) <= width for line in lines)


@given(st.lists(st.sampled_from(KEYS), max_size=30), st.integers(8, 30))
def test_the_chosen_row_can_always_be_seen(keys: list[str], height: int) -> None:
    texts = [click.unstyle(line) for line in frame(snapshot(), after(*keys)[0], Size(80, height))]
    assert sum(text.startswith("▸ ") for text in texts) == 1


def test_an_answer_cannot_move_the_cursor() -> None:
    first = snapshot().services[0]
    rude = replace(first, backends=(replace(first.backends[0], reason="\x1b[2J\x07漢\n"), *first.backends[1:]))
    text = "".join(click.unstyle(line) for line in frame(replace(snapshot(), services=(rude,)), View(), Size(160, 20)))
    assert "\\x1b[2J\\x07?\\n" in text
    assert "\x1b" not in text


@given(st.text())
def test_text_from_outside_takes_one_column_a_character(text: str) -> None:
    assert one_column(text).isprintable()
    assert not any(east_asian_width(char) in "WF" for char in one_column(text))


def test_texts_are_cut_to_the_width() -> None:
    assert (fit("backend", 7), fit("backend", 4), fit("b", 0)) == ("backend", "bac…", "…")
    assert line(3, ("ab", "plain"), ("cd  ", "plain")) == "abc"
    assert line(9, ("a ", "plain"), ("  ", "bold")) == "a"
    assert line(9, ("up", "good"), (" 4", "plain")) == "\x1b[32mup\x1b[0m 4"
