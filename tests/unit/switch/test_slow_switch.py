"""An Open vSwitch and a machine that are slow: what is late stays right."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.fake_switch import FakeSwitch, fake_bridge
from xenoovs.datapath.database import Database
from xenoovs.datapath.fact import NOT_READ
from xenoovs.datapath.host import Daemon, OffloadState
from xenoovs.errors import CommandFailed, SwitchUnreachable
from xenoovs.switch import management, offload_setting, planned_restart
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.management import Ofctl
from xenoovs.switch.offload_setting import OffloadSwitch
from xenoovs.switch.planned_restart import PlannedRestart, SavedTables
from xenoovs.switch.process import Completed

HERE = Endpoint("unix:/run/none/db.sock", Path("/run/none"))
LOST = "ovs-ofctl: /run/none/ovsbr1.mgmt: failed to connect to socket (End of file)\n"


class Losing:
    """An ovs-ofctl that loses its first connections."""

    def __init__(self, losses: int) -> None:
        self.runs, self._losses = 0, losses

    def __call__(self, argv: Sequence[str], **_options: object) -> Completed:
        self.runs += 1
        if self.runs <= self._losses:
            raise CommandFailed(argv=tuple(argv), exit_code=1, stdout="", stderr=LOST)
        return Completed(tuple(argv), 0, "flows", "")


def test_a_dump_whose_connection_is_lost_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(management, "run", losing := Losing(2))
    assert Ofctl(HERE).run("dump-flows", "ovsbr1") == "flows"
    assert losing.runs == 3


def test_retries_end_if_every_connection_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(management, "run", losing := Losing(1000))
    with pytest.raises(SwitchUnreachable, match="the connection was lost"):
        Ofctl(HERE).run("dump-flows", "ovsbr1")
    assert losing.runs < 10


def test_a_change_whose_connection_is_lost_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have happened."""
    monkeypatch.setattr(management, "run", losing := Losing(1))
    with pytest.raises(SwitchUnreachable, match="the connection was lost"):
        Ofctl(HERE).run("add-flows", "ovsbr1", "-", stdin="actions=drop")
    assert losing.runs == 1


def test_flows_come_back_after_a_restart_that_has_taken_long(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All else takes long on such a machine, too: bridges and ports are there two minutes later."""
    now_s, restored = [0.0], list[str]()

    def sleep(seconds: float) -> None:
        now_s[0] += seconds

    def restore(_endpoint: Endpoint, bridge: str, _tables: SavedTables) -> None:
        if now_s[0] < 200:
            raise SwitchUnreachable(target=bridge, reason="not there yet")
        restored.append(bridge)

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(planned_restart, "waiting_for_flows", lambda _db: nullcontext())
    monkeypatch.setattr(planned_restart, "dump_tables", lambda *_: SavedTables((), ()))
    monkeypatch.setattr(planned_restart, "restore_tables", restore)
    switch = FakeSwitch(fake_bridge("ovsbr1", ["p0", "p1"]))
    planned_restart.planned_restart(switch, HERE, lambda: sleep(80), directory=tmp_path)
    assert restored == ["ovsbr1"]


@pytest.mark.parametrize("wanted", [True, False])
def test_offload_that_takes_effect_late_is_set(wanted: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`doctor --set offload` reported no change if ovs-vswitchd showed it some seconds later."""
    now_s = [0.0]

    def daemon(_endpoint: Endpoint) -> Daemon:
        is_late = now_s[0] < 100
        state = NOT_READ if is_late else OffloadState(is_on=wanted, evidence="the log")
        return Daemon(offload=state, history=NOT_READ, flow_limit=NOT_READ)

    def sleep(seconds: float) -> None:
        now_s[0] += seconds

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(offload_setting, "read_daemon", daemon)
    monkeypatch.setattr(offload_setting, "read_database", lambda _endpoint: Database())
    monkeypatch.setattr(offload_setting, "find_process", lambda _endpoint: None)
    monkeypatch.setattr(offload_setting, "run_vsctl", lambda *_words: None)
    switch = OffloadSwitch(Endpoint("unix:/run/none/db.sock", tmp_path))
    restarted = PlannedRestart(1.0, {"ovsbr1": 7}, {"ovsbr1": 0})
    assert switch.change(wanted=wanted, restart=lambda _order: restarted) is restarted
    assert now_s[0] >= 100
