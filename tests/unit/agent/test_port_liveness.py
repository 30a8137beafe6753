"""A port whose BFD session has gone down carries nothing: when that counts, and for which configs."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address
from unittest.mock import Mock

import pytest

from tests.switch_tunnels import GENEVE, behind_tunnels
from xenoovs.agent.bridge_watch import with_earlier_sessions
from xenoovs.agent.probe.target import ProbeResult
from xenoovs.agent.state import (
    AgentState,
    BridgePorts,
    ConfigFollowed,
    PortsChanged,
    ProbeAt,
    Probed,
    Tick,
    after,
    step,
)
from xenoovs.controller.server import port_states
from xenoovs.datapath.database import PortState
from xenoovs.model.balancer import Health, ProbeKind
from xenoovs.model.tunnel import Bfd, TunnelPorts
from xenoovs.openflow.wire.message import Port

WATCHED = behind_tunnels(replace(GENEVE, ports=TunnelPorts.EACH, bfd=Bfd()))
FIRST, SECOND = sorted(WATCHED.bfd_ports)
UP = {"state": "up", "forwarding": "true", "flap_count": "1", "diagnostic": "No Diagnostic"}
GONE = {"state": "down", "forwarding": "false", "flap_count": "2", "diagnostic": "Control Detection Time Expired"}
NEVER = {"state": "down", "forwarding": "false", "flap_count": "0", "diagnostic": "No Diagnostic"}
FAR_END = UP | {"forwarding": "false", "flap_count": "2", "remote_diagnostic": "Concatenated Path Down"}


def ports(**status: dict[str, str]) -> dict[str, dict[str, PortState]]:
    named = {"first": FIRST, "second": SECOND}
    states = (PortState(named[name], 1, "geneve", bfd_status=found) for name, found in status.items())
    return {"ovsbr1": {state.name: state for state in states}}


def ejected(seen: BridgePorts, *, watched: bool = True) -> frozenset[str]:
    balancer = WATCHED if watched else behind_tunnels(replace(GENEVE, ports=TunnelPorts.EACH))
    state = after(AgentState(balancer, balancer), seen, Tick(), now_s=0.0)
    return state.ejected.get("web", frozenset())


@pytest.mark.parametrize(
    ("first", "second", "out"),
    [(UP, UP, ""), (GONE, UP, "b1"), (UP, FAR_END, "b2"), (NEVER, UP, ""), ({}, UP, ""), (GONE, GONE, "")],
    ids=["up", "gone", "the other end cannot forward", "never up", "no session", "all gone: the fault is here"],
)
def test_which_backends_are_left_for_a_config_with_bfd(first: dict[str, str], second: dict[str, str], out: str) -> None:
    seen = ports(first=first, second=second)
    assert ejected(BridgePorts(seen)) == ejected(BridgePorts(seen, "the database does not answer")) == {*out.split()}
    assert ejected(BridgePorts(seen), watched=False) == frozenset()


def test_a_dead_remote_stays_dead_when_open_vswitch_restarts() -> None:
    """Its new session was never up. One that is up counts again, and so does the next outage of it."""
    dead = ports(first=GONE, second=UP)
    restarted = with_earlier_sessions(dead, ports(first=NEVER, second=NEVER))
    assert ejected(BridgePorts(restarted)) == {"b1"}
    back = with_earlier_sessions(restarted, ports(first=UP, second=UP))
    assert ejected(BridgePorts(back)) == frozenset()
    assert with_earlier_sessions(back, dead) == dead


@pytest.mark.parametrize(("state", "out"), [(0b100, ""), (0b000, "b1"), (0b001, "b1")], ids=["live", "bfd", "link"])
def test_a_controller_knows_by_the_bit_that_groups_go_by(state: int, out: str) -> None:
    seen = port_states(Mock(ports=(Port(1, FIRST, 1, state=state), Port(2, SECOND, 2, state=0b100))))
    assert seen is not None
    assert ejected(BridgePorts({"ovsbr1": seen})) == {*out.split()}


def test_a_port_without_link_and_one_without_bfd_have_their_own_reasons() -> None:
    seen = BridgePorts(ports(first=GONE, second=UP))
    state = after(AgentState(WATCHED, WATCHED), seen, PortsChanged(frozenset({SECOND})), now_s=0.0)
    assert [state.why_dead(port) for port in sorted(state.dead_ports)] == [
        f"BFD of port {FIRST} is down",
        f"port {SECOND} has no link",
    ]


def test_bug_a_probe_that_was_sent_into_a_dead_port_ejected_its_backend_once_more() -> None:
    """It failed when the port was live again, so that clients came back, left and came back."""
    (watched,) = WATCHED.services
    backends = tuple(replace(each, address=IPv4Address(n)) for n, each in enumerate(watched.backends, 0xC0000201))
    asked = replace(watched, health=Health(ProbeKind.TCP, 80, fall=1), backends=backends)
    balancer = replace(WATCHED, services=(asked,))
    dead, live = (BridgePorts(ports(first=first, second=UP)) for first in (GONE, UP))
    state = after(AgentState(balancer, balancer), ConfigFollowed(balancer), live, now_s=0)
    check = state.tracker.checks.by_backend["web", "b1"]
    ok, failed = (ProbeResult(ok=good, latency_s=0.1, reason="") for good in (True, False))
    state = after(state, Probed(check, ok, 0.0), dead, now_s=1.0)
    state = after(state, live, now_s=2.0)
    state, effects = step(state, Probed(check, failed, 1.5), 2.5)
    assert effects == (ProbeAt(check, 2.5),)
    assert after(state, Tick(), now_s=2.5).ejected == {}
    assert after(state, Probed(check, failed, 2.5), Tick(), now_s=3.0).ejected == {"web": {"b1"}}
