"""Which metrics and labels a query of Prometheus names: a tokenizer that is enough for our own templates."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\$?[a-zA-Z_:][a-zA-Z0-9_:]*|[0-9.]+[a-z]*|=~|!~|!=|==|<=|>=|\S')
_GROUPING = frozenset(("by", "without", "on", "ignoring", "group_left", "group_right"))
_SUFFIXES = ("_bucket", "_count", "_sum")


def metrics_of(query: str) -> Iterator[tuple[str, frozenset[str]]]:
    """Each selector: its metric and its labels."""
    tokens = _TOKEN.findall(query)
    for number, token in enumerate(tokens):
        if token.startswith("xenoovs_"):
            rest = tokens[number + 1 :]
            yield token, frozenset(_before_operators(rest[: rest.index("}")]) if rest[:1] == ["{"] else ())


def grouped_by(query: str) -> frozenset[str]:
    """The labels in `by (...)`, `on (...)` and their like."""
    tokens = _TOKEN.findall(query)
    found = set[str]()
    for number, token in enumerate(tokens):
        if token in _GROUPING and tokens[number + 1] == "(":
            listed = tokens[number + 2 :]
            found |= {label for label in listed[: listed.index(")")] if label != ","}
    return frozenset(found)


def family_of(name: str) -> str:
    """The metric as it is declared: without what a histogram puts behind its name."""
    return next((name.removesuffix(suffix) for suffix in _SUFFIXES if name.endswith(suffix)), name)


def is_balanced(query: str) -> bool:
    """Whether all brackets are closed in their order."""
    open_ones, closing = [], {")": "(", "}": "{", "]": "["}
    for token in _TOKEN.findall(query):
        if token in closing.values():
            open_ones.append(token)
        elif token in closing and (not open_ones or open_ones.pop() != closing[token]):
            return False
    return not open_ones


def _before_operators(tokens: list[str]) -> Iterator[str]:
    for name, operator in pairwise(tokens):
        if operator in ("=", "=~", "!=", "!~"):
            yield name
