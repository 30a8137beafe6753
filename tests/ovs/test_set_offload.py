"""`doctor --set offload=on|off`: the setting, the restart and the effect go together, whoever is killed meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command_line import CommandLine
from tests.ovs.dummy import DummyBridge, DummyOvs
from xenoovs.errors import CommandFailed, SwitchError
from xenoovs.lab.private_ovs import Datapath, start_vswitchd, stop_process
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.management import ManagementSwitch
from xenoovs.switch.offload_setting import OffloadSwitch
from xenoovs.switch.planned_restart import PlannedRestart, planned_restart

pytestmark = pytest.mark.ovs

FLOW = "priority=7,in_port=p0 actions=output:p1"


def _endpoint(ovs: DummyOvs) -> Endpoint:
    return Endpoint(ovs.ovs.db, ovs.ovs.directory)


def _restart(ovs: DummyOvs) -> None:
    stop_process(ovs.ovs.pids()[0])
    start_vswitchd(ovs.ovs, datapath=Datapath.DUMMY)


def _change(ovs: DummyOvs, directory: Path, *, wanted: bool, order: Callable[[], None] | None = None) -> PlannedRestart:
    endpoint = _endpoint(ovs)

    def restart(set_it: Callable[[], None]) -> PlannedRestart:
        def both() -> None:
            set_it()
            (order or (lambda: _restart(ovs)))()

        return planned_restart(ManagementSwitch(endpoint), endpoint, both, directory=directory)

    return OffloadSwitch(endpoint).change(wanted=wanted, restart=restart)


def _settings(ovs: DummyOvs) -> str:
    return ovs.ovs.vsctl("get", "Open_vSwitch", ".", "other_config")


def _state(xenoovs: CommandLine, ovs: DummyOvs) -> str:
    rows = json.loads(xenoovs("doctor", "--db", ovs.ovs.db, "-o", "json").out)["checks"]
    return str(next(row["seen"] for row in rows if row["check"] == "hw-offload in effect"))


def test_on_and_off_are_in_effect_and_the_flows_are_there(
    own_ovs: DummyOvs, tmp_path: Path, xenoovs: CommandLine
) -> None:
    with own_ovs.bridge() as bridge:
        bridge.add_flows(f"{FLOW}\n")
        before = bridge.dump_flows()
        setting = OffloadSwitch(_endpoint(own_ovs))
        for wanted, word in ((True, "on: "), (False, "off, as set: ")):
            assert not setting.is_as(wanted=wanted)
            assert _change(own_ovs, tmp_path, wanted=wanted).flows == {"ovsbr1": len(before)}
            assert setting.is_as(wanted=wanted)
            assert _state(xenoovs, own_ovs).startswith(word)
            assert bridge.dump_flows() == before
        assert not list(own_ovs.ovs.directory.glob("xenoovs-offload.json"))


def test_a_restart_that_fails_leaves_the_setting_that_is_in_effect(own_ovs: DummyOvs, tmp_path: Path) -> None:
    def refuse() -> None:
        raise CommandFailed(argv=("systemctl",), exit_code=1, stdout="", stderr="no")

    with own_ovs.bridge():
        setting = OffloadSwitch(_endpoint(own_ovs))
        _change(own_ovs, tmp_path, wanted=True)
        with pytest.raises(CommandFailed):
            _change(own_ovs, tmp_path, wanted=False, order=refuse)
        assert setting.is_as(wanted=True)
        _change(own_ovs, tmp_path, wanted=False)
        with pytest.raises(CommandFailed):
            _change(own_ovs, tmp_path, wanted=True, order=refuse)
        assert setting.is_as(wanted=True) or setting.is_as(wanted=False)


KILLED = """
import os, signal, sys
from pathlib import Path
from xenoovs.lab.private_ovs import Datapath, PrivateOvs, start_vswitchd, stop_process
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.offload_setting import OffloadSwitch
directory = Path(sys.argv[1])
ovs = PrivateOvs(directory)

