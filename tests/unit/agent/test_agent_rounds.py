"""Rounds on a switch in memory."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tests.agent_support import make_scene
from tests.command_line import SMALL_CONFIG
from tests.fake_switch import FakeSwitch, HangingSwitch, fake_bridge
from tests.patience import PATIENCE_S, eventually
from tests.unit import balancer as small
from xenoovs.agent import daemon, neighbour, tasks
from xenoovs.agent.config_file import ConfigFile
from xenoovs.agent.daemon import Agent, AgentGroup, handle_signals
from xenoovs.agent.log import warn
from xenoovs.agent.neighbour import Neighbours
from xenoovs.agent.offload import SamplePace
from xenoovs.agent.probe.target import ProbeResult, Target
from xenoovs.agent.rollback import roll_back, take_checkpoint
from xenoovs.agent.scheduler import Probe
from xenoovs.agent.state import RoundFacts
from xenoovs.agent.telemetry import Timings, telemetry
from xenoovs.compile.pipeline import LEARNED, Stage, cookie_of
from xenoovs.compile.program import compile_config
from xenoovs.decision.decision import DesiredState
from xenoovs.engine.engine import Engine
from xenoovs.errors import CommandTimeout
from xenoovs.model.balancer import Drain, DrainMode, Protocol, service_ids, sought
from xenoovs.model.load import parse_config
from xenoovs.openflow.flow import OURS, Cookies, ObservedFlow

BY_ADDRESS = """\
version: 1
switch: {bridge: ovsbr1, ingress: [p0], egress: p1}
services: [{name: web, vip: 203.0.113.1, backends: [{name: b, address: 192.0.2.%s, weight: 1}]}]
"""
PIN = Drain(DrainMode.PIN)
ONE = small.balancer(small.service(small.claim(), 3, 1))
TWO = small.balancer(
    small.service(small.claim(protocol=Protocol.UDP), 3, 1), small.service(small.claim(protocol=Protocol.TCP), name="t")
)


@pytest.fixture
def switch() -> FakeSwitch:
    return FakeSwitch(fake_bridge("ovsbr1", ["p0", "p1"]), fake_bridge("ovsbr2", ["p0", "p1"]))


def test_another_bridge_is_not_a_lost_one(switch: FakeSwitch) -> None:
    engine, uplinks = Engine(switch), replace(ONE.uplinks, bridge="ovsbr2")
    engine.round(DesiredState(ONE), now_s=0.0)
    switch.restart("ovsbr1")
    done = engine.round(DesiredState(replace(ONE, uplinks=uplinks)), now_s=0.0)
    assert (done.lost, done.foreign, done.difference.unchanged) == (False, 0, 0)


def test_after_a_lost_reply_even_an_urgent_round_reads_the_flows_again(switch: FakeSwitch) -> None:
    engine, dead = Engine(switch), DesiredState(ONE, {"s": frozenset({"b1"})})
    engine.round(DesiredState(ONE), now_s=0.0)
    switch.lose_answer(CommandTimeout(argv=["ovs-ofctl"], timeout_s=1.0))
    with pytest.raises(CommandTimeout):
        engine.round(dead, now_s=0.0, urgent=True)
    assert engine.round(dead, now_s=0.0, urgent=True).difference.is_empty


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


def test_an_internal_error_beside_the_rounds_ends_no_agent(
    switch: FakeSwitch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a probe, in a listener, in a task, which starts again, and in what times the rounds in their thread."""
    monkeypatch.setattr(tasks, "_RETRY_S", 0.0)
    agent, begun = probing(tmp_path, switch, broken), list[int]()
    telemetry(agent, pace=SamplePace(), is_always=False)
    monkeypatch.setattr(Timings, "count", None)

    def mistaken(_: RoundFacts) -> None:
        raise ZeroDivisionError

    async def mistaken_once() -> None:
        begun.append(1)
        if len(begun) == 1:
            raise ZeroDivisionError
        while not agent.state.round.rounds:
            await asyncio.sleep(0.01)
        agent.stop()

    agent.store.subscribe(RoundFacts, mistaken)
    agent.add_task(mistaken_once)
    asyncio.run(asyncio.wait_for(agent.run(), PATIENCE_S))
    faults = {
        (each.text, str(each.facts["reason"]).partition(":")[0])
        for each in agent.events.since(0)
        if "a task failed" in each.text or "internal error" in each.text
    }
    assert faults == {
        ("a task failed; starting it again", "ZeroDivisionError"),
        ("internal error in a listener", "ZeroDivisionError"),
        ("internal error in a listener", "TypeError"),
    }
    last = [each.last for each in agent.state.tracker.health.values()]
    assert {each.reason for each in last if each} == {"internal error in the probe: ZeroDivisionError: ''"}
    assert (len(begun), agent.state.round.rounds) == (2, 1)


