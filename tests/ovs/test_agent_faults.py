"""The agent on a real Open vSwitch that is killed, or whose bridge or ports are deleted."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from tests.ovs.agents import running_agent
from tests.ovs.dummy import DummyBridge, DummyOvs
from tests.patience import eventually
from xenoovs.agent.daemon import Agent
from xenoovs.lab.private_ovs import Datapath, start_database, start_vswitchd
from xenoovs.show.conditions import is_as_desired, troubles
from xenoovs.switch.process import try_run

FLOWS = 8


def flows(bridge: DummyBridge) -> list[str]:
    """None while there is nobody to ask."""
    argv = ["ovs-ofctl", "-O", "OpenFlow14", "--names", "--no-stats", "dump-flows", bridge.management]
    said = try_run(argv, env=bridge.ovs.env, timeout_s=10)
    return sorted(line.strip() for line in said.stdout.splitlines() if "_FLOW reply" not in line)


def test_flows_come_back_on_a_bridge_made_anew(dummy_ovs: DummyOvs, config: Path) -> None:
    with dummy_ovs.bridge() as bridge, running_agent(config, dummy_ovs.ovs.directory) as agent:
        eventually(lambda: len(flows(bridge)) == FLOWS, "flows at first")
        before = flows(bridge)
        dummy_ovs.ovs.vsctl("del-br", bridge.name)
        eventually(lambda: agent.state.round.error != "", "its loss is noticed")
        with dummy_ovs.bridge() as anew:
            eventually(lambda: flows(anew) == before, "flows on the new bridge")
        assert agent.state.round.foreign == 0


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


def test_status_names_a_database_that_is_away_at_once_and_both_daemons_come_back(
    own_ovs: DummyOvs, config: Path
) -> None:
    with own_ovs.bridge() as bridge, running_agent(config, own_ovs.ovs.directory, resync_s=_LONG_S) as agent:
        eventually(lambda: bool(agent.ports()) and is_as_desired(agent.snapshot()), "all is well")
        before = flows(bridge)
        vswitchd, database = own_ovs.ovs.pids()
        os.kill(database, signal.SIGKILL)
        eventually(lambda: agent.ports() is None, "the loss is noticed")
        away = agent.snapshot()
        assert not is_as_desired(away)
        assert [words.split(":")[0] for words, _ in troubles(away)] == ["port and link state unavailable"]
        os.kill(vswitchd, signal.SIGKILL)
        time.sleep(0.5)
        start_database(own_ovs.ovs)
        start_vswitchd(own_ovs.ovs, datapath=Datapath.DUMMY)
        eventually(lambda: flows(bridge) == before, "flows after both came back")
        eventually(lambda: is_as_desired(agent.snapshot()), "all is well again")
        assert (agent.state.round.foreign, texts(agent).count(_AGAIN)) == (0, 1)
