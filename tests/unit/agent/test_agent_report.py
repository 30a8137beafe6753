"""Log lines of a drain: one at its start, one at its end, and none for the steps between."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from tests.fake_switch import FakeSwitch, fake_bridge
from tests.unit import balancer as small
from xenoovs.agent import report
from xenoovs.agent.report import Report
from xenoovs.decision.decision import DesiredState
from xenoovs.decision.ejection import Ejected
from xenoovs.engine.engine import Engine
from xenoovs.model.balancer import Drain, DrainMode

PLAIN = small.service(small.claim(), 1, 1)
PINNING = small.balancer(replace(PLAIN, drain=Drain(DrainMode.PIN, timeout_ms=20_000, idle_timeout_ms=20_000)))


class World:
    def __init__(self, events: list[str]) -> None:
        self.events = events
        self.switch = FakeSwitch(fake_bridge("ovsbr1", ["p0", "p1"]))
        self.engine, self.report = Engine(self.switch), Report()
        self.now_s = 0.0

    def after(self, seconds: float, out: Ejected, weights: tuple[int, ...] = (1, 1)) -> list[str]:
        """Return the events of a round that begins so many seconds after the last one."""
        self.now_s += seconds
        self.switch.age("ovsbr1", seconds)
        self.engine.count_drains(now_s=self.now_s)
        (service,) = PINNING.services
        backends = tuple(replace(b, weight=Fraction(w)) for b, w in zip(service.backends, weights, strict=True))
        balancer = replace(PINNING, services=(replace(service, backends=backends),))
        done = self.engine.round(DesiredState(balancer, out), now_s=self.now_s)
        self.events.clear()
        self.report.succeeded(done, bridge="ovsbr1", config="c", now_s=self.now_s)
        return list(self.events)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    events: list[str] = []
    for name in ("info", "warn"):
        monkeypatch.setattr(report, name, lambda event, **_facts: events.append(event))
    return World(events)


def test_a_drain_that_waits_for_open_vswitch_is_reported_once_each_time(world: World) -> None:
    for problem in ("hangs", "hangs", "", "hangs"):
        world.report.drains_measured(problem)
    assert world.events == ["drains wait for Open vSwitch"] * 2


def test_a_drain_is_logged_at_its_start_and_end(world: World) -> None:

    assert world.after(0, {}) == ["flows changed", "service installed"]
    begun = world.after(1, {}, (1, 0))
    assert begun == ["draining", "flows changed", "service changed"]
    settled, rounds = world.after(3, {}, (1, 0)), world.report.rounds
    assert (settled, rounds) == ([], 3)
    assert world.after(20, {}, (1, 0)) == ["drain complete"]
    assert world.report.rounds == 4
    assert world.report.moved["s"] == 0.5


def test_the_log_reports_clients_that_return_during_their_drain(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ways = list[object]()
    monkeypatch.setattr(report, "info", lambda _event, **facts: ways.extend([facts["ways"]] if "ways" in facts else []))
    for weights in ((1, 1), (1, 0), (1, 1), (1, 0)):
        world.after(0.2, {}, weights)
    one, two = (backend.name for backend in PINNING.services[0].backends)
    assert ways == [f"{two}->{one}", f"back with {two}", f"{two}->{one}"]
