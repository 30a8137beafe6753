"""The reports of a member of a fleet, with an agent and a store that do nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from xenoovs.agent import fleet
from xenoovs.agent.fleet_cache import FleetCache
from xenoovs.agent.report import Report
from xenoovs.errors import SwitchError
from xenoovs.store.client import StoreConnection
from xenoovs.store.view import DpuStatus, FleetView

CONNECTED = StoreConnection(is_connected=True, remote="unix:store", since_s=0.0)


def refuse(*_: object) -> None:
    raise SwitchError("no bridge")


async def reports_while(end: Callable[[list[DpuStatus]], bool], *, tmp_path: Path) -> list[DpuStatus]:
    """What is reported until `end`, with a round every few milliseconds that changes nothing."""
    tasks, put = list[Callable[[], Coroutine[Any, Any, None]]](), list[DpuStatus]()
    agent = MagicMock(round_listeners=[], offload_listeners=[], add_task=tasks.append, report=Report())
    agent.state.runtime.overrides = ()
    agent.state.watches = None
    agent.engine.decision = refuse
    good = SimpleNamespace(view=None, balancer=None)
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
    """Each round began the time to the next report again, so every quiet DPU was silent after three minutes."""
    monkeypatch.setattr(fleet, "SEEN_S", 0.1)
    put = asyncio.run(reports_while(lambda put: len(put) > 2, tmp_path=tmp_path))
    assert [each.name for each in put] == ["dpu1"] * len(put)
    assert sorted({each.seen_ms for each in put}) == [each.seen_ms for each in put]
