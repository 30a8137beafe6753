"""A change that is prepared before its time: when it is committed, and what prevents the commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import IPv4Address

import pytest

from tests.agent_support import Scene
from tests.command_line import SMALL_CONFIG
from tests.fake_switch import FakeSwitch
from tests.fleet_support import EMPTY, MORE, given, settled
from tests.patience import eventually
from tests.unit import balancer as small
from xenoovs.agent.control.client import Client
from xenoovs.agent.daemon import Agent
from xenoovs.agent.fleet_config import FleetConfig
from xenoovs.decision.decision import DesiredState
from xenoovs.engine.engine import Appointment, Engine
from xenoovs.errors import AppointmentCancelled, BundleRejected, ChangesHeld, SwitchError
from xenoovs.model.balancer import Protocol
from xenoovs.openflow.flow import Cookies, Flow, service_of
from xenoovs.openflow.text import parse_dump

BEFORE = DesiredState(small.balancer(small.service(small.claim(), 3, 1)))
AFTER = DesiredState(small.balancer(small.service(small.claim(), 1, 3)))
LOCAL = "version: 1\nswitch: {bridge: ovsbr1, ingress: [p0], egress: p1}\n"


class Soon(Appointment):
    """A time that comes when `happens` has been called for each wait."""

    def __init__(self, *happens: Callable[[], None]) -> None:
        super().__init__(0.0)
        self.happens = list(happens)

    @property
    def left_s(self) -> float:
        return float(len(self.happens))

    def wait(self, *, ahead_s: float = 0.0) -> bool:
        self.happens.pop(0)()
        return super().wait()


def nothing() -> None:
    return


@pytest.fixture
def engine(switch: FakeSwitch) -> Engine:
    made = Engine(switch)
    made.round(BEFORE, now_s=0.0)
    switch.applied.clear()
    return made


def flows(switch: FakeSwitch) -> set[Flow]:
    return {seen.flow for seen in switch.all_flows("ovsbr1").values()}


def test_a_change_is_made_when_its_time_has_come_and_not_before(switch: FakeSwitch, engine: Engine) -> None:
    seen = list[tuple[int, int]]()

    def look() -> None:
        seen.append((len(switch.held), len(switch.applied)))

    appointment = Soon(look, look)
    change = engine.round(AFTER, now_s=1.0, appointment=appointment)
    assert (seen, len(switch.applied)) == ([(1, 0), (1, 0)], 1)
    assert not change.difference.is_empty
    assert engine.round(AFTER, now_s=2.0).difference.is_empty


def test_a_time_that_has_passed_and_a_change_without_flows_are_not_prepared(switch: FakeSwitch, engine: Engine) -> None:
    engine.round(BEFORE, now_s=1.0, appointment=Soon(nothing, nothing))
    engine.round(AFTER, now_s=1.0, appointment=Appointment(0.0))
    assert (switch.held, len(switch.applied)) == ([], 1)


def test_a_bridge_that_is_recreated_meanwhile_is_planned_for_again(switch: FakeSwitch, engine: Engine) -> None:
    with pytest.raises(AppointmentCancelled):
        engine.round(AFTER, now_s=1.0, appointment=Soon(lambda: switch.restart("ovsbr1"), nothing))
    assert switch.applied == []
    engine.round(AFTER, now_s=2.0, appointment=Soon(nothing, nothing))
    assert engine.round(AFTER, now_s=3.0).difference.is_empty


def with_other(*weights: int) -> DesiredState:
    """A service with these weights, and another one."""
    claims = (small.claim(IPv4Address(f"192.0.2.{n}"), protocol=Protocol.UDP) for n in (1, 2))
    return DesiredState(
        small.balancer(small.service(next(claims), *weights), small.service(next(claims), name="other"))
    )


def test_before_its_time_only_the_services_that_change_are_read(
    switch: FakeSwitch, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, read = Engine(switch), list[set[int]]()
    engine.round(with_other(3, 1), now_s=0.0)

    def noting(bridge: str, *, only: Cookies) -> str:
        text = FakeSwitch.dump_flow_text(switch, bridge, only=only)
        read.append({service_of(seen.flow.cookie) for seen in parse_dump(text)})
        return text

    monkeypatch.setattr(switch, "dump_flow_text", noting)
    change = engine.round(with_other(1, 3), now_s=1.0, appointment=Soon(nothing, nothing))
    # Before the wait, after it, and what the change has left.
    assert (len(change.touched), read) == (1, [set(change.touched)] * 3)


@pytest.mark.parametrize("wait", [0, 1])
def test_one_that_is_cancelled_or_paused_in_the_last_moment_changes_nothing(
    switch: FakeSwitch, engine: Engine, wait: int
) -> None:
    before, appointment = flows(switch), Soon(nothing, nothing)
    appointment.happens[wait] = appointment.cancel
    with pytest.raises(AppointmentCancelled):
        engine.round(AFTER, now_s=1.0, appointment=appointment)
    with pytest.raises(ChangesHeld):
        engine.round(AFTER, now_s=1.0, appointment=Soon(nothing, lambda: setattr(engine, "is_held", True)))
    assert flows(switch) == before


def test_a_commit_that_fails(switch: FakeSwitch, engine: Engine) -> None:
    lost = Soon(nothing, lambda: switch.fail_next(SwitchError("the connection is lost")))
    with pytest.raises(SwitchError, match="lost"):
        engine.round(AFTER, now_s=1.0, appointment=lost)
    assert switch.applied == []
    # A bundle that Open vSwitch has dropped is planned again and made at once.
    dropped = BundleRejected(bridge="ovsbr1", error="OFPBFC_TIMEOUT", message="the opening", advice="")
    change = engine.round(AFTER, now_s=1.0, appointment=Soon(nothing, lambda: switch.fail_next(dropped)))
    assert (change.difference.is_empty, len(switch.applied)) == (False, 1)
    assert engine.round(AFTER, now_s=2.0).difference.is_empty


# An agent whose view of the store has a time.

FAR_MS = 1 << 50
"""A time that no clock has yet: an agent waits for as long as it waits at most."""
VIEW = settled(given(EMPTY, SMALL_CONFIG))
PLANNED = replace(settled(given(VIEW, MORE)), switch_at_ms=FAR_MS)


@contextmanager
def preparing(scene: Scene) -> Iterator[tuple[Agent, Client, FleetConfig]]:
    """An agent that has prepared a change and waits for its time."""
    scene.config.write_text(LOCAL)
    config = FleetConfig(scene.config, VIEW, "dpu1")
    with scene.agent(config=config, resync_s=1e6) as (agent, client):
        config.offer(PLANNED)
        agent.request_poll()
        eventually(lambda: bool(scene.switch.held), "a change is prepared")
        yield agent, client, config


def test_an_agent_prepares_a_view_and_switches_to_it_also_after_a_reload_meanwhile(scene: Scene) -> None:
    with preparing(scene) as (agent, _, config):
        before, held = scene.flows, len(scene.switch.held)
        agent.reload()
        eventually(lambda: len(scene.switch.held) > held, "the same change is prepared again")
        eventually(lambda: config.good.view == PLANNED, "the change is committed")
        assert scene.flows != before
        eventually(lambda: agent.state.round.rounds == 2, "the round ends, the second one")


def test_a_pause_does_not_wait_for_a_prepared_change_and_an_agent_that_stops_leaves_the_flows(scene: Scene) -> None:
    with preparing(scene):
        before = scene.flows
    assert scene.flows == before
    with preparing(scene) as (agent, client, _):
        before = scene.flows
        client.ask("pause")
        assert scene.flows == before
        eventually(lambda: bool(agent.state.round.held), "the pause holds the change back")
        client.ask("resume")
        eventually(lambda: scene.flows != before, "the change is made")


def test_a_view_that_is_for_now_does_not_wait_for_the_one_before(scene: Scene) -> None:
    with preparing(scene) as (agent, _, config):
        newest = replace(settled(given(PLANNED, SMALL_CONFIG.replace("70", "10"))), switch_at_ms=0)
        config.offer(newest)
        agent.request_poll()
        eventually(lambda: config.good.view == newest, "the newest view is applied")
        assert len(scene.switch.applied) == 2
