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
    order = Order(Task.DRAIN, ("web", "b1"))
    assert after("down", "d") == (View(("web", "b1"), question=order), None)
    assert after("down", "d", "y") == (View(("web", "b1")), order)


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


def test_no_text_from_servers_and_configs_moves_the_cursor() -> None:
    """Clears the screen, sets the title, changes colours, breaks lines and turns text round."""
    rude = "\x1b[2J\x1b]0;title\x07\x9b31m\n\u202e漢"
    service = snapshot().services[0]
    backend = replace(service.backends[0], name=f"b{rude}", reason=f"HTTP 200 {rude}")
    shown = replace(
        snapshot(),
        services=(replace(service, name=f"web{rude}", backends=(backend,)),),
        bridge=rude,
        config_path=rude,
        last_error=rude,
        ports_problem=rude,
        problems=(f"port {rude}",),
    )
    text = "".join(click.unstyle(line) for line in frame(shown, View(), Size(250, 30)))
    assert "HTTP 200 \\x1b[2J\\x1b]0;title\\x07\\x9b31m\\n\\u202e?" in text
    assert text.isprintable()


@given(st.text())
def test_text_from_outside_takes_one_column_a_character(text: str) -> None:
    assert one_column(text).isprintable()
    assert not any(east_asian_width(char) in "WF" for char in one_column(text))


def test_texts_are_cut_to_the_width() -> None:
    assert (fit("backend", 7), fit("backend", 4), fit("b", 0)) == ("backend", "bac…", "…")
    assert line(3, ("ab", "plain"), ("cd  ", "plain")) == "abc"
    assert line(9, ("a ", "plain"), ("  ", "bold")) == "a"
    assert line(9, ("up", "good"), (" 4", "plain")) == "\x1b[32mup\x1b[0m 4"
