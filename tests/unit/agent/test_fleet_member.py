"""The reports of a member of a fleet, with an agent and a store that do nothing."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from tests.unit.agent.test_fleet_verdicts import DUMP, findings
from xenoovs.agent import fleet
from xenoovs.agent.fleet_cache import FleetCache
from xenoovs.agent.fleet_checks import FleetWatches
from xenoovs.agent.fleet_votes import FleetVoter
from xenoovs.agent.health import HealthChange
from xenoovs.agent.offload import OffloadSample
from xenoovs.agent.report import Report
from xenoovs.errors import SwitchError
from xenoovs.store.client import StoreConnection
from xenoovs.store.view import DpuStatus, FleetView

CONNECTED = StoreConnection(is_connected=True, remote="unix:store", since_s=0.0)


def refuse(*_: object) -> None:
    raise SwitchError("no bridge")


def idle_agent() -> MagicMock:
    agent = MagicMock(round_listeners=[], port_listeners=[], offload_listeners=[], report=Report())
    agent.state.runtime.overrides = ()
    agent.state.watches = None
    agent.engine.decision = refuse
    return agent


async def reports_while(
    end: Callable[[list[DpuStatus]], bool],
    *,
    tmp_path: Path,
    agent: MagicMock | None = None,
    view: FleetView | None = None,
) -> list[DpuStatus]:
    """What is reported until `end`, with a round every few milliseconds that changes nothing. `view`: in use."""
    agent = agent or idle_agent()
    tasks, put = list[Callable[[], Coroutine[Any, Any, None]]](), list[DpuStatus]()
    agent.add_task = tasks.append
    good = SimpleNamespace(view=view, balancer=SimpleNamespace(services=()), stored={})
    config: Any = SimpleNamespace(good=good, newest=FleetView("test", 1, 0, 0, 0), problem=None)
    store: Any = SimpleNamespace(connection=CONNECTED, view=lambda: None)
    states: Any = SimpleNamespace(connection=CONNECTED, put=put.append)
    fleet.FleetMember(agent, config, "dpu1", store, states, FleetCache(tmp_path / "cache"))
    task = asyncio.create_task(tasks[0]())
    while not end(put):
        for listener in cast("list[Callable[[], None]]", agent.round_listeners):
            listener()
        await asyncio.sleep(0.005)
    task.cancel()
    return put


def test_a_dpu_on_which_nothing_changes_reports_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round restarted the report timer, so every quiet DPU counted as silent after three minutes."""
    monkeypatch.setattr(fleet, "SEEN_S", 0.1)
    put = asyncio.run(reports_while(lambda put: len(put) > 2, tmp_path=tmp_path))
    assert [each.name for each in put] == ["dpu1"] * len(put)
    assert sorted({each.seen_ms for each in put}) == [each.seen_ms for each in put]


def test_bug_an_agent_whose_first_sample_was_too_old_reported_its_megaflows_minutes_later(tmp_path: Path) -> None:
    """No roll-out could compare with it until then: with samples of one second, the next one came after 200 s."""
    agent, asked = idle_agent(), 0
    agent.report.last_round_s = 1.0

    def ask() -> None:
        nonlocal asked
        asked += 1

    agent.request_offload = ask
    begun_s = time.time()

    def has_reported(put: list[DpuStatus]) -> bool:
        nonlocal asked
        if put and put[-1].sampled:
            return True
        if asked:
            # Each request gives one sample. The first two began before the bridge was right.
            asked, seen = 0, len(samples)
            samples.append(OffloadSample(findings(DUMP), begun_s - 1 if seen < 2 else time.time() + 1))
            for listener in cast("list[Callable[[OffloadSample], None]]", agent.offload_listeners):
                listener(samples[-1])
        return False

    samples = list[OffloadSample]()
    view = FleetView("test", 1, 5, 1, 0)
    put = asyncio.run(reports_while(has_reported, tmp_path=tmp_path, agent=agent, view=view))
    assert (put[-1].applied, put[-1].sampled, len(samples)) == (5, 5, 3)


def test_bug_votes_waited_while_the_flows_are_read_for_the_periodic_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read of 3 s made a vote 2.4 s late, and it may take a minute."""
    monkeypatch.setattr(fleet, "SEEN_S", 0.1)
    voted, found, reads, may_go_on = list[frozenset[str]](), list[frozenset[str]](), list[bool](), threading.Event()
    agent = idle_agent()
    agent.report.last_round_s = 1.0
    agent.state.watches = FleetWatches(5, witnessed=frozenset({"t"}))
    agent.ready.bridge_problem = lambda: ""
    handlers = agent.store.effect_handlers = list[Callable[[HealthChange], None]]()
    monkeypatch.setattr(FleetVoter, "down", lambda _voter, _state: voted[-1] if voted else frozenset())
    monkeypatch.setattr(FleetVoter, "is_cut_off", lambda _voter, _state: False)

    def read(_balancer: object) -> None:
        reads.append(True)
        if len(reads) > 1:
            may_go_on.wait()
        raise SwitchError("no bridge")

    agent.engine.decided, agent.engine.decision = None, read

    def has_voted(put: list[DpuStatus]) -> bool:
        if len(reads) > 1 and not voted:
            voted.append(frozenset({"t"}))
            handlers[0](HealthChange((("web", "b1"),), is_up=False, reason="refused"))
            # The read still goes on.
            found.append(put[-1].down)
            may_go_on.set()
        return bool(voted)

    asyncio.run(reports_while(has_voted, tmp_path=tmp_path, agent=agent, view=FleetView("test", 1, 5, 1, 0)))
    assert found == [{"t"}]
