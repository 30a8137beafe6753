"""Times and shares as values of options."""

from __future__ import annotations

import click
import pytest

from xenoovs.terminal.options import duration, duration_or_zero, share


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
