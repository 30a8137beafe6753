"""Several agents in one process: faults of one do not affect the others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent_support import all_answer
from tests.command_line import SMALL_CONFIG
from tests.fake_switch import FakeSwitch, fake_bridge
from xenoovs.agent.bridges import run_together
from xenoovs.agent.config_file import ConfigFile
from xenoovs.agent.daemon import Agent
from xenoovs.agent.log import LOGGER, bridge_context, facts_of, info
from xenoovs.agent.store import MonotonicClock
from xenoovs.engine.engine import Engine
from xenoovs.errors import BridgeMissing, SwitchUnreachable


def _agent(tmp_path: Path, bridge: str, switch: FakeSwitch) -> Agent:
    file = tmp_path / f"{bridge}.yaml"
    file.write_text(SMALL_CONFIG.replace("ovsbr1", bridge))
    return Agent(ConfigFile(file), Engine(switch), probe=all_answer, clock=MonotonicClock())


def _switch(bridge: str) -> FakeSwitch:
    return FakeSwitch(fake_bridge(bridge, ["p0", "p1"]))


@pytest.fixture
def records() -> Iterator[list[logging.LogRecord]]:
    """All that is logged."""
    records: list[logging.LogRecord] = []

    class _Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    handler, logger = _Keep(), logging.getLogger(LOGGER)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield records
    logger.removeHandler(handler)


def test_each_reconciles_its_bridge_and_logs_its_name(tmp_path: Path, records: list[logging.LogRecord]) -> None:
    switches = {bridge: _switch(bridge) for bridge in ("br1", "br2")}
    agents = {bridge: _agent(tmp_path, bridge, switch) for bridge, switch in switches.items()}
    asyncio.run(run_together(agents, once=True))
    assert [len(switch.all_flows(bridge)) for bridge, switch in switches.items()] == [8, 8]
    assert {facts_of(record)["bridge"] for record in records} == {"br1", "br2"}
    for bridge, agent in agents.items():
        assert {event.facts["bridge"] for event in agent.events.since(0)} == {bridge}


def test_a_failure_of_one_does_not_stop_the_others(tmp_path: Path) -> None:
    """With `once` all agents finish, then the first problem is reported."""
    good = _switch("br2")
    agents = {"br1": _agent(tmp_path, "br1", _switch("other")), "br2": _agent(tmp_path, "br2", good)}
    with pytest.raises(BridgeMissing):
        asyncio.run(run_together(agents, once=True))
    assert len(good.all_flows("br2")) == 8


def test_an_unreachable_switch_is_retried_and_the_other_continues(tmp_path: Path) -> None:
    away, good = _switch("br1"), _switch("br2")
    away.fail_next(SwitchUnreachable(target="x", reason="away"))
    agents = {"br1": _agent(tmp_path, "br1", away), "br2": _agent(tmp_path, "br2", good)}

    async def until_both_are_right() -> None:
        while not (away.all_flows("br1") and good.all_flows("br2")):
            await asyncio.sleep(0.01)
        for agent in agents.values():
            agent.stop()

    asyncio.run(asyncio.wait_for(run_together(agents, beside=until_both_are_right), 20))


def test_an_internal_error_ends_all(tmp_path: Path) -> None:
    """As with one bridge: systemd restarts the process, and the flows stay."""
    agents = {bridge: _agent(tmp_path, bridge, _switch(bridge)) for bridge in ("br1", "br2")}

    async def mistaken() -> None:
        raise ZeroDivisionError

    agents["br1"].add_task(mistaken)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(asyncio.wait_for(run_together(agents), 20))


def test_logs_outside_of_an_agent_name_no_bridge(records: list[logging.LogRecord]) -> None:
    with bridge_context("br1"):
        info("inside", bridge="another name of it")
    info("outside")
    assert [facts_of(record) for record in records] == [{"bridge": "br1"}, {}]
