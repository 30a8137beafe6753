"""Log lines of a round: some of very many services, and backends that are down and held."""

from __future__ import annotations

from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest

from tests.agent_support import Scene, make_scene
from tests.fake_switch import FakeSwitch, fake_bridge
from tests.patience import eventually
from tests.unit import balancer as small
from tests.unit.agent.test_control_answering import DEAD
from xenoovs.agent.daemon import Agent
from xenoovs.agent.probe.target import ProbeResult, Target
from xenoovs.agent.report import Report
from xenoovs.decision.decision import DesiredState
from xenoovs.engine.change import Change
from xenoovs.engine.engine import Engine
from xenoovs.model.balancer import Balancer


class Answers:
    """Probes with given results. `refuses`: parts of targets that fail; all fail while `is_well` is False."""

    def __init__(self) -> None:
        self.is_well = True
        self.refuses: tuple[str, ...] = ()

    async def __call__(self, target: Target, *, timeout_s: float) -> ProbeResult:
        ok = self.is_well and not any(each in str(target) for each in self.refuses)
        return ProbeResult(ok=ok, latency_s=0.0, reason="answered" if ok else "refused")


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    scene = make_scene(tmp_path)
    scene.edit(
        "services:", "health: {probe: tcp, port: 53, interval: 50ms, timeout: 40ms, fall: 1, rise: 1}\nservices:"
    )
    scene.edit("weight: 70", "weight: 70, address: 198.51.100.2")
    scene.edit("weight: 30", f"weight: 30, address: {DEAD}")
    return scene


def logged(agent: Agent, text: str) -> list[dict[str, object]]:
    return [dict(event.facts) for event in agent.events.since(0) if event.text == text]


def test_a_held_backend_is_reported_once(scene: Scene) -> None:
    answers = Answers()
    held, over = "backends are down and keep their clients", "no backend that is down keeps its clients"
    with scene.agent(probe=answers) as (agent, _):
        (started,) = logged(agent, "starting")
        assert (started["bridge"], started["config"]) == ("ovsbr1", agent.config.digest)
        answers.is_well = False
        eventually(lambda: bool(logged(agent, held)), "no backend answers")
        answers.is_well = True
        eventually(lambda: bool(logged(agent, over)), "all backends answer again")
        assert {facts["service"] for facts in (*logged(agent, held), *logged(agent, over))} == {"dns"}
        assert len(logged(agent, over)) == 1


def test_a_backend_that_goes_down_during_a_round_is_not_reported_as_held(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = Answers()
    with scene.agent(probe=answers) as (agent, _):
        make_round = agent.engine.round

        def interrupted(*args: Any, **kwargs: Any) -> Change:
            if not answers.refuses:
                answers.refuses = (DEAD,)
                eventually(lambda: bool(agent.state.tracker.ejections), "fips3 is down")
            return make_round(*args, **kwargs)

        monkeypatch.setattr(agent.engine, "round", interrupted)
        eventually(lambda: agent.desired.ejected == {"dns": {"fips3"}} and agent.rounds == 2, "fips3 is ejected")
        assert logged(agent, "backends are down and keep their clients") == []


def test_of_very_many_services_those_with_most_moved_clients_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    def config(*weights: int) -> Balancer:
        claims = (small.claim(IPv4Address("10.0.0.0") + number) for number in range(100))
        return small.balancer(*(small.service(one, *weights, name=str(one.vips[0])) for one in claims))

    engine, report = Engine(FakeSwitch(fake_bridge("ovsbr1", ["p0", "p1"]))), Report()
    engine.round(DesiredState(config(3, 1)), now_s=0.0)
    done = engine.round(DesiredState(config(1, 3)), now_s=1.0)
    with caplog.at_level("INFO", logger="xenoovs.agent"):
        report.succeeded(done, bridge="b", config="c", now_s=1.0)
    assert [record.message for record in caplog.records].count("service changed") == 20
    facts = caplog.records[-1].__dict__["facts"]
    assert (caplog.records[-1].message, facts["services"]) == ("more services changed", 80)
    assert len(report.moved) == 100


def test_a_held_backend_is_logged_and_so_is_its_later_ejection(scene: Scene) -> None:
    answers = Answers()
    with scene.agent(probe=answers) as (agent, _):
        answers.is_well = False
        eventually(lambda: len(logged(agent, "backend down")) == 2, "no backend answers")
        eventually(lambda: bool(logged(agent, "backends are down and keep their clients")), "a round has decided")
        down, held = logged(agent, "backend down")
        assert "held" not in down
        assert held["held"] == held["backends"]
        answers.refuses, answers.is_well = (DEAD if held["backends"] == "dns/fips3" else "198.51.100.2",), True
        eventually(lambda: bool(logged(agent, "backend still down, and ejected now")), "the held backend is ejected")
        (again,) = logged(agent, "backend still down, and ejected now")
        assert again["backends"] == held["backends"]
        assert [facts["backends"] for facts in logged(agent, "backend up")] == [down["backends"]]
