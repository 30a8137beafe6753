"""YAML 1.2 to a tree of values with positions; what YAML 1.1 reads as something else stays text."""

from __future__ import annotations

import pytest

from xenoovs.model.load import compose
from xenoovs.model.values import Number, Value, parse_plain_scalar


def tree(text: str) -> Value:
    return compose(text, file="c.yaml").root


def test_values() -> None:
    assert tree("a: [1, '2', {b: no}]\nc:\n") == {"a": [1, "2", {"b": "no"}], "c": None}


def test_keys_are_text_as_written() -> None:
    assert tree("1: a\ntrue: b\n") == {"1": "a", "true": "b"}


def test_line_ends_of_any_system() -> None:
    assert tree("a: 1\r\nb: 2\rc: 3\n") == {"a": 1, "b": 2, "c": 3}


def test_places_count_from_one_and_in_characters() -> None:
    places = compose("é: ü\nb:\n  - {c: 7}\n", file="c.yaml").places
    assert places.of_value(("é",)) == (1, 4)
    assert places.of_value(("b", 0, "c")) == (3, 9)
    assert places.of_key(("b", 0, "c")) == (3, 6)


def test_a_missing_value_is_at_what_is_around_it() -> None:
    places = compose("a:\n  - b: 1\n", file="c.yaml").places
    assert places.of_value(("a", 0, "missing", "deeper")) == (2, 5)


def test_a_duplicate_key_keeps_the_first_value_and_reads_on() -> None:
    document = compose("a: 1\nb: 2\na: {x: [1, {y: 2}]}\nb: 3\n", file="c.yaml")
    assert document.root == {"a": 1, "b": 2}
    assert [(finding.line, finding.column) for finding in document.findings] == [(3, 1), (4, 1)]


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
