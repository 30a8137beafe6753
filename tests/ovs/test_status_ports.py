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


def test_an_agent_whose_ingress_ports_have_no_link_is_not_ready(
    xenoovs: CommandLine, bridge: DummyBridge, config: Path
) -> None:
    """Only an agent with --via controller knew of links: `/ready` answered 200, and the VIP stayed announced."""
    where = ("--db", bridge.ovs.db)

    def reason() -> str:
        document = json.loads(xenoovs("status", *where, "-o", "json").out)
        found: str = document["snapshot"]["not_ready"]
        return found

    with agent(bridge, config):
        eventually(lambda: reason() == "", "an agent that is ready")
        bridge.ovs.appctl("netdev-dummy/set-admin-state", "p0", "down")
        eventually(lambda: reason() == "no ingress port has a link", "the reason")
        bridge.ovs.appctl("netdev-dummy/set-admin-state", "p0", "up")
        eventually(lambda: reason() == "", "the link")
