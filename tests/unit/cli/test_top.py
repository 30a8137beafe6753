"""`xenoovs top`: keys, sizes, and the display of text from outside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from unicodedata import east_asian_width

import click
from hypothesis import given
from hypothesis import strategies as st

from tests.judged import assert_recorded
from tests.snapshots import NOW_S, snapshot
from xenoovs.cli.top import Order, Sort, View, frame, names_of, pressed, sorted_rows
from xenoovs.show.screen import Size, line, one_column
from xenoovs.show.snapshot import PortView
from xenoovs.show.terminal import fit

KEYS = ("up", "down", "j", "k", "page-up", "page-down", "home", "end", "d", "u", "s", "y", "n", "x", "escape")


SHOWN = View(snapshot())
PRESSED: dict[str, tuple[View, tuple[str, ...]]] = {
    "keys choose and stay within": (SHOWN, ("down", "j j", "down up", "up", "end", "page-down", "end home")),
    "nothing is drained before it is confirmed": (SHOWN, ("down d", "down d y")),
    "every key but y means no": (SHOWN, tuple(f"d {key}" for key in KEYS if key != "y")),
    "what is drained is not drained again": (View(snapshot(), ("web", "b3")), ("d",)),
    "undrain is for backends with another weight": (View(snapshot(), ("web", "b3")), ("u y",)),
    "and for no other": (View(snapshot(), ("web", "b0")), ("u",)),
    "these end it": (SHOWN, ("q", "Q", "ctrl-c", "d ctrl-c")),
    "s goes through all orders": (SHOWN, tuple("s " * presses for presses in range(1, len(Sort) + 1))),
}


def after(view: View, keys: Sequence[str], wanted: Order | None = None) -> tuple[View, Order | str | None]:
    for key in keys:
        if (found := pressed(view, key)) is None:
            return view, "quit"
        view, wanted = found
    return view, wanted


def after_keys(view: View, keys: str) -> str:
    found, wanted = after(view, keys.split())
    return f"{keys.strip()}: {found}{f', wanted: {wanted}' if wanted else ''}"


def test_keys(*, update_golden: bool) -> None:
    shown = {title: "\n".join(after_keys(view, keys) for keys in pressed) for title, (view, pressed) in PRESSED.items()}
    assert_recorded("top/keys.txt", shown, update=update_golden)


def test_one_order_begins_with_most_packets_in_software() -> None:
    assert names_of(sorted_rows(snapshot(), Sort.SOFTWARE)[0]) == ("web", "b1")


TROUBLE = replace(
    snapshot(),
    is_paused=True,
    last_error="bridge ovsbr1 is not there; the switch has br-int",
    config_problem="config.yaml:3:1: services: is missing",
    confirm_by_s=NOW_S + 20,
    ports=(PortView("p0", 1, link_up=False), PortView("p1", None, link_up=None)),
    pending_flow_mods=4,
)
EMPTY = replace(snapshot(), services=(), last_round_s=None, sampled_s=None)

FRAMES: dict[str, tuple[View, Size]] = {
    "80x24": (SHOWN, Size(80, 24)),
    "a wide window": (View(snapshot(), ("web", "b2")), Size(150, 16)),
    "a low window": (View(snapshot(), ("dns<script>alert(1)</script>", "b1")), Size(80, 8)),
    "a question": (View(snapshot(), ("web", "b1"), question=Order("drain", ("web", "b1"))), Size(80, 12)),
    "sorted by state": (View(snapshot(), ("web", "b2"), Sort.STATE), Size(80, 12)),
    "sorted by packets": (View(snapshot(), None, Sort.PPS, message="web/b3 is already drained"), Size(100, 12)),
    "in trouble": (View(TROUBLE), Size(80, 20)),
    "nothing yet": (View(EMPTY), Size(80, 6)),
    "in a pipe": (SHOWN, Size(120)),
}


def test_frames_are_as_recorded_and_fit(*, update_golden: bool) -> None:
    shown = dict[str, str]()
    for title, (view, size) in FRAMES.items():
        lines = [click.unstyle(text) for text in frame(view, size)]
        assert (max(map(len, lines)) <= size.width, size.height in (None, len(lines))) == (True, True)
        shown[title] = "\n".join(lines)
    assert_recorded("top/frames.txt", shown, update=update_golden)


@given(st.lists(st.sampled_from(KEYS), max_size=30), st.integers(20, 200), st.integers(6, 60))
def test_any_keys_and_any_window_give_a_frame_that_fits(keys: list[str], width: int, height: int) -> None:
    lines = frame(after(SHOWN, keys)[0], Size(width, height))
    assert len(lines) == height
    assert all(len(click.unstyle(line)) <= width for line in lines)


@given(st.lists(st.sampled_from(KEYS), max_size=30), st.integers(8, 30))
def test_the_chosen_row_can_always_be_seen(keys: list[str], height: int) -> None:
    texts = [click.unstyle(line) for line in frame(after(SHOWN, keys)[0], Size(80, height))]
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
    text = "".join(click.unstyle(line) for line in frame(View(shown), Size(250, 30)))
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
