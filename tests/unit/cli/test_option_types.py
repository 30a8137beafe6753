"""Times, shares and moments ahead as values of options."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timezone

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xenoovs.terminal.options import duration, duration_or_zero, moment_ahead, share


@pytest.mark.parametrize(("text", "seconds"), [("10s", 10), ("500ms", 0.5), ("2m", 120), ("1h", 3600), ("1.5s", 1.5)])
def test_a_time(text: str, seconds: float) -> None:
    assert duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["10", "", "0s", "-1s", "1d", "s", "1e3s", "nan", "١s"])
def test_no_time(text: str) -> None:
    with pytest.raises(click.BadParameter, match="10s, 500ms or 2m"):
        duration(text)


@pytest.mark.parametrize(("text", "value"), [("95%", 0.95), ("99.9 %", 0.999), ("0%", 0), ("100%", 1)])
def test_a_share(text: str, value: float) -> None:
    assert share(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["95", "0.95", "101%", "%", "-5%", ""])
def test_no_share(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"95% or 99\.9%"):
        share(text)


def test_a_time_without_a_unit_is_guessed() -> None:
    with pytest.raises(click.BadParameter, match=r"Did you mean 2s\?"):
        duration("2")
    assert duration_or_zero("0") == duration_or_zero("0s") == 0


WEEK_S = 7 * 86_400


@pytest.fixture(autouse=True)
def _berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A time zone with daylight saving, from 2026-03-29 at 02:00 until 2026-10-25 at 03:00."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        yield
    time.tzset()


def utc(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp()


@pytest.mark.parametrize(
    ("text", "now", "wanted"),
    [
        ("22:00", "2026-11-24 20:59:59", "2026-11-24 21:00:00"),
        ("22:00", "2026-11-24 21:00:00", "2026-11-25 21:00:00"),
        ("00:00:30", "2026-11-24 22:59:00", "2026-11-24 23:00:30"),
        ("2026-11-24T22:00", "2026-11-24 20:00:00", "2026-11-24 21:00:00"),
        ("2026-11-24 22:00:05", "2026-11-24 20:00:00", "2026-11-24 21:00:05"),
        ("2026-11-24T22:00+05:30", "2026-11-24 10:00:00", "2026-11-24 16:30:00"),
        ("2026-11-24T22:00:00Z", "2026-11-24 10:00:00", "2026-11-24 22:00:00"),
        ("+90m", "2026-11-24 10:00:00", "2026-11-24 11:30:00"),
        ("+1.5s", "2026-11-24 10:00:00", "2026-11-24 10:00:01.500"),
        # The hour that does not exist on that day, and the one that comes twice.
        ("02:30", "2026-03-29 00:00:00", "2026-03-30 00:30:00"),
        ("02:30", "2026-10-25 00:00:00", "2026-10-25 00:30:00"),
        ("02:30", "2026-10-25 00:45:00", "2026-10-25 01:30:00"),
        ("2026-10-25T02:30", "2026-10-25 00:00:00", "2026-10-25 00:30:00"),
    ],
)
def test_a_moment_is_the_next_one_that_the_text_means(text: str, now: str, wanted: str) -> None:
    assert moment_ahead(text, now_s=utc(now), most_s=WEEK_S) == round(utc(wanted) * 1000)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("2026-11-24T11:00", "'2026-11-24T11:00' is 2026-11-24 11:00:00, which has passed"),
        ("2026-12-24T11:00", "is 2026-12-24 11:00:00, in 30d; give a time of the next 7d."),
        ("+999999999h", "in 41666666d 15h; give a time of the next 7d."),
        ("9999-12-31T23:59", "is no time such as 22:00"),
        ("2027-03-28T02:30", "does not exist here"),
        ("24:00", "is no time such as 22:00"),
        ("7", "is no time such as 22:00"),
        ("2026-02-30T10:00", "is no time such as 22:00"),
        ("2026-11-24T10:00+25:00", "is no time such as 22:00"),
        ("2026-11-24T", "is no time such as 22:00"),
        ("\u0662\u0662:00", "is no time such as 22:00"),
        ("+90", "'90' is not a time such as 10s"),
        ("+-5m", "is not a time such as 10s"),
        ("+", "is not a time such as 10s"),
        ("", "is no time such as 22:00"),
    ],
)
def test_other_texts_are_refused_with_one_sentence(text: str, reason: str) -> None:
    with pytest.raises(click.BadParameter) as refused:
        moment_ahead(text, now_s=utc("2026-11-24 10:00:00"), most_s=WEEK_S)
    assert reason in refused.value.message
    assert "\n" not in refused.value.message


@given(st.one_of(st.text(max_size=25), st.from_regex(r"\A[0-9T:+Z -]{0,25}\Z")))
def test_any_text_is_a_moment_ahead_or_refused(text: str) -> None:
    now_s = utc("2026-11-24 10:00:00")
    try:
        at_ms = moment_ahead(text, now_s=now_s, most_s=WEEK_S)
    except click.BadParameter:
        return
    assert now_s * 1000 < at_ms <= (now_s + WEEK_S) * 1000
