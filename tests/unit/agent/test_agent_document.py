"""A snapshot on its way through JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.snapshots import snapshot
from xenoovs.errors import ParseError
from xenoovs.show.codec import to_json
from xenoovs.show.snapshot import parse_snapshot


def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(to_json(snapshot()))
    return found


def test_a_snapshot_comes_back_as_it_was() -> None:
    assert parse_snapshot(document()) == snapshot()


def test_unknown_keys_of_a_newer_agent_are_ignored() -> None:
    assert parse_snapshot({**document(), "moon_phase": "full"}) == snapshot()


def test_keys_that_an_older_agent_lacks_have_their_default() -> None:
    older = document()
    del older["overrides"]
    assert parse_snapshot(older).overrides == ()


@pytest.mark.parametrize("other", [None, 3, [], {}, {"bridge": "b"}, {**document(), "services": 3}])
def test_anything_else_is_a_parse_error(other: object) -> None:
    with pytest.raises(ParseError, match="the status of an agent"):
        parse_snapshot(other)
