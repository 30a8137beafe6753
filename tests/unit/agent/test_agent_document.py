"""A snapshot on its way through JSON."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest

from tests.snapshots import snapshot
from xenoovs.agent.snapshot import Snapshot, from_document, to_document
from xenoovs.errors import ParseError


def test_a_snapshot_comes_back_as_it_was() -> None:
    assert from_document(json.loads(json.dumps(to_document(snapshot())))) == snapshot()


def test_every_field_is_there_under_its_name() -> None:
    assert list(to_document(snapshot())) == [field.name for field in fields(Snapshot)]


def test_what_a_newer_agent_says_beside_is_left_out() -> None:
    assert from_document({**to_document(snapshot()), "moon_phase": "full"}) == snapshot()


def test_what_an_older_agent_does_not_say_has_its_default() -> None:
    document = to_document(snapshot())
    del document["overrides"]
    assert from_document(document).overrides == ()


@pytest.mark.parametrize("document", [None, 3, [], {}, {"bridge": "b"}, {**to_document(snapshot()), "services": 3}])
def test_anything_else_is_a_parse_error(document: object) -> None:
    with pytest.raises(ParseError, match="the status of an agent"):
        from_document(document)
