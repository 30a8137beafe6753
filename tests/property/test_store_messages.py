"""The parser of messages of the store reads what that of the library `ovs` reads, however the text is cut."""

from __future__ import annotations

import json
from importlib.util import find_spec, module_from_spec
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xenoovs.store.message_parser import MessageParser

# As it is imported the first time: later, its parser is ours.
_spec = find_spec("ovs.json")
assert _spec is not None
assert _spec.loader is not None
library = module_from_spec(_spec)
_spec.loader.exec_module(library)

_TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")) | st.text('{}[]"\\/u0 é\n')
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | _TEXTS,
    lambda each: st.lists(each, max_size=4) | st.dictionaries(_TEXTS, each, max_size=4),
    max_leaves=12,
)
_MESSAGES = st.dictionaries(_TEXTS, _VALUES, max_size=4)


def read(parser: Any, pieces: list[str]) -> tuple[Any, str]:
    """Return the message, and the text after it."""
    rest = ""
    for piece in pieces:
        used = 0 if parser.is_done() else parser.feed(piece)
        rest += piece[used:]
    return parser.finish() if parser.is_done() else None, rest


@given(_MESSAGES, st.booleans(), st.sampled_from(["", "{", '{"a": 1}', " "]), st.lists(st.integers(0, 300), max_size=6))
def test_a_message_is_read_as_by_the_library(
    message: dict[str, Any], is_ascii: bool, after: str, cuts: list[int]
) -> None:
    text = json.dumps(message, ensure_ascii=is_ascii) + after
    edges = sorted({0, *(min(cut, len(text)) for cut in cuts), len(text)})
    pieces = [text[start:end] for start, end in pairwise(edges)]
    assert read(MessageParser(), pieces) == (message, after) == read(library.Parser(), pieces)


@pytest.mark.parametrize("text", ["true", "[1]", '"x"', "}", "7{}", '{"a": nope}', '{"a" 1}'])
def test_text_that_is_no_message_ends_with_a_reason(text: str) -> None:
    parser = MessageParser()
    parser.feed(text)
    assert parser.is_done()
    found = parser.finish()
    assert isinstance(found, str) or not isinstance(found, dict), found
