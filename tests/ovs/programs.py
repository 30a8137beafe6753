"""A config with one weight or another, and the flows of each: whatever else a bridge has is a mixture."""

from __future__ import annotations

from pathlib import Path

from tests.command_line import SMALL_CONFIG, finish, start
from tests.ovs.dummy import DummyBridge

WEIGHTS = (30, 50)

Flows = tuple[str, ...]


def text(weight: int) -> str:
    return SMALL_CONFIG.replace("weight: 30", f"weight: {weight}")


def flows(bridge: DummyBridge) -> Flows:
    return tuple(sorted(bridge.dump_flows(version="OpenFlow14")))


def whole_programs(bridge: DummyBridge, config: Path) -> dict[Flows, int]:
    """What the bridge has after a change to each weight that nobody disturbs. Each finds the other before it."""
    found = {}
    for weight in (*WEIGHTS, *WEIGHTS):
        config.write_text(text(weight))
        assert finish(start("agent", config, "--db", bridge.ovs.db, "--once")).status == 0
        found[flows(bridge)] = weight
    assert sorted(found.values()) == sorted(WEIGHTS)
    return found
