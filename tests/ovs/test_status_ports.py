"""`xenoovs status` ends with 2 when a port of the config has no link, with and without an agent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_line import CommandLine
from tests.ovs.dummy import DummyBridge
from tests.ovs.test_agent_control import agent
from tests.patience import eventually

pytestmark = pytest.mark.ovs


def test_the_uplink_is_down(xenoovs: CommandLine, bridge: DummyBridge, config: Path) -> None:
    where = ("--db", bridge.ovs.db)
    from_bridge = ("status", config, *where, "--interval", "0")
    assert xenoovs("apply", config, *where, "--yes").status == 0
    assert xenoovs(*from_bridge).status == 0
    bridge.ovs.appctl("netdev-dummy/set-admin-state", "p1", "down")
    eventually(lambda: xenoovs(*from_bridge).status == 2, "no link")
    assert "port p1 has no link" in xenoovs(*from_bridge).out
    assert json.loads(xenoovs(*from_bridge, "-o", "json").out)["ports_without_link"] == ["p1"]
    with agent(bridge, config):
        eventually(lambda: "port p1 has no link" in xenoovs("status", *where).out, "the agent to tell")
        assert xenoovs("status", *where).status == 2
        bridge.ovs.appctl("netdev-dummy/set-admin-state", "p1", "up")
        eventually(lambda: xenoovs("status", *where).status == 0, "the link")
