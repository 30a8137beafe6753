"""Rows of the store: blocks are read back from their text, and operations turn one value into the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xenoovs.decision.decision import Blocks
from xenoovs.partition.block import MAX_WIDTH, Block
from xenoovs.store.rows import SERVICES, StoredRow, fleet_view, operations
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


@given(_BLOCKS)
def test_blocks_come_back_from_their_text(blocks: Blocks) -> None:
    assert blocks_from_map(blocks_to_map(blocks)) == blocks


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
    rows = {SERVICES.name: {"dns": StoredRow("7", old)}}
    view = FleetView("test", 1, 8, 0, 0, store_id="f", commit_id="b")
    wait, fleet, *made = operations(view, Changes({"dns": new}), rows, commit_id="c")
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
