"""YAML 1.2 scalars: what YAML 1.1 reads as something else stays text."""

from __future__ import annotations

import pytest

from xenoovs.model.values import Number, parse_plain_scalar


@pytest.mark.parametrize(
    "text",
    ["10:20:30:40:50:51", "22:30", "on", "no", "yes", "y", "8000-8003", "5%", "2001:db8::1", "0b1", "1_000", "."],
)
def test_text_stays_text(text: str) -> None:
    assert parse_plain_scalar(text) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [("53", 53), ("-1", -1), ("+7", 7), ("0", 0), ("true", True), ("FALSE", False)],
)
def test_core_schema(text: str, value: object) -> None:
    parsed = parse_plain_scalar(text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize("text", ["", "~", "null", "Null"])
def test_null(text: str) -> None:
    assert parse_plain_scalar(text) is None


@pytest.mark.parametrize("text", ["0.1", "1e30", "-.5", ".inf", ".nan", "3.", "1" * 5000])
def test_other_numbers_keep_their_text(text: str) -> None:
    assert parse_plain_scalar(text) == Number(text)
