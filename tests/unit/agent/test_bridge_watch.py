"""Which changes of the bridge and its ports are logged, and which trigger a round."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit import balancer as small
from xenoovs.agent.bridge_watch import PortEvent, port_events
from xenoovs.datapath.database import PortState
from xenoovs.switch.ovsdb import Ports

BALANCER = small.balancer(small.service(small.claim(), 1, 1))
P0, P1 = PortState("p0", 1, "system", link_up=True), PortState("p1", 2, "system", link_up=True)
BRIDGE = BALANCER.uplinks.bridge
ALL: Ports = {BRIDGE: {"p0": P0, "p1": P1}, "other": {}}


def with_p1(port: PortState | None) -> Ports:
    return {BRIDGE: {"p0": P0, **({} if port is None else {"p1": port})}}


def test_the_first_state_logs_only_problems() -> None:
    assert port_events(None, ALL, BALANCER) == ()
    assert [n.text for n in port_events(None, with_p1(replace(P1, link_up=False)), BALANCER)] == ["link down"]


@pytest.mark.parametrize(
    ("after", "text", "is_bad", "needs_round"),
    [
        (replace(P1, link_up=False), "link down", True, False),
        (replace(P1, ofport=7), "port number changed", False, True),
        (replace(P1, options={"remote_ip": "192.0.2.9"}), "port has other options", False, True),
        (replace(P1, ofport=None, error="no device"), "port does not work: no device", True, True),
        (None, "port removed from the bridge", True, True),
    ],
)
def test_changes_of_a_port(after: PortState | None, text: str, is_bad: bool, needs_round: bool) -> None:
    assert port_events(ALL, with_p1(after), BALANCER) == (PortEvent(text, "p1", is_bad, needs_round),)


def test_a_port_comes_back() -> None:
    assert port_events(with_p1(None), ALL, BALANCER)[0].text == "port added to the bridge"
    assert port_events(with_p1(replace(P1, link_up=False)), ALL, BALANCER)[0].text == "link up"


def test_the_bridge_goes_and_comes() -> None:
    assert port_events(ALL, {}, BALANCER) == (PortEvent("bridge removed", "", is_bad=True, needs_round=False),)
    assert port_events({}, ALL, BALANCER) == (PortEvent("bridge added", "", is_bad=False, needs_round=True),)
    assert port_events({}, {}, BALANCER) == ()


def test_foreign_ports_are_ignored() -> None:
    more: Ports = {**ALL, BRIDGE: {**ALL[BRIDGE], "vnet9": PortState("vnet9", 9, "system", link_up=False)}}
    assert port_events(ALL, more, BALANCER) == ()
