"""`restart-ovs` of a lab: packets between the order and the end are lost and no others; killed, it is completed.

`python -m pytest tests/ovs/test_restart_loss.py -rP` prints how many.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.command_line import SMALL_CONFIG, finish, start
from tests.ovs.lab_support import lab_name, running_lab
from tests.ovs.paced import steady_stream
from tests.patience import PATIENCE_S, eventually
from xenoovs.lab.lab import DIRECTORY_VARIABLE, Lab
from xenoovs.model.load import parse_config
from xenoovs.openflow.text import render_flow
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.management import ManagementSwitch
from xenoovs.switch.offload_setting import OffloadSwitch

pytestmark = pytest.mark.ovs

CLIENTS, RATE_PPS = 20, 25


def test_packets_are_lost_only_between_the_order_and_the_end(tmp_path: Path) -> None:
    config = tmp_path / "my.yaml"
    config.write_text(SMALL_CONFIG)
    here = {DIRECTORY_VARIABLE: str(tmp_path / "labs")}
    named = ("--lab", lab_name("restart"), "--yes")
    with running_lab("restart", parse_config(SMALL_CONFIG, file="my.yaml"), tmp_path / "labs") as lab:
        assert finish(start("apply", config, *named, env=here)).status == 0
        before = lab.ovs.pids()
        with steady_stream(lab, clients=CLIENTS, rate_pps=RATE_PPS) as stream:
            eventually(lambda: stream.say("reached") >= RATE_PPS, "a second of traffic")
            ordered = stream.say("whole")
            said = finish(start("restart-ovs", *named, "--output", "json", env=here))
            ended = stream.say("reached")
            eventually(lambda: stream.say("reached") >= ended + RATE_PPS, "a second of traffic afterwards")
            answers = stream.end()
        vswitchd, database = lab.ovs.pids()
    assert (said.status, said.err) == (0, "")
    assert (vswitchd != before[0], database) == (True, before[1])

    lost = {client: [number for number, by in enumerate(who) if by is None] for client, who in answers.items()}
    owners = {client: {by for by in who if by is not None} for client, who in answers.items()}
    assert len(answers) == CLIENTS
    assert all(ordered <= number < ended for numbers in lost.values() for number in numbers)
    assert {len(labels) for labels in owners.values()} == {1}
    assert len(set().union(*owners.values())) == 2
    packets, gap_s = sum(map(len, lost.values())), json.loads(said.out)["gap_s"]
    # Without ovs-vswitchd nothing is forwarded in user space.
    assert packets > 0
    print(f"{packets} packets of {CLIENTS * RATE_PPS} a second are lost; the command reported {gap_s:.2f} s")


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
    [(("restart-ovs",), signal.SIGKILL), (SET_OFFLOAD, signal.SIGKILL), (SET_OFFLOAD, signal.SIGINT)],
    ids=["restart-ovs", "set", "set Ctrl-C"],
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