def restart(set_it):
    set_it()
    if sys.argv[2] == "after":
        stop_process(ovs.pids()[0])
        start_vswitchd(ovs, datapath=Datapath.DUMMY)
    os.kill(os.getpid(), signal.SIGKILL)

OffloadSwitch(Endpoint(ovs.db, directory)).change(wanted=False, restart=restart)
"""


@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_beside_the_restart_it_is_reported_and_finished(
    own_ovs: DummyOvs, xenoovs: CommandLine, moment: str
) -> None:
    with own_ovs.bridge():
        _change(own_ovs, own_ovs.ovs.directory, wanted=True)
        killed = subprocess.run([sys.executable, "-c", KILLED, own_ovs.ovs.directory, moment], check=False)
        assert killed.returncode == -signal.SIGKILL
        assert 'hw-offload="false"' in _settings(own_ovs)
        checks = json.loads(xenoovs("doctor", "--db", own_ovs.ovs.db, "-o", "json").out)["checks"]
        assert [row["seen"] for row in checks if row["check"] == "leftovers"] == [
            "other_config:hw-offload, changed by a `doctor --set` that was killed before its end"
        ]
        assert OffloadSwitch(_endpoint(own_ovs)).finish()
        # Before the restart it had no effect yet.
        assert OffloadSwitch(_endpoint(own_ovs)).is_as(wanted=moment == "before")
        checks = json.loads(xenoovs("doctor", "--db", own_ovs.ovs.db, "-o", "json").out)["checks"]
        assert [row["state"] for row in checks if row["check"] == "leftovers"] == ["ok"]


def test_beside_another_restart_it_is_refused(own_ovs: DummyOvs) -> None:
    own_ovs.ovs.vsctl("--no-wait", "set", "Open_vSwitch", ".", "other_config:flow-restore-wait=true")
    with pytest.raises(SwitchError, match="flow-restore-wait is set: another restart is under way"):
        OffloadSwitch(_endpoint(own_ovs)).require_safe(wanted=True)


def test_a_bridge_with_meters_is_refused(own_ovs: DummyOvs) -> None:
    with own_ovs.bridge() as bridge:
        OffloadSwitch(_endpoint(own_ovs)).require_safe(wanted=True)
        bridge.ofctl("add-meter", "meter=1,kbps,band=type=drop,rate=1000")
        with pytest.raises(SwitchError, match="bridge ovsbr1 has meters, which a restart would lose"):
            OffloadSwitch(_endpoint(own_ovs)).require_safe(wanted=True)


def test_one_that_systemd_does_not_run_is_left_alone(bridge: DummyBridge, xenoovs: CommandLine) -> None:
    before = bridge.ovs.vsctl("get", "Open_vSwitch", ".", "other_config")
    said = xenoovs("doctor", "--db", bridge.ovs.db, "--set", "offload=on", "--yes")
    assert (said.status, said.out) == (1, "")
    assert "is no service of this host and was not restarted" in said.err
    assert bridge.ovs.vsctl("get", "Open_vSwitch", ".", "other_config") == before


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--set", "offload=maybe"), "'offload=maybe' is not one of 'offload=on', 'offload=off'"),
        (("--set", "offload=on", "--fix"), "--set excludes --fix and --backends"),
        (("--yes",), "--yes goes with --fix or --set"),
    ],
)
def test_wrong_usage(options: tuple[str, ...], words: str, xenoovs: CommandLine) -> None:
    said = xenoovs("doctor", *options)
    assert (said.status, words in said.err) == (64, True), said.err


def test_what_is_so_already_is_left_alone(bridge: DummyBridge, xenoovs: CommandLine) -> None:
    process = os.stat(f"/proc/{bridge.ovs.pids()[0]}").st_ctime  # noqa: PTH116
    said = xenoovs("doctor", "--db", bridge.ovs.db, "--set", "offload=off")
    assert (said.status, said.out, said.err) == (0, "offload is off already: set, and in effect\n", "")
    assert os.stat(f"/proc/{bridge.ovs.pids()[0]}").st_ctime == process  # noqa: PTH116