def test_addresses_that_the_config_lacks_now_are_waited_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbour, "_POLL_S", 0.001)
    monkeypatch.setattr(Neighbours, "poll", lambda _neighbours, *_balancers: {})
    neighbours = Neighbours()
    first, second = (parse_config(BY_ADDRESS % number, file="c.yaml") for number in (1, 2))
    for each in (first, second):
        neighbours.settle(each, timeout_s=0.0)
    assert neighbours._waited_for == sought(first).keys() | sought(second).keys()

    async def follow() -> None:
        task = asyncio.create_task(neighbours.follow(lambda: (second,), on_change=lambda: None))
        while len(neighbours._waited_for) > 1:
            await asyncio.sleep(0.001)
        task.cancel()

    asyncio.run(follow())
    assert neighbours._waited_for == sought(second).keys()


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


def test_bug_connections_of_a_drain_that_began_while_another_was_counted_were_lost(
    switch: FakeSwitch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counting the flows of drains takes seconds, while rounds run in another thread."""
    claims = (small.claim(protocol=Protocol.TCP, ports=[(port, port)]) for port in (80, 81))
    drained = [replace(small.service(claim, 1, 1, name=f"s{n}"), drain=PIN) for n, claim in enumerate(claims)]
    first, second = ((service, replace(service, backends=small.backends(1, 0))) for service in drained)
    engine, dump_flows = Engine(switch), switch.dump_flows
    engine.round(DesiredState(small.balancer(first[0], second[0])), now_s=0.0)
    engine.round(DesiredState(small.balancer(first[1], second[0])), now_s=1.0)
    other = service_ids(service.claim for service in drained)[second[0].claim]
    flow = next(seen.flow for seen in switch.all_flows("ovsbr1").values() if seen.flow.table == Stage.BALANCE.table)
    key = replace(flow.key, table=Stage.LEARNED.table)

    def interrupted(bridge: str, *, only: Cookies = OURS) -> tuple[ObservedFlow, ...]:
        if only == LEARNED:
            engine.round(DesiredState(small.balancer(first[1], second[1])), now_s=2.0)
            switch.install("ovsbr1", [replace(flow, key=key, cookie=cookie_of(Stage.LEARNED, other))])
        return dump_flows(bridge, only=only)

    monkeypatch.setattr(switch, "dump_flows", interrupted)
    engine.count_drains(now_s=2.0)
    assert key in switch.all_flows("ovsbr1")


def test_a_round_that_does_not_end_is_reported_and_no_request_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Open vSwitch stopped in the middle of a reply."""
    monkeypatch.setattr(daemon, "_LATE_S", 0.2)
    scene, hanging = make_scene(tmp_path), HangingSwitch()
    with replace(scene, switch=hanging).agent() as (agent, client):
        hanging.goes_on.clear()
        answer = client.ask("drain", {"service": "dns", "backend": "fips3"})
        assert not answer["is_applied"]
        assert "reconciling bridge ovsbr1 is not finished after 200ms" in answer["message"]
        assert "is not finished" in client.ask("status")["snapshot"]["last_error"]
        hanging.goes_on.set()
        eventually(lambda: not agent.state.round.error, "the round is finished")
        assert client.ask("drain", {"service": "dns", "backend": "fips3"})["is_applied"]
