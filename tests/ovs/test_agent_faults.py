"""The agent on a real Open vSwitch that is killed, whose bridge or ports are deleted, whose flows others change."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from pathlib import Path

from tests.command_line import SMALL_CONFIG, CommandLine, finish, running
from tests.ovs.agents import running_agent
from tests.ovs.dummy import DummyBridge, DummyOvs, kill_and_start_vswitchd
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


def test_flows_come_back_after_a_restart_of_the_switch(own_ovs: DummyOvs, config: Path) -> None:
    """Its sockets stay in the file system, and the next comparison may be an hour away."""
    with own_ovs.bridge() as bridge, running_agent(config, own_ovs.ovs.directory, resync_s=3600.0) as agent:
        eventually(lambda: len(flows(bridge)) == FLOWS, "flows at first")
        before = flows(bridge)
        for rounds in (2, 3):
            os.kill(own_ovs.ovs.pids()[0], signal.SIGKILL)
            eventually(lambda: "is ovs-vswitchd running?" in agent.state.round.error, "its end is noticed")
            start_vswitchd(own_ovs.ovs, datapath=Datapath.DUMMY)
            eventually(lambda: flows(bridge) == before, "flows after the restart")
            eventually(lambda rounds=rounds: agent.state.round.rounds == rounds, "one round for one restart")  # type: ignore[misc]
        eventually(lambda: agent.state.round.error == "", "nothing is wrong any more")
        assert agent.state.round.foreign == 0


def test_a_change_that_is_not_confirmed_is_rolled_back_on_a_switch_that_was_restarted(
    own_ovs: DummyOvs, config: Path
) -> None:
    """The checkpoint is from before the restart, which lost the flows of the service that did not change too."""
    second = SMALL_CONFIG.partition("services:\n")[2].replace("name: dns", "name: more").replace(".45", ".46")
    config.write_text(SMALL_CONFIG + second)
    with own_ovs.bridge() as bridge, running("agent", config, "--db", own_ovs.ovs.db, "--confirm", "15s") as process:
        eventually(lambda: len(flows(bridge)) > FLOWS, "flows at first")
        before = flows(bridge)
        config.write_text(SMALL_CONFIG.replace("weight: 70", "weight: 50") + second)
        process.send_signal(signal.SIGHUP)
        eventually(lambda: flows(bridge) != before, "flows of the change")
        kill_and_start_vswitchd(own_ovs.ovs)
        eventually(lambda: len(flows(bridge)) > 1, "flows after the restart")
        eventually(lambda: flows(bridge) == before, "the way back")
        process.send_signal(signal.SIGTERM)
        assert "the config was rolled back" in finish(process).err


def test_flows_come_back_on_a_bridge_made_anew(dummy_ovs: DummyOvs, config: Path) -> None:
    with dummy_ovs.bridge() as bridge, running_agent(config, dummy_ovs.ovs.directory) as agent:
        eventually(lambda: len(flows(bridge)) == FLOWS, "flows at first")
        before = flows(bridge)
        dummy_ovs.ovs.vsctl("del-br", bridge.name)
        eventually(lambda: agent.state.round.error != "", "its loss is noticed")
        with dummy_ovs.bridge() as anew:
            eventually(lambda: flows(anew) == before, "flows on the new bridge")
        assert agent.state.round.foreign == 0


def test_what_others_change_is_put_right_and_counted(bridge: DummyBridge, config: Path) -> None:
    with running_agent(config, bridge.ovs.directory, resync_s=0.3) as agent:
        eventually(lambda: len(flows(bridge)) == FLOWS, "flows at first")
        before = flows(bridge)
        bridge.ofctl("del-flows", "table=1,ip")
        eventually(lambda: flows(bridge) == before, "flows of table 1")
        eventually(lambda: agent.state.round.foreign == 5, "five flows counted")
        bridge.add_flows("cookie=0x5,table=0,priority=5000,arp actions=NORMAL\n")
        compared_s = agent.state.round.last_s
        eventually(lambda: agent.state.round.last_s != compared_s, "another comparison")
        assert agent.state.round.foreign == 5
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
        eventually(lambda: agent.state.round.rounds == 2, "the end of the second round")


def test_sigterm_ends_it_and_leaves_the_flows(bridge: DummyBridge, config: Path) -> None:
    with running("agent", config, "--db", bridge.ovs.db, "--log", "json") as process:
        eventually(lambda: len(flows(bridge)) == FLOWS, "flows at first")
        process.send_signal(signal.SIGTERM)
        said = finish(process)
    assert (said.status, "Traceback" in said.err) == (0, False)
    assert '"event": "stopping; the flows stay"' in said.err
    assert len(flows(bridge)) == FLOWS


MAIL = """\
defaults: {services: {vip: 10.3.10.46, protocol: tcp}, backends: {weight: 1}}
services:
  - name: mail
    ports: [25]
    backends:
      - {name: fips2, mac: 02:00:5e:10:00:02}
"""


def test_services_of_included_files_are_applied_and_followed(
    xenoovs: CommandLine, bridge: DummyBridge, tmp_path: Path
) -> None:
    folder, config = tmp_path / "conf.d", tmp_path / "my.yaml"
    folder.mkdir()
    config.write_text(SMALL_CONFIG.replace("services:", "include: conf.d\nservices:"))
    (folder / "mail.yaml").write_text(MAIL)
    assert xenoovs("apply", config, "--db", bridge.ovs.db, "--yes").status == 0
    assert len(flows(bridge)) == FLOWS + 2
    assert "tp_dst=25" in "".join(flows(bridge))

    with running_agent(config, bridge.ovs.directory) as agent:
        eventually(lambda: agent.state.round.last_s is not None, "a first round")
        assert agent.state.round.rounds == 0
        (folder / "mail.yaml").write_text(MAIL.replace("[25]", "[587]"))
        eventually(lambda: "tp_dst=587" in "".join(flows(bridge)), "the new port")
        (folder / "mail.yaml").write_text("services: [")
        eventually(lambda: "mail.yaml:2:1" in str(agent.config.problem), "the mistake")
        (folder / "mail.yaml").unlink()
        eventually(lambda: len(flows(bridge)) == FLOWS, "the service is gone")


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
