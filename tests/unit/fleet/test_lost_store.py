"""What commands say when the store is lost after a change was written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.command_line import SMALL_CONFIG
from tests.fleet_support import EMPTY, committed, given, settled
from xenoovs.errors import FleetUndecided
from xenoovs.fleet.commands import client
from xenoovs.fleet.commands.client import FleetStore
from xenoovs.store.client import CommitOutcome, StoreConnection
from xenoovs.store.view import Changes, Dpu, DpuStatus, FleetView

CONNECTED = StoreConnection(is_connected=True, remote="unix:fleet.sock", since_s=0.0)
LOST = replace(CONNECTED, is_connected=False, remote="", reason="unix:fleet.sock: the server closed the connection")


class LostStore:
    """Both clients of a store, and the clock. It is lost for `lost_s` after a transaction; no controller decides."""

    def __init__(self, *, lost_s: float) -> None:
        dpus = {"dpu1": Dpu("dpu1", frozenset())}
        self.newest = settled(given(replace(EMPTY, dpus=dpus), SMALL_CONFIG))
        self.now_s, self._lost_s, self._lost_until_s = 0.0, lost_s, 0.0

    @property
    def connection(self) -> StoreConnection:
        return LOST if self.now_s < self._lost_until_s else CONNECTED

    def view(self) -> FleetView:
        return self.newest

    def statuses(self) -> Mapping[str, DpuStatus] | None:
        return None if self.now_s < self._lost_until_s else {}

    def commit(self, _: int, changes: Changes, **__: object) -> CommitOutcome:
        self.newest, self._lost_until_s = committed(self.newest, changes), self.now_s + self._lost_s
        return CommitOutcome.COMMITTED

    def wait_changed(self, _: FleetView, *, timeout_s: float) -> FleetView:
        self.sleep(timeout_s)
        return self.newest

    def sleep(self, time_s: float) -> None:
        self.now_s += time_s


def open_store(monkeypatch: pytest.MonkeyPatch, *, lost_s: float) -> tuple[FleetStore, LostStore]:
    both: Any = LostStore(lost_s=lost_s)
    times = SimpleNamespace(time=lambda: 0.0, monotonic=lambda: both.now_s, sleep=both.sleep)
    monkeypatch.setattr(client, "time", times)
    return FleetStore(both, both, None), both


def test_bug_a_written_change_was_reported_as_if_the_store_could_not_be_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, _ = open_store(monkeypatch, lost_s=60)
    with pytest.raises(FleetUndecided, match=r"^the change is written, but .* not known: .*the server closed.*status"):
        store.change("forget dpu1", lambda _: Changes(dpus={"dpu1": None}))


def test_an_election_after_a_change_is_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    store, _ = open_store(monkeypatch, lost_s=10)
    assert store.change("forget dpu1", lambda _: Changes(dpus={"dpu1": None})).dpus == {}


def test_bug_a_store_that_was_lost_was_said_to_have_no_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    store, both = open_store(monkeypatch, lost_s=0)
    both.newest = given(both.newest, SMALL_CONFIG.replace("weight: 30", "weight: 50"))
    with pytest.raises(FleetUndecided, match="no controller has decided about the newest change: start one"):
        store.settled()
    both.commit(0, Changes())
    both._lost_until_s = both.now_s + 60
    with pytest.raises(FleetUndecided, match="the server closed the connection"):
        store.settled()


def test_bug_dpus_were_said_not_to_report_when_the_database_of_states_was_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, both = open_store(monkeypatch, lost_s=60)
    assert store.lacking(both.newest, timeout_s=1) == {"dpu1": "has not reported yet"}
    both.commit(0, Changes())
    (reason,) = store.lacking(both.newest, timeout_s=1).values()
    assert "the database of states does not answer" in reason
