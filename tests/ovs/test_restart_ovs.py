"""A planned restart of a real Open vSwitch: everybody's flows and groups are there again, and nobody waits for ever.

Also `doctor --set offload=on|off`, which restarts it, whoever is killed meanwhile.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command_line import SMALL_CONFIG, CommandLine, finish, start
from tests.ovs.dummy import DummyBridge, DummyOvs
from tests.ovs.lab_support import lab_name, running_lab
from tests.patience import PATIENCE_S, eventually
from xenoovs.errors import CommandFailed, FlowsNotRestored, SwitchError
from xenoovs.lab.lab import DIRECTORY_VARIABLE, Lab
from xenoovs.lab.private_ovs import Datapath, start_vswitchd, stop_process
from xenoovs.model.load import parse_config
from xenoovs.openflow.text import render_flow
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.management import ManagementSwitch
from xenoovs.switch.offload_setting import OffloadSwitch
from xenoovs.switch.planned_restart import PlannedRestart, planned_restart

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


Order = Callable[[DummyOvs], None]


def endpoint(ovs: DummyOvs) -> Endpoint:
    return Endpoint(ovs.ovs.db, ovs.ovs.directory)


def planned(ovs: DummyOvs, directory: Path, order: Order = restart, timeout_s: float = 60.0) -> PlannedRestart:
    where = endpoint(ovs)
    return planned_restart(ManagementSwitch(where), where, lambda: order(ovs), directory=directory, timeout_s=timeout_s)


def change(ovs: DummyOvs, directory: Path, *, wanted: bool, order: Order = restart) -> PlannedRestart:
    """Of the setting of hardware offload."""

    def restarted(set_it: Callable[[], None]) -> PlannedRestart:
        def both(ovs: DummyOvs) -> None:
            set_it()
            order(ovs)

        return planned(ovs, directory, both)

    return OffloadSwitch(endpoint(ovs)).change(wanted=wanted, restart=restarted)


def checks(xenoovs: CommandLine, ovs: DummyOvs, name: str) -> list[dict[str, str]]:
    """The rows of `doctor` about one thing."""
    rows = json.loads(xenoovs("doctor", "--db", ovs.ovs.db, "-o", "json").out)["checks"]
    return [row for row in rows if row["check"] == name]


def test_everything_is_there_again_also_to_a_port_with_another_number(own_ovs: DummyOvs, tmp_path: Path) -> None:
    def renumber(ovs: DummyOvs) -> None:
        stop_process(ovs.ovs.pids()[0])
        ovs.ovs.vsctl("--no-wait", "set", "interface", "p1", "ofport_request=77")
        start_vswitchd(ovs.ovs, datapath=Datapath.DUMMY)

    with own_ovs.bridge() as bridge, own_ovs.bridge("ovsbr2", ["p2"]) as other:
        before, default = filled(bridge), everything(other)
        asked = own_ovs.ovs.vsctl("get", "Open_vSwitch", ".", "next_cfg")
        done = planned(own_ovs, tmp_path, renumber)
        # Bug: it ended when the database had it: for a moment ovs-vswitchd still took no packet.
        seen = own_ovs.ovs.vsctl("get", "Open_vSwitch", ".", "next_cfg", "cur_cfg").split()
        assert {*map(int, seen)} == {int(asked) + 1}
        assert everything(bridge) == before
        assert len(before) == 6
        assert "output:77" in bridge.ofctl("dump-flows", "--no-names")
        assert everything(other) == default
        assert done.flows == {"ovsbr1": 5, "ovsbr2": len(default)}
        assert done.groups == {"ovsbr1": 1, "ovsbr2": 0}
        assert not waits(own_ovs)
        assert not list(tmp_path.glob("*.bundle"))


def test_flows_that_cannot_be_put_back_are_kept_in_a_file(own_ovs: DummyOvs, tmp_path: Path) -> None:
    def without_a_port(ovs: DummyOvs) -> None:
        ovs.ovs.vsctl("del-port", "p1")
        restart(ovs)

    with own_ovs.bridge() as bridge:
        filled(bridge)
        with pytest.raises(FlowsNotRestored) as told:
            planned(own_ovs, tmp_path, without_a_port, timeout_s=3)
        (file,) = tmp_path.glob("*.bundle")
        assert f"`ovs-ofctl -O OpenFlow14 bundle ovsbr1 {file}`" in str(told.value)
        assert file.stat().st_mode & 0o777 == 0o600
        assert "flow add" in file.read_text()
        assert not waits(own_ovs)


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killed(work: Callable[[], object]) -> None:
    """Work in a process that kills itself meanwhile."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


