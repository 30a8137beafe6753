"""A planned restart of a real Open vSwitch: everybody's flows and groups are there again, and nobody waits for ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.command_line import finish, start
from tests.ovs.dummy import DummyBridge, DummyOvs
from tests.patience import eventually
from xenoovs.errors import CommandFailed, FlowsNotRestored
from xenoovs.lab.private_ovs import Datapath, start_vswitchd, stop_process
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.management import ManagementSwitch
from xenoovs.switch.planned_restart import PlannedRestart, planned_restart

pytestmark = pytest.mark.ovs

FLOWS = """\
cookie=0x786f010000000001,table=0,priority=900,ip,in_port=p0 actions=resubmit(,1)
cookie=0x786f010100000001,table=1,priority=999,ip,nw_src=0.0.0.0/0.0.0.1 actions=output:p1
cookie=0x5,table=0,priority=7,arp,idle_timeout=3600 actions=group:4
cookie=0,table=0,priority=0 actions=NORMAL
table=3,priority=1,tcp,tcp_flags=+syn actions=learn(table=4,hard_timeout=60,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[]),output:p1
"""
GROUP = "group_id=4,type=all,bucket=bucket_id:0,actions=output:p0,bucket=bucket_id:1,actions=output:p1"


def restart(ovs: DummyOvs) -> None:
    stop_process(ovs.ovs.pids()[0])
    start_vswitchd(ovs.ovs, datapath=Datapath.DUMMY)


def filled(bridge: DummyBridge) -> list[str]:
    bridge.ofctl("add-group", GROUP)
    bridge.add_flows(FLOWS)
    return everything(bridge)


def everything(bridge: DummyBridge) -> list[str]:
    groups = [line.strip() for line in bridge.ofctl("dump-groups").splitlines() if "group_id" in line]
    return sorted([*bridge.dump_flows(version="OpenFlow14"), *groups])


def waits(ovs: DummyOvs) -> bool:
    return "flow-restore-wait" in ovs.ovs.vsctl("get", "Open_vSwitch", ".", "other_config")


def planned(ovs: DummyOvs, directory: Path) -> PlannedRestart:
    endpoint = Endpoint(ovs.ovs.db, ovs.ovs.directory)
    return planned_restart(ManagementSwitch(endpoint), endpoint, lambda: restart(ovs), directory=directory)


def test_everything_is_there_again(own_ovs: DummyOvs, tmp_path: Path) -> None:
    with own_ovs.bridge() as bridge, own_ovs.bridge("ovsbr2", ["p2"]) as other:
        before, default = filled(bridge), everything(other)
        done = planned(own_ovs, tmp_path)
        assert everything(bridge) == before
        assert len(before) == 6
        assert everything(other) == default
        assert done.flows == {"ovsbr1": 5, "ovsbr2": len(default)}
        assert done.groups == {"ovsbr1": 1, "ovsbr2": 0}
        assert not waits(own_ovs)
        assert not list(tmp_path.glob("*.bundle"))


def test_it_ends_when_ovs_vswitchd_has_seen_that_it_need_not_wait(own_ovs: DummyOvs, tmp_path: Path) -> None:
    """It ended when the database had it: for a moment ovs-vswitchd still took no packet."""
    with own_ovs.bridge():
        before = own_ovs.ovs.vsctl("get", "Open_vSwitch", ".", "next_cfg")
        planned(own_ovs, tmp_path)
        asked, done = own_ovs.ovs.vsctl("get", "Open_vSwitch", ".", "next_cfg", "cur_cfg").split()
    assert int(done) == int(asked) == int(before) + 1


def test_a_port_with_another_number_gets_its_flows(own_ovs: DummyOvs, tmp_path: Path) -> None:
    def renumber() -> None:
        stop_process(own_ovs.ovs.pids()[0])
        own_ovs.ovs.vsctl("--no-wait", "set", "interface", "p1", "ofport_request=77")
        start_vswitchd(own_ovs.ovs, datapath=Datapath.DUMMY)

    with own_ovs.bridge() as bridge:
        before = filled(bridge)
        endpoint = Endpoint(own_ovs.ovs.db, own_ovs.ovs.directory)
        planned_restart(ManagementSwitch(endpoint), endpoint, renumber, directory=tmp_path)
        assert everything(bridge) == before
        assert "output:77" in bridge.ofctl("dump-flows", "--no-names")


def test_a_restart_that_fails_leaves_nothing_behind(own_ovs: DummyOvs, tmp_path: Path) -> None:
    def refuse() -> None:
        raise CommandFailed(argv=("systemctl",), exit_code=1, stdout="", stderr="no")

    with own_ovs.bridge() as bridge:
        before = filled(bridge)
        endpoint = Endpoint(own_ovs.ovs.db, own_ovs.ovs.directory)
        with pytest.raises(CommandFailed):
            planned_restart(ManagementSwitch(endpoint), endpoint, refuse, directory=tmp_path)
        assert everything(bridge) == before
        assert not waits(own_ovs)


def test_flows_that_cannot_be_put_back_are_kept_in_a_file(own_ovs: DummyOvs, tmp_path: Path) -> None:
    def without_a_port() -> None:
        own_ovs.ovs.vsctl("del-port", "p1")
        restart(own_ovs)

    with own_ovs.bridge() as bridge:
        filled(bridge)
        endpoint = Endpoint(own_ovs.ovs.db, own_ovs.ovs.directory)
        with pytest.raises(FlowsNotRestored) as told:
            planned_restart(ManagementSwitch(endpoint), endpoint, without_a_port, directory=tmp_path, timeout_s=3)
        (file,) = tmp_path.glob("*.bundle")
        assert f"`ovs-ofctl -O OpenFlow14 bundle ovsbr1 {file}`" in str(told.value)
        assert file.stat().st_mode & 0o777 == 0o600
        assert "flow add" in file.read_text()
        assert not waits(own_ovs)


HANGS = """
import sys, time
from pathlib import Path
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.management import ManagementSwitch
from xenoovs.switch.planned_restart import planned_restart
directory = Path(sys.argv[1])
endpoint = Endpoint(f"unix:{directory}/db.sock", directory)
planned_restart(ManagementSwitch(endpoint), endpoint, lambda: time.sleep(60), directory=directory)
"""


def test_killed_in_the_middle_it_leaves_nobody_waiting(own_ovs: DummyOvs) -> None:
    with own_ovs.bridge() as bridge:
        before = filled(bridge)
        process = subprocess.Popen([sys.executable, "-c", HANGS, str(own_ovs.ovs.directory)])
        eventually(lambda: waits(own_ovs), "flow-restore-wait is set")
        time.sleep(0.2)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        eventually(lambda: not waits(own_ovs), "the guard takes it away")
        assert everything(bridge) == before


def test_one_that_systemd_does_not_run_is_left_alone(bridge: DummyBridge) -> None:
    before = filled(bridge)
    said = finish(start("restart-ovs", "--db", bridge.ovs.db, "--yes"))
    assert said.status == 1
    assert "is no service of this host and was not restarted" in said.err
    assert everything(bridge) == before
    bridge.ofctl("del-groups")
