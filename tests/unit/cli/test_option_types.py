"""Times and shares as values of options."""

from __future__ import annotations

from collections.abc import Callable

import click
import pytest

from xenoovs.terminal.options import duration, duration_or_zero, share


@pytest.mark.parametrize(
    ("read", "values"),
    [
        (duration, {"10s": 10, "500ms": 0.5, "2m": 120, "1h": 3600, "1.5s": 1.5}),
        (duration_or_zero, {"0": 0, "0s": 0}),
        (share, {"95%": 0.95, "99.9 %": 0.999, "0%": 0, "100%": 1}),
    ],
)
def test_a_value(read: Callable[[str], float], values: dict[str, float]) -> None:
    assert {text: read(text) for text in values} == pytest.approx(values)


@pytest.mark.parametrize(
    ("read", "texts", "message"),
    [
        (duration, ("10", "", "0s", "-1s", "1d", "s", "1e3s", "nan", "١s"), "10s, 500ms or 2m"),
        (duration, ("2",), r"Did you mean 2s\?"),
        (share, ("95", "0.95", "101%", "%", "-5%", ""), r"95% or 99\.9%"),
    ],
)
def test_no_value(read: Callable[[str], float], texts: tuple[str, ...], message: str) -> None:
    for text in texts:
        with pytest.raises(click.BadParameter, match=message):
            read(text)
