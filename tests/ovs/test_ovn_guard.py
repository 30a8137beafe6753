"""Nothing writes to a bridge of OVN, whichever command is asked to. ovn-controller is not needed for that."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_line import Command
from tests.ovs.dummy import DummyBridge, DummyOvs


@pytest.fixture
def bridge(own_ovs: DummyOvs) -> Iterator[DummyBridge]:
    """Bridge ovsbr1 of an Open vSwitch whose database may name it as OVN's."""
    with own_ovs.bridge() as made:
        yield made


def _set(bridge: DummyBridge, **external_ids: str) -> None:
    pairs = [f'external_ids:{key.replace("_", "-")}="{value}"' for key, value in external_ids.items()]
    bridge.ovs.vsctl("set", "Open_vSwitch", ".", *pairs)


def _chassis(bridge: DummyBridge) -> None:
    ids = {"ovn_bridge": "ovsbr1", "ovn_encap_type": "geneve", "ovn_encap_ip": "192.0.2.1", "system_id": "hv1"}
    _set(bridge, ovn_remote="tcp:192.0.2.9:6642", **ids)


def test_commands_refuse_a_bridge_of_ovn(bridge: DummyBridge, config: Path, on_bridge: Command) -> None:
    _chassis(bridge)
    before = bridge.ovs.vsctl("list", "Bridge", "ovsbr1")
    for words in (
        "plan",
        "apply --yes --force",
        "apply --dry-run",
        "remove --yes --force",
        "agent --once",
        "controller --attach --listen 127.0.0.1:0",
    ):
        command, *options = words.split()
        said = on_bridge(command, config, *options)
        assert said.status == 1, words
        assert "bridge ovsbr1 belongs to OVN (external_ids:ovn-remote is set, and ovsbr1 is its ovn-bridge)" in said.err
    refused = on_bridge("apply", config, "--yes", "-o", "json")
    assert json.loads(refused.err.splitlines()[-1])["error"]["code"] == "bridge_of_ovn"
    rows = json.loads(on_bridge("doctor", config, "-o", "json").out)["checks"]
    assert [row["state"] for row in rows if row["check"] == "OVN here"] == ["wrong"]
    assert bridge.dump_flows() == []
    assert bridge.ovs.vsctl("list", "Bridge", "ovsbr1") == before


def test_an_agent_stops_writing_when_the_bridge_becomes_that_of_ovn(
    bridge: DummyBridge, config: Path, on_bridge: Command
) -> None:
    """ovn-controller would delete the flows again and again, and the agent would install them each time."""
    assert on_bridge("agent", config, "--once").status == 0
    _chassis(bridge)
    bridge.ofctl("del-flows")
    assert on_bridge("agent", config, "--once").status == 1
    assert bridge.dump_flows() == []


def test_a_bridge_that_ovn_shares_is_used_with_a_warning(bridge: DummyBridge, config: Path, on_bridge: Command) -> None:
    _set(bridge, ovn_remote="tcp:192.0.2.9:6642", ovn_bridge_mappings="physnet1:ovsbr1")
    text = "OVN uses ovsbr1 too (ovn-bridge-mappings maps physnet1 to it)"
    assert text in on_bridge("plan", config).out
    applied = on_bridge("apply", config, "--yes")
    assert applied.status == 0
    assert text in applied.out
    planned = json.loads(on_bridge("plan", config, "-o", "json").out)
    assert (planned["empty"], planned["shared_with_ovn"]) == (True, "ovn-bridge-mappings maps physnet1 to it")
    assert "OVN uses the bridge too" in on_bridge("agent", config, "--once").err


def test_remove_from_all_bridges_leaves_those_of_ovn_alone(bridge: DummyBridge, on_bridge: Command) -> None:
    _chassis(bridge)
    theirs = "cookie=0x786f010101000001, priority=7,ip actions=drop"
    bridge.add_flows(theirs.replace(", ", ",") + "\n")
    said = on_bridge("remove", "--all", "--yes")
    assert (said.status, len(bridge.dump_flows())) == (0, 1)
