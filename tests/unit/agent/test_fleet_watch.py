"""Problems that the page of a fleet detects over time, and that one read of the store does not show."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.command_line import SMALL_CONFIG
from tests.fleet_support import EMPTY, given, settled
from tests.unit.store.test_cluster import LEADER, facts
from xenoovs.agent import fleet_watch
from xenoovs.agent.fleet_watch import FleetWatch
from xenoovs.fleet.active import ActiveSign
from xenoovs.store.client import DpuStatusReader, StoreClient, StoreConnection
from xenoovs.store.cluster import ServerFacts
from xenoovs.store.view import Dpu, DpuStatus, FleetView, IntentState, Watch

CONNECTED = StoreConnection(is_connected=True, remote="unix:fleet", since_s=0.0)
MORE = SMALL_CONFIG + "      - {name: fips4, mac: 02:00:5e:10:00:04, weight: 30}\n"


class Store:
    """Stands for both clients of a store, and for the clock."""

    def __init__(self, view: FleetView) -> None:
        self.newest, self.connection, self.now_s = view, CONNECTED, 0.0

    def view(self) -> FleetView:
        return self.newest

    def statuses(self) -> dict[str, DpuStatus]:
        return {
            name: DpuStatus(name, applied=self.newest.generation, seen_ms=int(time.time() * 1000))
            for name in self.newest.dpus
        }

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    dpus = {"dpu1": Dpu("dpu1", frozenset(), wave=1), "dpu2": Dpu("dpu2", frozenset())}
    made = Store(settled(given(replace(EMPTY, dpus=dpus), SMALL_CONFIG)))
    monkeypatch.setattr(fleet_watch, "time", SimpleNamespace(time=time.time, monotonic=made.monotonic))
    monkeypatch.setattr(fleet_watch, "host_facts", lambda _directory, *, reads_files: ())
    return made


def watch_of(store: Store, directory: Path) -> FleetWatch:
    return FleetWatch(cast(StoreClient, store), cast(DpuStatusReader, store), directory)


def stalls(watch: FleetWatch, store: Store, times: range) -> list[int]:
    found = []
    for store.now_s in times:
        if watch.snapshot().is_stalled:
            found.append(int(store.now_s))
    return found


def test_a_change_that_no_controller_decides_about_is_a_problem_once_it_is_overdue(
    store: Store, tmp_path: Path
) -> None:
    watch = watch_of(store, tmp_path)
    store.newest = given(store.newest, MORE)
    assert stalls(watch, store, range(0, 25, 5)) == [20]
    assert watch.snapshot().problems == (
        "no controller has decided about the newest change: is `xenoovs fleet serve` running?",
    )
    store.newest = settled(store.newest)
    snapshot = watch.snapshot()
    assert (snapshot.is_stalled, snapshot.problems) == (False, ())


def test_a_wave_that_no_controller_ends_is_a_problem_and_a_lost_store_restarts_its_timer(
    store: Store, tmp_path: Path
) -> None:
    watch = watch_of(store, tmp_path)
    store.newest = settled(given(store.newest, MORE, IntentState.ROLLING, soak_s=10))
    assert store.newest.wave == 1
    # Due at 10 s; a controller that took over then has watched for 10 s at 35 s.
    assert stalls(watch, store, range(0, 40, 5)) == [35]
    assert "no controller has written the next step of wave 1" in watch.snapshot().problems[0]
    store.connection = replace(CONNECTED, is_connected=False, reason="gone")
    assert stalls(watch, store, range(40, 45, 5)) == []
    store.connection = CONNECTED
    assert stalls(watch, store, range(45, 85, 5)) == [80]


def test_a_server_that_leads_without_a_controller_is_a_problem_at_once(store: Store, tmp_path: Path) -> None:
    watch, sign = watch_of(store, tmp_path), ActiveSign(tmp_path)
    store.connection = replace(CONNECTED, is_leader=True)
    assert "no controller is active on this host" in watch.snapshot().problems[0]
    sign.show(is_active=True)
    assert watch.snapshot().problems == ()
    sign.show(is_active=False)
    # The role of the server before the connection was lost proves nothing.
    store.connection = replace(CONNECTED, is_connected=False, is_leader=True, reason="gone")
    assert [problem for problem in watch.snapshot().problems if "no controller" in problem] == []


def test_a_gap_in_the_file_of_a_server_is_a_problem_and_files_are_read_once_a_minute(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only `fleet status` read the files."""
    read, gap = list[int](), "record 3 is missing"

    def host_facts(_directory: Path, *, reads_files: bool) -> tuple[ServerFacts, ...]:
        read.extend([int(store.now_s)] * reads_files)
        return (facts(LEADER, gap=gap if reads_files else ""),)

    monkeypatch.setattr(fleet_watch, "host_facts", host_facts)
    watch = watch_of(store, tmp_path)
    for store.now_s in range(0, 60, 5):
        assert any("has a gap, as after a full disk" in problem for problem in watch.snapshot().problems)
    gap = ""
    store.now_s = 60
    assert not any("has a gap" in problem for problem in watch.snapshot().problems)
    assert read == [0, 60]


def test_bug_votes_with_a_majority_that_no_controller_wrote_were_no_problem(store: Store, tmp_path: Path) -> None:
    watch, names = watch_of(store, tmp_path), frozenset(store.newest.dpus)
    target, number = "192.0.2.1/tcp/80", store.newest.generation
    store.newest = replace(store.newest, watches={target: Watch(target, names, False, 0, number)})
    votes = {name: DpuStatus(name, applied=number, voted=number, down=frozenset({target})) for name in names}
    store.statuses = lambda: votes  # type: ignore[method-assign]
    found = list[str]()
    for store.now_s in (0.0, 4.0, 6.0):
        found.append("; ".join(watch.snapshot().problems))
    problem = f"no controller has written that {target} is down: of 2 witnesses 2 say down"
    assert [problem in texts for texts in found] == [False, False, True]