def test_killed_in_the_middle_it_leaves_nobody_waiting(own_ovs: DummyOvs, tmp_path: Path) -> None:
    with own_ovs.bridge() as bridge:
        before = filled(bridge)
        killed(lambda: planned(own_ovs, tmp_path, lambda ovs: die(ovs) if waits(ovs) else None))
        eventually(lambda: not waits(own_ovs), "the guard takes it away")
        assert everything(bridge) == before


@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_beside_the_restart_it_is_reported_and_finished(
    own_ovs: DummyOvs, xenoovs: CommandLine, moment: str
) -> None:
    directory = own_ovs.ovs.directory
    with own_ovs.bridge():
        change(own_ovs, directory, wanted=True)

        def restart_and_die(ovs: DummyOvs) -> None:
            if moment == "after":
                restart(ovs)
            die()

        killed(lambda: change(own_ovs, directory, wanted=False, order=restart_and_die))
        assert 'hw-offload="false"' in own_ovs.ovs.vsctl("get", "Open_vSwitch", ".", "other_config")
        assert [row["seen"] for row in checks(xenoovs, own_ovs, "leftovers")] == [
            "other_config:hw-offload, changed by a `doctor --set` that was killed before its end"
        ]
        assert OffloadSwitch(endpoint(own_ovs)).finish()
        # Before the restart it had no effect yet.
        assert OffloadSwitch(endpoint(own_ovs)).is_as(wanted=moment == "before")
        assert [row["state"] for row in checks(xenoovs, own_ovs, "leftovers")] == ["ok"]


def test_on_and_off_are_in_effect_and_the_flows_are_there_also_after_a_restart_that_fails(
    own_ovs: DummyOvs, tmp_path: Path, xenoovs: CommandLine
) -> None:
    def refuse(_: DummyOvs) -> None:
        raise CommandFailed(argv=("systemctl",), exit_code=1, stdout="", stderr="no")

    with own_ovs.bridge() as bridge:
        before, setting = filled(bridge), OffloadSwitch(endpoint(own_ovs))
        for wanted, word in ((True, "on: "), (False, "off, as set: ")):
            assert not setting.is_as(wanted=wanted)
            assert change(own_ovs, tmp_path, wanted=wanted).flows == {"ovsbr1": 5}
            assert setting.is_as(wanted=wanted)
            assert [row["seen"].startswith(word) for row in checks(xenoovs, own_ovs, "hw-offload in effect")] == [True]
            assert everything(bridge) == before
            with pytest.raises(CommandFailed):
                change(own_ovs, tmp_path, wanted=not wanted, order=refuse)
            assert setting.is_as(wanted=True) or setting.is_as(wanted=wanted)
            assert (everything(bridge), waits(own_ovs)) == (before, False)
            # Bug: the file stayed although the flows were back.
            assert not list(tmp_path.glob("*.bundle"))
        assert not list(own_ovs.ovs.directory.glob("xenoovs-offload.json"))


def test_beside_another_restart_or_with_meters_it_is_refused(own_ovs: DummyOvs) -> None:
    setting = OffloadSwitch(endpoint(own_ovs))
    with own_ovs.bridge() as bridge:
        setting.require_safe(wanted=True)
        bridge.ofctl("add-meter", "meter=1,kbps,band=type=drop,rate=1000")
        with pytest.raises(SwitchError, match="bridge ovsbr1 has meters, which a restart would lose"):
            setting.require_safe(wanted=True)
    own_ovs.ovs.vsctl("--no-wait", "set", "Open_vSwitch", ".", "other_config:flow-restore-wait=true")
    with pytest.raises(SwitchError, match="flow-restore-wait is set: another restart is under way"):
        setting.require_safe(wanted=True)


