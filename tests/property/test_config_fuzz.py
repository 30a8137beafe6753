"""Any text gives a config or a ConfigError, nothing else, and every finding has a position in the text."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from xenoovs.errors import ConfigError
from xenoovs.model.balancer import Balancer
from xenoovs.model.load import parse_config
from xenoovs.model.templates import read_template, template_names

TEMPLATES = tuple(map(read_template, template_names()))

# Pieces that a mutation puts into a valid config: signs of YAML, words of the config, values at the edge.
SIGNS = ("\n", "  ", "- ", ": ", "# ", *"[]{},&*!|>%@`'\"?~\t\0", "\ufeff", "\u2028", "---", "...", "<<: ", "''")
NUMBERS = (
    "0",
    "-1",
    "1e30",
    ".nan",
    ".inf",
    "65535",
    "65536",
    "0x10",
    "5%",
    "1000%",
    "0.1",
    "1e-400",
    "53-52",
    "[0,1,2]",
)
WORDS = ("null", "true", "yes", "auto", "udp", "icmp", "pin", "normal", "p0", "p1", "02:00:5e:10:00:02", "2001:db8::1")
KEYS = (
    "vip: ",
    "name: ",
    "mac: ",
    "weight: ",
    "ports: ",
    "bits: ",
    "backends: ",
    "services: ",
    "bridge: ",
    "{a: b}",
    "[]",
)
PIECES = st.sampled_from((*SIGNS, *NUMBERS, *WORDS, *KEYS))


def outcome(text: str | bytes) -> Balancer | ConfigError:
    try:
        return parse_config(text, file="c.yaml")
    except ConfigError as error:
        check_findings(error)
        return error


def check_findings(error: ConfigError) -> None:
    assert error.findings
    for finding in error.findings:
        assert finding.line >= 1
        assert finding.column >= 1
        assert finding.message


@given(st.text())
@example("\r")
@example("a: \ud800")
@example("? ")
@example("- &a *a")
@settings(max_examples=400, deadline=None)
def test_any_text(text: str) -> None:
    outcome(text)


@given(st.binary(max_size=400))
@settings(max_examples=400, deadline=None)
def test_any_bytes(data: bytes) -> None:
    outcome(data)


@given(st.lists(PIECES, max_size=40).map("".join))
@settings(max_examples=400, deadline=None)
def test_any_words_of_yaml(text: str) -> None:
    outcome(text)


@given(st.sampled_from(TEMPLATES), st.data())
@settings(max_examples=400, deadline=None)
def test_damaged_configs(template: str, data: st.DataObject) -> None:
    text = template
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 12)))
        text = text[:start] + data.draw(PIECES) + text[end:]
    outcome(text)


# JSON is YAML: shapes that are right in form and wrong in content.
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | PIECES.filter(str.isalnum),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "version",
                    "switch",
                    "bridge",
                    "services",
                    "name",
                    "vip",
                    "ports",
                    "match",
                    "bits",
                    "backends",
                    "x",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(VALUES)
@settings(max_examples=300, deadline=None)
def test_any_shape(value: object) -> None:
    outcome(repr(value).replace("None", "null").replace("True", "true").replace("False", "false"))
