"""YAML 1.2 to a tree of values with positions; what YAML 1.1 reads as something else stays text."""

from __future__ import annotations

import pytest

from xenoovs.model.load import compose
from xenoovs.model.values import Number, Value, parse_plain_scalar


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("a: [1, '2', {b: no}]\nc:\n", {"a": [1, "2", {"b": "no"}], "c": None}, id="values"),
        pytest.param("1: a\ntrue: b\n", {"1": "a", "true": "b"}, id="keys are text as written"),
        pytest.param("a: 1\r\nb: 2\rc: 3\n", {"a": 1, "b": 2, "c": 3}, id="line ends of any system"),
    ],
)
def test_a_tree_of_values(text: str, value: Value) -> None:
    assert compose(text, file="c.yaml").root == value


def test_places_count_from_one_and_in_characters() -> None:
    places = compose("é: ü\nb:\n  - {c: 7}\n", file="c.yaml").places
    assert places.of_value(("é",)) == (1, 4)
    assert places.of_value(("b", 0, "c")) == (3, 9)
    assert places.of_key(("b", 0, "c")) == (3, 6)
    # A missing value is at what is around it.
    assert places.of_value(("b", 0, "missing", "deeper")) == places.of_value(("b", 0))


def test_a_duplicate_key_keeps_the_first_value_and_reads_on() -> None:
    document = compose("a: 1\nb: 2\na: {x: [1, {y: 2}]}\nb: 3\n", file="c.yaml")
    assert document.root == {"a": 1, "b": 2}
    assert [(finding.line, finding.column) for finding in document.findings] == [(3, 1), (4, 1)]


TEXTS = "10:20:30:40:50:51 22:30 on no yes y 8000-8003 5% 2001:db8::1 0b1 1_000 ."
NUMBERS = f"0.1 1e30 -.5 .inf .nan 3. {'1' * 5000}"
SCALARS: dict[str, Value] = {
    **{text: text for text in TEXTS.split()},
    **{"53": 53, "-1": -1, "+7": 7, "0": 0, "true": True, "FALSE": False},
    **dict.fromkeys(("", "~", "null", "Null")),
    **{text: Number(text) for text in NUMBERS.split()},
}


@pytest.mark.parametrize(("text", "value"), SCALARS.items())
def test_plain_scalars_are_those_of_the_core_schema_and_other_numbers_keep_their_text(text: str, value: Value) -> None:
    parsed = parse_plain_scalar(text)
    assert parsed == value
    assert type(parsed) is type(value)