def test_wrong_usage_and_what_systemd_does_not_run_change_nothing(bridge: DummyBridge, xenoovs: CommandLine) -> None:
    process = os.stat(f"/proc/{bridge.ovs.pids()[0]}").st_ctime  # noqa: PTH116
    before, settings = filled(bridge), bridge.ovs.vsctl("get", "Open_vSwitch", ".", "other_config")
    no_service = "is no service of this host and was not restarted"
    for options, status, words in (
        (("--set", "offload=maybe"), 64, "'offload=maybe' is not one of 'offload=on', 'offload=off'"),
        (("--set", "offload=on", "--fix"), 64, "--set excludes --fix, --backends and --restart-ovs"),
        (("--yes",), 64, "--yes goes with --fix, --set or --restart-ovs"),
        (("--restart-ovs", "--yes"), 1, no_service),
        (("--set", "offload=on", "--yes"), 1, no_service),
        (("--set", "offload=off"), 0, ""),
    ):
        said = xenoovs("doctor", *options, "--db", bridge.ovs.db)
        assert (said.status, words in said.err) == (status, True), said.err
    assert (said.out, said.err) == ("offload is off already: set, and in effect\n", "")
    assert everything(bridge) == before
    assert bridge.ovs.vsctl("get", "Open_vSwitch", ".", "other_config") == settings
    assert os.stat(f"/proc/{bridge.ovs.pids()[0]}").st_ctime == process  # noqa: PTH116
    bridge.ofctl("del-groups")


STOPPING = """\
#!/bin/sh
/usr/bin/ovs-vsctl "$@" || exit
case "$*" in *flow-restore-wait=true*)
    kill -STOP {pid}
    while grep -q 'State:.[RS]' /proc/{pid}/task/*/status; do :; done
esac
"""
"""A stand-in for ovs-vsctl: the ovs-vswitchd that is to end does not, until it gets SIGCONT."""


SET_OFFLOAD = ("doctor", "--set", "offload=on")


@pytest.mark.parametrize(
    ("command", "number"),
    [
        (SET_OFFLOAD, signal.SIGKILL),
        pytest.param(("doctor", "--restart-ovs"), signal.SIGKILL, marks=pytest.mark.long),
        pytest.param(SET_OFFLOAD, signal.SIGINT, marks=pytest.mark.long),
    ],
    ids=["set", "restart-ovs", "set Ctrl-C"],
)
def test_killed_while_open_vswitch_ends_the_restart_is_completed(
    tmp_path: Path, command: tuple[str, ...], number: signal.Signals
) -> None:
    """The lab was left without ovs-vswitchd, and without its flows."""
    config = tmp_path / "my.yaml"
    config.write_text(SMALL_CONFIG)
    here = {DIRECTORY_VARIABLE: str(tmp_path / "labs")}
    named = ("--lab", lab_name("killed"), "--yes")
    with running_lab("killed", parse_config(SMALL_CONFIG, file="my.yaml"), tmp_path / "labs") as lab:
        assert finish(start("apply", config, *named, env=here)).status == 0
        flows, vswitchd = lab_flows(lab), lab.ovs.pids()[0]
        tool = tmp_path / "ovs-vsctl"
        tool.write_text(STOPPING.format(pid=vswitchd))
        tool.chmod(0o755)
        process = start(*command, *named, env={**here, "PATH": f"{tmp_path}:{os.environ['PATH']}"})
        eventually(lambda: has_sigterm(vswitchd, "ShdPnd"), "ovs-vswitchd gets SIGTERM")
        process.send_signal(number)
        process.wait(PATIENCE_S)
        os.kill(vswitchd, signal.SIGCONT)
        # The process in the background holds its output open to the end.
        process.communicate(timeout=PATIENCE_S)
        eventually(lambda: len(lab.ovs.pids()) == 2 and lab.ovs.pids()[0] != vswitchd, "ovs-vswitchd runs again")
        eventually(lambda: "flow-restore-wait" not in lab.ovs.vsctl("get", "Open_vSwitch", ".", "other_config"), "work")
        assert lab_flows(lab) == flows
        assert not list(lab.directory.glob("*.bundle"))
        assert not has_sigterm(lab.ovs.pids()[0], "SigIgn")
        if command == SET_OFFLOAD:
            setting = OffloadSwitch(Endpoint(lab.ovs.db, lab.ovs.directory))
            eventually(lambda: setting.is_as(wanted=True), "offload is set and in effect")
            eventually(lambda: not list(lab.ovs.directory.glob("xenoovs-offload.json")), "nothing is left to undo")


def lab_flows(lab: Lab) -> list[str]:
    switch = ManagementSwitch(Endpoint(lab.ovs.db, lab.ovs.directory))
    return sorted(render_flow(observed.flow) for observed in switch.dump_flows("ovsbr1"))


def has_sigterm(pid: int, mask: str) -> bool:
    """Whether SIGTERM is in this mask of a process (proc(5), "/proc/pid/status")."""
    status = Path(f"/proc/{pid}/status").read_text()
    bits = next(line.split()[1] for line in status.splitlines() if line.startswith(mask))
    return bool(int(bits, 16) >> signal.SIGTERM - 1 & 1)
