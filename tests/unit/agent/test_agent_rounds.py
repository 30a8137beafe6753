"""Rounds on a switch in memory."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tests.command_line import SMALL_CONFIG
from tests.fake_switch import FakeSwitch, fake_bridge
from tests.unit import balancer as small
from xenoovs.agent.config_file import ConfigFile
from xenoovs.agent.daemon import Agent
from xenoovs.agent.probe.target import ProbeResult, Target
from xenoovs.agent.store import MonotonicClock
from xenoovs.compile.program import compile_config
from xenoovs.decision.decision import DesiredState
from xenoovs.engine.engine import Engine
from xenoovs.errors import BundleRejected, CommandTimeout, PortsMissing
from xenoovs.model.balancer import Balancer

ONE = small.balancer(small.service(small.claim(), 3, 1))


@pytest.fixture
def switch() -> FakeSwitch:
    return FakeSwitch(fake_bridge("ovsbr1", ["p0", "p1"]), fake_bridge("ovsbr2", ["p0", "p1"]))


def on(bridge: str, balancer: Balancer = ONE) -> Balancer:
    return replace(balancer, uplinks=replace(balancer.uplinks, bridge=bridge))


def test_a_round_with_nothing_to_do_sends_nothing(switch: FakeSwitch) -> None:
    engine = Engine(switch)
    assert not engine.round(DesiredState(ONE), now_s=0.0).difference.is_empty
    assert engine.round(DesiredState(ONE), now_s=0.0).difference.is_empty
    assert len(switch.applied) == 1


def test_another_bridge_is_not_a_lost_one(switch: FakeSwitch) -> None:
    engine = Engine(switch)
    engine.round(DesiredState(ONE), now_s=0.0)
    switch.restart("ovsbr1")
    assert not engine.is_lost("ovsbr2")
    done = engine.round(DesiredState(on("ovsbr2")), now_s=0.0)
    assert (done.lost, done.foreign, done.difference.unchanged) == (False, 0, 0)


def test_foreign_changes_are_distinguished_from_our_own(switch: FakeSwitch) -> None:
    engine = Engine(switch)
    engine.round(DesiredState(ONE), now_s=0.0)
    victim = next(iter(switch.dump_flows("ovsbr1"))).flow
    switch.remove_flow("ovsbr1", victim.key)
    done = engine.round(DesiredState(ONE, {"s": frozenset({"b1"})}), now_s=0.0)
    assert done.foreign == 1
    assert done.difference.flow_mods > 1


@pytest.mark.parametrize("lost", [True, False])
def test_after_a_lost_reply_the_next_round_reads_the_flows(switch: FakeSwitch, *, lost: bool) -> None:
    engine = Engine(switch)
    problem = CommandTimeout(argv=["ovs-ofctl"], timeout_s=1.0)
    if lost:
        switch.lose_answer(problem)
    else:
        switch.fail_next(problem)
    with pytest.raises(CommandTimeout):
        engine.round(DesiredState(ONE), now_s=0.0)
    engine.round(DesiredState(ONE), now_s=0.0)
    assert len(switch.applied) == 1
    assert engine.round(DesiredState(ONE), now_s=0.0).difference.is_empty


def test_after_a_lost_reply_even_an_urgent_round_reads_the_flows_again(switch: FakeSwitch) -> None:
    engine = Engine(switch)
    engine.round(DesiredState(ONE), now_s=0.0)
    switch.lose_answer(CommandTimeout(argv=["ovs-ofctl"], timeout_s=1.0))
    dead = DesiredState(ONE, {"s": frozenset({"b1"})})
    with pytest.raises(CommandTimeout):
        engine.round(dead, now_s=0.0, urgent=True)
    assert engine.round(dead, now_s=0.0, urgent=True).difference.is_empty
    assert engine.round(DesiredState(ONE), now_s=0.0, urgent=True).difference.flow_mods
    assert engine.round(DesiredState(ONE), now_s=0.0).difference.is_empty


def test_a_new_config_with_a_missing_port_changes_nothing(switch: FakeSwitch) -> None:
    wide = replace(ONE, uplinks=replace(ONE.uplinks, ingress=("p0", "p9")))
    with pytest.raises(PortsMissing):
        Engine(switch).round(DesiredState(wide), now_s=0.0, strict=True)
    assert switch.applied == []


def test_a_missing_port_holds_back_only_its_own_flows(switch: FakeSwitch) -> None:
    wide, engine = replace(ONE, uplinks=replace(ONE.uplinks, ingress=("p0", "p9"))), Engine(switch)
    done = engine.round(DesiredState(wide), now_s=0.0)
    assert [problem.text for problem in done.problems] == ["port p9 is on no bridge (ovsbr1 has p0, p1)"]
    there = {seen.flow for seen in switch.dump_flows("ovsbr1")}
    assert there == {flow for flow in compile_config(wide).flows if flow.match.in_port != "p9"}
    switch.set_ports(fake_bridge("ovsbr1", ["p0", "p1", "p9"]))
    assert not engine.round(DesiredState(wide), now_s=1.0).problems
    assert {seen.flow for seen in switch.dump_flows("ovsbr1")} == set(compile_config(wide).flows)


def test_a_refused_bundle_is_tried_again(switch: FakeSwitch) -> None:
    engine = Engine(switch)
    engine.round(DesiredState(ONE), now_s=0.0)
    before = switch.all_flows("ovsbr1")
    switch.fail_next(BundleRejected(bridge="ovsbr1", error="OFPFMFC_TABLE_FULL", message="", advice=""))
    with pytest.raises(BundleRejected):
        engine.round(DesiredState(ONE, {"s": frozenset({"b1"})}), now_s=0.0)
    assert switch.all_flows("ovsbr1") == before
    assert not engine.round(DesiredState(ONE, {"s": frozenset({"b1"})}), now_s=0.0).difference.is_empty


def test_an_internal_error_in_a_probe_ends_the_agent(switch: FakeSwitch, tmp_path: Path) -> None:
    async def broken(target: Target, *, timeout_s: float) -> ProbeResult:
        raise ZeroDivisionError

    path = tmp_path / "c.yaml"
    path.write_text(
        SMALL_CONFIG.replace("weight: 70", "weight: 70, address: 192.0.2.1").replace(
            "weight: 30", "weight: 30, address: 192.0.2.2"
        )
        + "    health: {probe: icmp}\n"
    )
    agent = Agent(ConfigFile(path), Engine(switch), probe=broken, clock=MonotonicClock())
    with pytest.raises(ZeroDivisionError):
        asyncio.run(agent.run())
