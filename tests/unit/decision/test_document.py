"""Documents of decisions: their form, and mistakes in it."""

from __future__ import annotations

from typing import Any

import pytest

from xenoovs.decision.decision import Blocks, Decision, ServiceDecision
from xenoovs.decision.document import decision_document, parse_decision
from xenoovs.errors import DecisionMalformed
from xenoovs.model.balancer import BlockKey
from xenoovs.partition.block import Block

HOME = Blocks.of([(Block(0, 1), "b0"), (Block(1, 1), "b1")])
LENT = Blocks.of([(Block(0, 0), "b0")])
SERVICE: dict[str, Any] = {
    "id": "0x0000000a",
    "key": {"field": "source_address", "positions": [3, 0]},
    "home": {"b0": ["0x0/1"], "b1": ["0x1/1"]},
}


def document(*services: Any, **fields: Any) -> dict[str, Any]:
    return {"format": 1, "version": 0, "services": list(services), **fields}


def changed(**fields: Any) -> dict[str, Any]:
    return document({**SERVICE, **fields})


def test_blocks_stand_under_their_owner_and_active_ones_where_they_differ() -> None:
    plain = Decision.of({10: ServiceDecision(BlockKey(positions=(3, 0)), HOME, HOME)})
    assert decision_document(plain) == document(SERVICE)
    lent = Decision.of({10: ServiceDecision(BlockKey(positions=(3, 0)), HOME, LENT)}, version=4)
    written = decision_document(lent, {10: "web"})
    assert written == {**changed(name="web", active={"b0": ["0x0/0"]}), "version": 4}
    assert parse_decision(written) == lent
    assert parse_decision(written).version == 4


def test_blocks_in_any_order_and_halved_are_the_same_decision() -> None:
    halved = changed(home={"b1": ["0x3/2", "0x1/2"], "b0": ["0x0/1"]})
    assert parse_decision(halved) == parse_decision(document(SERVICE))


@pytest.mark.parametrize(
    ("given", "path", "reason"),
    [
        pytest.param(None, "", "not an object", id="nothing"),
        pytest.param([], "", "not an object", id="a list"),
        pytest.param({}, "version", "Field required", id="empty"),
        pytest.param(document(format=2), "format", "Input should be 1", id="another format"),
        pytest.param(document(extra=1), "extra", "Extra inputs are not permitted", id="an unknown key"),
        pytest.param(document(version=True), "version", "Input should be a valid integer", id="no number"),
        pytest.param(document(7), "services.0", "not an object", id="a service that is none"),
        pytest.param(document(SERVICE, SERVICE), "services.1.id", "0x0000000a is listed twice", id="a service twice"),
        pytest.param(
            changed(id="0x00000000"), "services.0.id", "0x00000000 is the id of no service", id="no service's id"
        ),
        pytest.param(changed(home={"b0": ["0x2/1"]}), "services.0", "does not fit into 1 bits", id="a wide value"),
        pytest.param(changed(home={"b0": ["0x0/17"]}), "services.0.home.b0.0", "match pattern", id="a deep block"),
        pytest.param(changed(home={"b0": ["0x0/3"]}), "services.0", "deeper than the 2 bits of the key", id="too deep"),
        pytest.param(
            changed(home={"b0": ["0x0/1"], "b1": ["0x0/2"]}), "services.0", "blocks overlap", id="overlapping blocks"
        ),
        pytest.param(changed(home={"b0": ["0x0/1"] * 2}), "services.0", "blocks overlap", id="a block twice"),
        pytest.param(
            changed(home={"b0": ["0x0/1"]}, active={"b0": ["0x0/0"]}),
            "services.0",
            "blocks of `active` are missing in `home`",
            id="a key without home blocks",
        ),
        pytest.param(
            changed(key={"field": "source_address", "positions": [3, 3]}),
            "services.0.key",
            "a position is listed twice",
            id="a position twice",
        ),
        pytest.param(
            changed(key={"field": "source_port", "positions": [16]}),
            "services.0.key",
            "the source port has 16 bits",
            id="no such bit",
        ),
    ],
)
def test_what_is_wrong_is_named(given: object, path: str, reason: str) -> None:
    with pytest.raises(DecisionMalformed) as caught:
        parse_decision(given)
    assert caught.value.path == path
    assert reason in caught.value.reason
    assert str(caught.value).startswith(f"not a decision: {path or 'document'}: ")
