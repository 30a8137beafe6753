"""Bundles that a real Open vSwitch refuses: the reason is told and nothing is changed."""

from __future__ import annotations

import pytest

from tests.ovs.dummy import DummyBridge
from tests.ovs.ways import Way
from xenoovs.errors import BundleRejected, OpenFlowVersionDisabled
from xenoovs.openflow.flow import Bundle, Command, FlowMod
from xenoovs.openflow.text import parse_flow
from xenoovs.switch.api import Switch

pytestmark = pytest.mark.ovs

_GOOD = "cookie=0x786f000000000001, priority=7,ip actions=output:p1"


@pytest.fixture
def switch(way: Way, bridge: DummyBridge) -> Switch:
    return way.switch(bridge.ovs)


def _apply(switch: Switch, *flows: str) -> None:
    mods = tuple(FlowMod(Command.ADD, parse_flow(flow)) for flow in flows)
    switch.apply("ovsbr1", Bundle(mods))


@pytest.mark.parametrize(
    ("flow", "error", "message"),
    [
        ("priority=1 actions=group:7", "OFPBAC_BAD_OUT_GROUP", "ADD priority=1 actions=group:7"),
        ("table=254, priority=1 actions=drop", "OFPBRC_EPERM", "ADD table:254 priority=1 actions=drop"),
        ("priority=1 actions=output:nosuch", None, "nosuch: output to unknown port"),
        ("priority=1,in_port=nosuch actions=drop", None, "nosuch: invalid or unknown port for in_port"),
    ],
)
def test_reason_is_told_and_table_is_unchanged(
    switch: Switch, bridge: DummyBridge, flow: str, error: str | None, message: str
) -> None:
    _apply(switch, _GOOD)
    with pytest.raises(BundleRejected) as caught:
        _apply(switch, "cookie=0x786f000000000001, priority=3 actions=drop", flow, "priority=4,ip actions=drop")
    assert caught.value.error == error
    assert message in caught.value.message
    assert bridge.dump_flows() == [_GOOD]


@pytest.mark.parametrize(
    ("flow", "by_text", "by_bytes"),
    [
        ("priority=1 actions=meter:7", "OFPMMFC_INVALID_METER on: ADD priority=1 actions=meter:7", "meter:7 cannot be"),
        ("priority=1,nosuch=1 actions=drop", "unknown keyword nosuch", "nosuch=1 cannot be sent by OpenFlow 1.4"),
    ],
)
def test_what_is_only_known_as_text(
    way: Way, switch: Switch, bridge: DummyBridge, *, flow: str, by_text: str, by_bytes: str
) -> None:
    with pytest.raises(BundleRejected) as caught:
        _apply(switch, _GOOD, flow)
    assert (by_text if way.server is None else by_bytes) in str(caught.value)
    assert bridge.dump_flows() == []


def test_thousands_of_refusals(switch: Switch, bridge: DummyBridge) -> None:
    """ovs-vswitchd stops reading while a hundred of its answers wait (OFCONN_REPLY_MAX of ofproto/connmgr.c)."""
    with pytest.raises(BundleRejected, match="OFPBAC_BAD_TYPE on: ADD priority=1 "):
        _apply(switch, *(f"priority={number} actions=wire:fffe000800000000" for number in range(1, 20_000)))
    assert bridge.dump_flows() == []


def test_a_full_table(switch: Switch, bridge: DummyBridge) -> None:
    limit = ["--", "--id=@t", "create", "Flow_Table", "flow_limit=2", "overflow_policy=refuse"]
    bridge.ovs.vsctl(*limit, "--", "set", "bridge", bridge.name, "flow_tables:0=@t")
    _apply(switch, _GOOD)
    with pytest.raises(BundleRejected, match="raise flow_limit") as caught:
        _apply(switch, *(f"cookie=0x786f000000000001, priority={i} actions=drop" for i in range(1, 4)))
    assert caught.value.error == "OFPFMFC_TABLE_FULL"
    assert bridge.dump_flows() == [_GOOD]


def test_a_bridge_without_bundles(switch: Switch, bridge: DummyBridge) -> None:
    bridge.ovs.vsctl("set", "bridge", bridge.name, "protocols=OpenFlow10,OpenFlow13")
    with pytest.raises(OpenFlowVersionDisabled) as caught:
        _apply(switch, _GOOD)
    assert caught.value.spoken == ("OpenFlow10", "OpenFlow13")
    remedy = str(caught.value).partition("`ovs-vsctl ")[2].rstrip("`")
    bridge.ovs.vsctl(*remedy.split())
    _apply(switch, _GOOD)
    assert bridge.dump_flows() == [_GOOD]
