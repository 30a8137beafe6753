"""Rounds on a switch in memory."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tests.command_line import SMALL_CONFIG
from tests.fake_switch import FakeSwitch, fake_bridge
from tests.patience import PATIENCE_S
from tests.unit import balancer as small
from xenoovs.agent import tasks
from xenoovs.agent.config_file import ConfigFile
from xenoovs.agent.daemon import Agent, AgentGroup, handle_signals
from xenoovs.agent.log import warn
from xenoovs.agent.offload import SamplePace
from xenoovs.agent.probe.target import ProbeResult, Target
from xenoovs.agent.rollback import roll_back, take_checkpoint
from xenoovs.agent.scheduler import Probe
from xenoovs.agent.state import RoundFacts
from xenoovs.agent.telemetry import Timings, telemetry
from xenoovs.compile.program import compile_config
from xenoovs.decision.decision import DesiredState
from xenoovs.engine.engine import Engine
from xenoovs.model.balancer import Protocol

ONE = small.balancer(small.service(small.claim(), 3, 1))
TWO = small.balancer(
    small.service(small.claim(protocol=Protocol.UDP), 3, 1), small.service(small.claim(protocol=Protocol.TCP), name="t")
)


@pytest.fixture
def switch() -> FakeSwitch:
    return FakeSwitch(fake_bridge("ovsbr1", ["p0", "p1"]), fake_bridge("ovsbr2", ["p0", "p1"]))


def test_a_missing_port_holds_back_only_its_own_flows(switch: FakeSwitch) -> None:
    wide, engine = replace(ONE, uplinks=replace(ONE.uplinks, ingress=("p0", "p9"))), Engine(switch)
    done = engine.round(DesiredState(wide), now_s=0.0)
    assert [problem.text for problem in done.problems] == ["port p9 is on no bridge (ovsbr1 has p0, p1)"]
    there = {seen.flow for seen in switch.dump_flows("ovsbr1")}
    assert there == {flow for flow in compile_config(wide).flows if flow.match.in_port != "p9"}
    switch.set_ports(fake_bridge("ovsbr1", ["p0", "p1", "p9"]))
    assert not engine.round(DesiredState(wide), now_s=1.0).problems
    assert {seen.flow for seen in switch.dump_flows("ovsbr1")} == set(compile_config(wide).flows)


async def broken(target: Target, *, timeout_s: float) -> ProbeResult:
    raise ZeroDivisionError


def probing(directory: Path, switch: FakeSwitch, probe: Probe) -> Agent:
    path = directory / "c.yaml"
    path.write_text(
        SMALL_CONFIG.replace("weight: 70", "weight: 70, address: 192.0.2.1").replace(
            "weight: 30", "weight: 30, address: 192.0.2.2"
        )
        + "    health: {probe: icmp}\n"
    )
    return Agent(ConfigFile(path), Engine(switch), probe=probe)


def test_an_internal_error_in_a_probe_or_a_listener_ends_no_agent(switch: FakeSwitch, tmp_path: Path) -> None:
    agent = probing(tmp_path, switch, broken)

    def mistaken(_: RoundFacts) -> None:
        raise ZeroDivisionError

    agent.store.subscribe(RoundFacts, mistaken)
    agent.store.subscribe(RoundFacts, lambda _: agent.stop())
    asyncio.run(agent.run())
    last = [each.last for each in agent.state.tracker.health.values()]
    assert {each.reason for each in last if each} == {"internal error in the probe: ZeroDivisionError: ''"}
    assert agent.state.round.rounds == 1


def test_an_internal_error_beside_the_rounds_ends_no_agent(
    switch: FakeSwitch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a task, which starts again, and in what times the rounds in their thread."""
    monkeypatch.setattr(tasks, "_RETRY_S", 0.0)
    agent, begun = probing(tmp_path, switch, broken), list[int]()
    telemetry(agent, pace=SamplePace(), is_always=False)
    monkeypatch.setattr(Timings, "count", None)

    async def mistaken_once() -> None:
        begun.append(1)
        if len(begun) == 1:
            raise ZeroDivisionError
        while not agent.state.round.rounds:
            await asyncio.sleep(0.01)
        agent.stop()

    agent.add_task(mistaken_once)
    asyncio.run(asyncio.wait_for(agent.run(), PATIENCE_S))
    faults = {each.text: str(each.facts["reason"]) for each in agent.events.since(0) if "reason" in each.facts}
    assert len(begun) == 2
    assert faults["a task failed; starting it again"].startswith("ZeroDivisionError: , test_agent_rounds.py:")
    assert faults["internal error in a listener"].startswith("TypeError: ")


class Exhausted(FakeSwitch):
    """Has no descriptors for a moment. left: how many calls fail."""

    left = 3

    def incarnation(self, bridge: str) -> str | None:
        if self.flows_were_sent and self.left:
            self.left -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().incarnation(bridge)

    @property
    def flows_were_sent(self) -> bool:
        return bool(self.all_flows("ovsbr1"))


def test_an_agent_without_descriptors_goes_on_when_it_has_some(tmp_path: Path) -> None:
    """Between rounds, and in a task beside them."""
    switch, path, begun = Exhausted(fake_bridge("ovsbr1", ["p0", "p1"])), tmp_path / "c.yaml", list[int]()
    path.write_text(SMALL_CONFIG)
    agent = Agent(ConfigFile(path), Engine(switch), probe=broken)

    async def beside() -> None:
        begun.append(1)
        if len(begun) == 1:
            raise OSError(errno.EMFILE, "Too many open files")
        while switch.left or agent.state.round.error:
            await asyncio.sleep(0.01)
        agent.stop()

    agent.add_task(beside)
    asyncio.run(agent.run())
    assert (len(begun), switch.left, agent.state.round.rounds) == (2, 0, 1)


def test_a_rollback_gives_a_restarted_switch_the_flows_of_all_services(switch: FakeSwitch) -> None:
    """Not only of those that the change had touched."""
    engine = Engine(switch)
    engine.round(DesiredState(TWO), now_s=0.0)
    before, flows = take_checkpoint(switch, "ovsbr1"), switch.all_flows("ovsbr1")
    done = engine.round(DesiredState(TWO, {"s": frozenset({"b1"})}), now_s=0.0)
    switch.restart("ovsbr1")
    roll_back(switch, before, services=done.touched)
    assert switch.all_flows("ovsbr1") == flows


def test_many_log_lines_in_one_step_lose_no_signal(switch: FakeSwitch, tmp_path: Path) -> None:
    """Each used to write a byte into the pipe of the loop, by which it learns of signals; 278 filled it."""
    agent = probing(tmp_path, switch, broken)

    async def run() -> None:
        group = AgentGroup()
        group.agents["ovsbr1"] = agent
        handle_signals(asyncio.get_running_loop(), group)
        agent.add_task(much_to_say)
        await agent.run()

    async def much_to_say() -> None:
        for number in range(2000):
            warn("backend is down", backend=f"b{number}")
        os.kill(os.getpid(), signal.SIGTERM)

    asyncio.run(asyncio.wait_for(run(), PATIENCE_S))
    assert agent.events.last > 2000
