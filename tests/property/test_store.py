"""The store: rows and operations, and messages however their text is cut."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec, module_from_spec
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from xenoovs.decision.decision import Blocks
from xenoovs.partition.block import MAX_WIDTH, Block
from xenoovs.store.replica import MessageParser
from xenoovs.store.rows import SERVICES, fleet_view, operations
from xenoovs.store.view import Changes, FleetView, StoredService, blocks_from_map, blocks_to_map

_BLOCK = st.integers(0, MAX_WIDTH).flatmap(
    lambda depth: st.builds(Block, st.integers(0, (1 << depth) - 1), st.just(depth))
)
_BLOCKS = st.lists(st.tuples(_BLOCK, st.sampled_from("abc")), max_size=12).map(Blocks.of)
_ALL_CLIENTS = _BLOCKS.map(lambda blocks: blocks.over(Blocks.of([(Block(0, 0), "a")])))
_SERVICE = st.builds(
    StoredService,
    name=st.just("dns"),
    groups=st.frozensets(st.sampled_from(["x", "y", "z"])),
    config=st.sampled_from(['{"name":"dns"}', '{"name":"dns","weight":1}']),
    claim=st.sampled_from(["udp 53", "tcp 53"]),
    generation=st.just(4),
    active=_ALL_CLIENTS,
    home=_ALL_CLIENTS,
)


@given(st.dictionaries(st.from_regex(r"(0x)?[0-9a-fA-F]{0,5}/[0-9]{0,3}", fullmatch=True), st.sampled_from("ab")))
def test_text_is_blocks_in_one_form_or_refused(text: Mapping[str, str]) -> None:
    try:
        blocks = blocks_from_map(text)
    except ValueError:
        return
    assert blocks_to_map(blocks) == text


@pytest.mark.parametrize(
    "key",
    ["", "0x0", "0/1", "0x0/", "0x00/1", "0x2/1", "0X1/1", "0xa/17", "0xA/4", " 0x1/1", "0x1/1\n", "0x1/01", "-0x1/1"],
)
def test_other_text_is_no_block(key: str) -> None:
    with pytest.raises(ValueError, match=r"block|bits"):
        blocks_from_map({key: "a"})


def applied(row: Mapping[str, Any], operation: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a row after an operation (RFC 7047, 5.1 and 5.2)."""
    made = dict(row)
    for column, value in operation.get("row", {}).items():
        kind, content = value if isinstance(value, list) else ("", value)
        made[column] = {"set": frozenset, "map": dict, "": lambda text: text}[kind](content)  # type: ignore[operator]
    for column, mutator, (_, value) in operation.get("mutations", ()):
        held = dict(made[column])
        if mutator == "delete":
            made[column] = {key: text for key, text in held.items() if key not in value}
        else:
            # A key that is there stays as it is.
            made[column] = {**dict(value), **held}
    return made


@given(_SERVICE, _SERVICE)
def test_operations_turn_one_service_into_the_other_and_name_only_blocks_that_differ(
    old: StoredService, new: StoredService
) -> None:
    view = FleetView("test", 1, 8, 0, 0, services={"dns": old}, store_id="f", commit_id="b")
    wait, fleet, *made = operations(view, Changes({"dns": new}), {(SERVICES.name, "dns"): "7"}, commit_id="c")
    assert (wait["op"], wait["timeout"], wait["rows"]) == ("wait", 0, [{"generation": 8, "commit_id": "b"}])
    assert fleet["row"] == {"generation": 9, "commit_id": "c"}
    row = dict(SERVICES.row(old))
    for operation in made:
        assert operation["where"] == [["_uuid", "==", ["uuid", "7"]]]
        for column, _, (_, named) in operation.get("mutations", ()):
            keys = {key if isinstance(key, str) else key[0] for key in named}
            before, after = SERVICES.row(old)[column], SERVICES.row(new)[column]
            assert keys <= {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
        row = applied(row, operation)
    expected = old if old == new else replace(new, generation=9)
    assert SERVICES.value(row) == expected
    assert bool(made) == (old != new)


@given(_SERVICE, _SERVICE)
def test_views_of_one_number_have_one_content_exactly_if_their_services_are_the_same(
    one: StoredService, other: StoredService
) -> None:
    row = {"name": "fleet", "format": 1, "generation": 8, "commit_id": "c", "intent": 0, "ack": 0, "wave": 0}
    row |= {"switch_at_ms": 0, "removed": frozenset()}
    views = [
        fleet_view(row, {SERVICES.name: {"dns": SERVICES.value(SERVICES.row(each))}}, store_id="f")
        for each in (one, other)
    ]
    assert (views[0].commit == views[1].commit) == (replace(one, generation=0) == replace(other, generation=0))


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
@example({"a": '"'}, False, "", [8])
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
