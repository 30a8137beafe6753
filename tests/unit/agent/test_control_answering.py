"""A drain is refused if it would leave a service with only backends that do not answer."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from tests.agent_support import Scene, make_scene
from tests.patience import eventually
from tests.unit import balancer as small
from xenoovs.agent.daemon import Agent
from xenoovs.agent.health import HealthTracker
from xenoovs.agent.overrides import require_possible
from xenoovs.agent.probe.target import ProbeResult, Target, TcpTarget
from xenoovs.errors import AgentRefused, CompileError
from xenoovs.show.snapshot import Override

DEAD = "198.51.100.3"


async def all_but_one(target: Target, *, timeout_s: float) -> ProbeResult:
    assert isinstance(target, TcpTarget)
    is_well = str(target.address) != DEAD
    return ProbeResult(ok=is_well, latency_s=0.0, reason="answered" if is_well else "refused")


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """fips3 is down."""
    scene = make_scene(tmp_path)
    scene.edit("services:", "health: {probe: tcp, port: 53, interval: 100ms, timeout: 50ms, fall: 1}\nservices:")
    scene.edit("weight: 70", "weight: 70, address: 198.51.100.2")
    scene.edit("weight: 30", f"weight: 30, address: {DEAD}")
    return scene


def is_out(agent: Agent) -> bool:
    return bool(agent.desired.ejected.get("dns"))


@pytest.mark.parametrize(("route", "more"), [("drain", {}), ("weight", {"weight": 0})])
def test_the_last_that_answers_is_not_drained(scene: Scene, route: str, more: dict[str, int]) -> None:
    with scene.agent(probe=all_but_one) as (agent, client):
        eventually(lambda: is_out(agent), "fips3 is ejected")
        before = scene.flows
        with pytest.raises(AgentRefused, match=r"every other backend with a weight is down.*nothing was changed"):
            client.ask(route, {"service": "dns", "backend": "fips2", **more})
        assert (scene.flows, agent.state.runtime.overrides) == (before, ())
        assert client.ask("drain", {"service": "dns", "backend": "fips3"})["is_applied"]


def test_a_backend_that_only_an_operator_gave_a_weight_shows_its_health(scene: Scene) -> None:
    scene.edit("weight: 30", "weight: 0")
    with scene.agent(probe=all_but_one) as (agent, client):
        client.ask("weight", {"service": "dns", "backend": "fips3", "weight": 30})
        eventually(lambda: is_out(agent), "fips3 is ejected")
        (service,) = agent.snapshot().services
        assert [backend.state.value for backend in service.backends] == ["up", "down"]


def test_the_response_reports_a_slow_start(scene: Scene) -> None:
    scene.edit("fall: 1", "fall: 1, ramp: 60s")
    scene.edit(DEAD, "198.51.100.4")
    with scene.agent(probe=all_but_one) as (_, client):
        asked = {"service": "dns", "backend": "fips2"}
        assert "slow start" not in client.ask("drain", asked)["message"]
        assert "has the weight 70 (as the config says, by a slow start)" in client.ask("undrain", asked)["message"]


def test_a_drain_can_be_undone_after_an_edited_config_left_none_but_drained_backends() -> None:
    balancer = small.balancer(small.service(small.claim(), 1, 1))
    first, second = (Override("s", name, Fraction(0), 0.0, Fraction(1)) for name in ("b0", "b1"))
    with pytest.raises(CompileError, match="every backend with a weight is drained"):
        require_possible(HealthTracker(), balancer, (first, second))
    require_possible(HealthTracker(), balancer, (first,), instead_of=(first, second))
