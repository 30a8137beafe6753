"""The agent on a real ovs-vswitchd that is killed, whose bridge is deleted, whose flows others change."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.command_line import SMALL_CONFIG, finish, start
from tests.ovs.agents import running_agent
from tests.ovs.dummy import DummyBridge, DummyOvs
from tests.patience import eventually
from xenoovs.lab.private_ovs import Datapath, start_vswitchd
from xenoovs.switch.process import try_run

pytestmark = pytest.mark.ovs

FLOWS = 8


def flows(bridge: DummyBridge) -> list[str]:
    """None while there is nobody to ask."""
    argv = ["ovs-ofctl", "-O", "OpenFlow14", "--names", "--no-stats", "dump-flows", bridge.management]
    said = try_run(argv, env=bridge.ovs.env, timeout_s=10)
    return sorted(line.strip() for line in said.stdout.splitlines() if "_FLOW reply" not in line)


def test_flows_come_back_after_a_restart_of_the_switch(own_ovs: DummyOvs, config: Path) -> None:
    with own_ovs.bridge() as bridge, running_agent(config, own_ovs.ovs.directory) as agent:
        eventually(lambda: len(flows(bridge)) == FLOWS, "flows at first")
        before = flows(bridge)
        for rounds in (2, 3):
            os.kill(own_ovs.ovs.pids()[0], signal.SIGKILL)
            eventually(lambda: agent.report.last_error != "", "its end is noticed")
            start_vswitchd(own_ovs.ovs, datapath=Datapath.DUMMY)
            eventually(lambda: flows(bridge) == before, "flows after the restart")
            eventually(lambda rounds=rounds: agent.rounds == rounds, "one round for one restart")  # type: ignore[misc]
        assert agent.foreign == 0


def test_a_switch_that_is_killed_is_told_without_any_other_reason_for_a_round(own_ovs: DummyOvs, config: Path) -> None:
    """Its sockets stay in the file system, and the next comparison may be an hour away."""
    with own_ovs.bridge(), running_agent(config, own_ovs.ovs.directory, resync_s=3600.0) as agent:
        eventually(lambda: agent.rounds == 1, "flows at first")
        os.kill(own_ovs.ovs.pids()[0], signal.SIGKILL)
        eventually(lambda: "is ovs-vswitchd running?" in agent.report.last_error, "the agent says so")
        start_vswitchd(own_ovs.ovs, datapath=Datapath.DUMMY)
        eventually(lambda: agent.rounds == 2, "flows after the restart")
        eventually(lambda: agent.report.last_error == "", "nothing is wrong any more")


def test_flows_come_back_on_a_bridge_made_anew(dummy_ovs: DummyOvs, config: Path) -> None:
    with dummy_ovs.bridge() as bridge, running_agent(config, dummy_ovs.ovs.directory) as agent:
        eventually(lambda: len(flows(bridge)) == FLOWS, "flows at first")
        before = flows(bridge)
        dummy_ovs.ovs.vsctl("del-br", bridge.name)
        eventually(lambda: agent.report.last_error != "", "its loss is noticed")
        with dummy_ovs.bridge() as anew:
            eventually(lambda: flows(anew) == before, "flows on the new bridge")
        assert agent.foreign == 0


def test_what_others_change_is_put_right_and_counted(bridge: DummyBridge, config: Path) -> None:
    with running_agent(config, bridge.ovs.directory, resync_s=0.3) as agent:
        eventually(lambda: len(flows(bridge)) == FLOWS, "flows at first")
        before = flows(bridge)
        bridge.ofctl("del-flows", "table=1,ip")
        eventually(lambda: flows(bridge) == before, "flows of table 1")
        eventually(lambda: agent.foreign == 5, "five flows counted")
        bridge.add_flows("cookie=0x5,table=0,priority=5000,arp actions=NORMAL\n")
        compared_s = agent.report.last_round_s
        eventually(lambda: agent.report.last_round_s != compared_s, "another comparison")
        assert agent.foreign == 5
        assert len(flows(bridge)) == FLOWS + 1


def test_a_config_that_is_spoiled_changes_no_flow(bridge: DummyBridge, config: Path) -> None:
    with running_agent(config, bridge.ovs.directory) as agent:
        eventually(lambda: len(flows(bridge)) == FLOWS, "flows at first")
        before = flows(bridge)

        def is_refused(times: int) -> bool:
            return sum(event.text.endswith("the last good one stays") for event in agent.events.since(0)) == times

        for number, spoiled in enumerate(("{[", "", SMALL_CONFIG.replace("p1", "p7")), 1):
            config.write_text(spoiled)
            eventually(partial(is_refused, number), "it is read")
            assert flows(bridge) == before
        config.unlink()
        config.mkdir()
        eventually(partial(is_refused, 4), "it is no file any more")
        assert flows(bridge) == before
        config.rmdir()
        config.write_text(SMALL_CONFIG.replace("weight: 30", "weight: 50"))
        eventually(lambda: flows(bridge) != before, "the weights of the good config")
        eventually(lambda: agent.rounds == 2, "the end of the second round")


@pytest.fixture
def agent_process(bridge: DummyBridge, config: Path) -> Iterator[subprocess.Popen[str]]:
    process = start("agent", config, "--db", bridge.ovs.db, "--log", "json")
    yield process
    process.kill()
    process.communicate()


def test_sigterm_ends_it_and_leaves_the_flows(bridge: DummyBridge, agent_process: subprocess.Popen[str]) -> None:
    eventually(lambda: len(flows(bridge)) == FLOWS, "flows at first")
    agent_process.send_signal(signal.SIGTERM)
    said = finish(agent_process)
    assert said.status == 0
    assert "Traceback" not in said.err
    assert '"event": "stopping; the flows stay"' in said.err
    assert len(flows(bridge)) == FLOWS


def test_once(bridge: DummyBridge, config: Path) -> None:
    assert finish(start("agent", config, "--db", bridge.ovs.db, "--once")).status == 0
    assert len(flows(bridge)) == FLOWS


def test_a_bad_config_at_the_start_is_one_message(bridge: DummyBridge, config: Path) -> None:
    config.write_text("")
    said = finish(start("agent", config, "--db", bridge.ovs.db))
    assert said.status == 1
    assert "the file is empty" in said.err
    assert "Traceback" not in said.err
