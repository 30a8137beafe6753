"""The agent, a real ovs-vswitchd, and an ovsdb-server that is killed; ports that go, come and lose their link."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.ovs.agents import running_agent
from tests.ovs.dummy import DummyBridge, DummyOvs
from tests.ovs.test_agent_faults import FLOWS, flows
from tests.patience import eventually
from xenoovs.agent.daemon import Agent
from xenoovs.lab.private_ovs import Datapath, start_database, start_vswitchd
from xenoovs.show.conditions import is_as_desired, troubles

pytestmark = pytest.mark.ovs

_LONG_S = 1000.0
"""A comparison that never comes: what is corrected is so because the database reported it."""

_AGAIN = "database of Open vSwitch answers again"


def texts(agent: Agent) -> list[str]:
    return [event.text for event in agent.events.since(0)]


def test_a_port_made_anew_gets_its_flows_at_once(bridge: DummyBridge, config: Path) -> None:
    with running_agent(config, bridge.ovs.directory, resync_s=_LONG_S) as agent:
        eventually(lambda: len(flows(bridge)) == FLOWS, "flows at first")
        before = flows(bridge)
        bridge.ovs.vsctl("del-port", "p1")
        eventually(lambda: "port removed from the bridge" in texts(agent), "news of the port")
        bridge.ovs.vsctl("add-port", "ovsbr1", "p1", "--", "set", "interface", "p1", "type=dummy", "ofport_request=9")
        eventually(lambda: flows(bridge) == before, "flows to the new port")
        assert "output:p1" in "".join(before)
        numbered = bridge.ofctl("dump-flows", "--no-names")
        assert "output:9" in numbered
        assert "output:2" not in numbered


def test_an_ovsdb_server_that_is_killed_stops_nothing(own_ovs: DummyOvs, config: Path) -> None:
    with own_ovs.bridge() as bridge, running_agent(config, own_ovs.ovs.directory, resync_s=0.3) as agent:
        eventually(lambda: len(flows(bridge)) == FLOWS, "flows at first")
        before = flows(bridge)
        eventually(lambda: bool(agent.ports()), "ports are known")
        for times in (1, 2):
            os.kill(own_ovs.ovs.pids()[1], signal.SIGKILL)
            eventually(lambda: agent.ports() is None, "the loss is noticed")
            # Until then ovs-vswitchd answers no OpenFlow either (bridge_run() of vswitchd/bridge.c: it lacks its lock).
            time.sleep(0.5)
            start_database(own_ovs.ovs)
            bridge.ofctl("del-flows", "table=1,ip")
            eventually(lambda: flows(bridge) == before, "flows that others deleted")
            eventually(lambda: bool(agent.ports()), "ports are known again")
            eventually(lambda times=times: texts(agent).count(_AGAIN) == times, "it is logged once")  # type: ignore[misc]


def test_status_names_a_database_that_is_away(own_ovs: DummyOvs, config: Path) -> None:
    """At once, and long before the next comparison."""
    with own_ovs.bridge(), running_agent(config, own_ovs.ovs.directory, resync_s=_LONG_S) as agent:
        eventually(lambda: bool(agent.ports()) and is_as_desired(agent.snapshot()), "all is well")
        os.kill(own_ovs.ovs.pids()[1], signal.SIGKILL)
        eventually(lambda: agent.ports() is None, "the loss is noticed")
        away = agent.snapshot()
        assert not is_as_desired(away)
        assert [words.split(":")[0] for words, _ in troubles(away)] == ["port and link state unavailable"]
        start_database(own_ovs.ovs)
        eventually(lambda: is_as_desired(agent.snapshot()), "all is well again")


def test_both_daemons_killed(own_ovs: DummyOvs, config: Path) -> None:
    with own_ovs.bridge() as bridge, running_agent(config, own_ovs.ovs.directory, resync_s=_LONG_S):
        eventually(lambda: len(flows(bridge)) == FLOWS, "flows at first")
        before = flows(bridge)
        for pid in own_ovs.ovs.pids():
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.5)
        start_database(own_ovs.ovs)
        start_vswitchd(own_ovs.ovs, datapath=Datapath.DUMMY)
        eventually(lambda: flows(bridge) == before, "flows after both came back")
