"""A config is accepted once it is on the bridge; until then the last valid one stays."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest

from tests.agent_support import Scene
from tests.command_line import SMALL_CONFIG
from tests.fake_switch import fake_bridge
from tests.fleet_support import EMPTY, committed, given, settled
from tests.patience import eventually
from xenoovs.agent.daemon import Agent
from xenoovs.agent.fleet_config import FleetConfig
from xenoovs.agent.state import RoundFacts
from xenoovs.compile.pipeline import Stage, cookie_of
from xenoovs.decision.decision import DesiredState
from xenoovs.engine.change import Change
from xenoovs.engine.engine import Engine
from xenoovs.errors import CommandTimeout
from xenoovs.fleet.plan import with_override
from xenoovs.openflow.flow import service_of
from xenoovs.openflow.text import parse_dump
from xenoovs.store.view import Changes, FleetView


def problem(agent: Agent) -> str:
    return str(agent.config.problem or "")


@pytest.fixture
def revert(monkeypatch: pytest.MonkeyPatch) -> Callable[[Agent], None]:
    """Let the time for a confirmation be over."""

    def wait(agent: Agent) -> None:
        later = SimpleNamespace(monotonic=lambda: time.monotonic() + 3600, time=time.time)
        monkeypatch.setattr("xenoovs.agent.reload.time", later)
        agent.request_poll()
        eventually(lambda: "not confirmed" in problem(agent), "the revert")

    return wait


def tried(scene: Scene, agent: Agent, old: str = "weight: 30", new: str = "weight: 300") -> None:
    """Edit the config; return when it is applied and waits for its confirmation."""
    scene.edit(old, new)
    eventually(lambda: agent.snapshot().confirm_by_s is not None, "the config waits for its confirmation")


CANNOT_BE = {
    "a port that is not there": (("egress: p1", "egress: p7"), "port p7 is on no bridge"),
    "a weight that no split meets": (("weight: 70", "weight: 0.00001"), "5% cannot be met with 16 bits"),
    "a bridge that is not there": (("bridge: ovsbr1", "bridge: ovsbr9"), "bridge ovsbr9 does not exist"),
    "no YAML": (("version: 1", "version: ["), "my.yaml:"),
}


@pytest.mark.parametrize("name", CANNOT_BE)
def test_what_cannot_be_applied_does_not_replace_what_can_until_it_can(scene: Scene, name: str) -> None:
    edit, message = CANNOT_BE[name]
    with scene.agent() as (agent, _):
        before, digest = scene.flows, agent.config.digest
        scene.edit(*edit)
        eventually(lambda: message in problem(agent), "the config is refused")
        # Several rounds with the last valid one.
        done_s = agent.state.round.last_s or 0.0
        eventually(lambda: (agent.state.round.last_s or 0.0) > done_s, "another round is done")
        assert (scene.flows, agent.config.digest, agent.state.round.rounds) == (before, digest, 1)
        assert agent.snapshot().config_problem == problem(agent)
        assert agent.snapshot().candidate not in ("", digest)
        assert sum("the last good one stays" in event.text for event in agent.events.since(0)) == 1
        if "port" in name:
            scene.switch.set_ports(fake_bridge("ovsbr1", ["p0", "p1", "p7"]))
            eventually(lambda: problem(agent) == "", "the port and then the config are accepted")
            assert agent.config.balancer.uplinks.egress == "p7"


def test_a_service_that_is_removed_is_logged_with_its_name(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    web = "  - {name: web, vip: 10.3.10.46, backends: [{name: web1, mac: 02:00:5e:10:00:07, weight: 1}]}\n"
    scene.config.write_text(SMALL_CONFIG + web)
    with scene.agent() as (agent, _):
        scene.config.write_text(SMALL_CONFIG)
        eventually(lambda: agent.state.round.rounds == 2, "a round without the config")
    (removed,) = [vars(record)["facts"] for record in caplog.records if record.message == "service removed"]
    assert removed["service"] == "web"


def test_a_generation_of_a_fleet_that_changes_no_service_here_costs_no_round(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of a thousand DPUs compared all its flows for a drain on another DPU, and twice for its own."""
    scene.config.write_text("version: 1\nswitch: {bridge: ovsbr1, ingress: [p0], egress: p1}\n")
    view = settled(given(EMPTY, SMALL_CONFIG))
    config, rounds, make_round = FleetConfig(scene.config, view, "dpu1"), list[DesiredState](), Engine.round

    def counted(engine: Engine, desired: DesiredState, **options: Any) -> Change:
        rounds.append(desired)
        return make_round(engine, desired, **options)

    monkeypatch.setattr(Engine, "round", counted)
    with scene.agent(config=config, resync_s=1e6) as (agent, _):
        before, flows, heard = len(rounds), scene.flows, list[FleetView | None]()
        agent.store.subscribe(RoundFacts, lambda _: heard.append(config.good.view))
        later = replace(view, generation=view.generation + 1)
        config.offer(later)
        agent.request_poll()
        eventually(lambda: later in heard, "the next generation is applied")
        assert len(rounds) == before
        override = with_override(later, ("dns", "fips2"), Fraction(0), author="", now_ms=0)
        config.offer(settled(committed(later, Changes(overrides={("dns", "fips2"): override}))))
        agent.request_poll()
        eventually(lambda: scene.flows != flows, "the drain begins")
        assert len(rounds) > before


@pytest.mark.parametrize("is_lost", [False, True], ids=["", "the reply of the switch was lost"])
def test_an_unconfirmed_config_is_reverted_exactly(
    scene: Scene, revert: Callable[[Agent], None], *, is_lost: bool
) -> None:
    with scene.agent(confirm_s=60) as (agent, client):
        before, digest = scene.flows, agent.config.digest
        client.ask("weight", {"service": "dns", "backend": "fips3", "weight": 40})
        weighted = scene.flows
        if is_lost:
            scene.switch.lose_answer(CommandTimeout(argv=["ovs-ofctl"], timeout_s=1.0))
        tried(scene, agent)
        eventually(lambda: scene.flows != weighted, "the change is applied")
        revert(agent)
        assert scene.flows == weighted != before
        assert agent.config.digest == digest
        assert [override.weight for override in agent.state.runtime.overrides] == [40]


def test_a_drain_under_way_is_reverted_completely(scene: Scene, revert: Callable[[Agent], None]) -> None:
    """Also the flows that Open vSwitch learned for new connections meanwhile."""
    scene.edit("protocol: udp", "protocol: tcp")
    scene.edit("    backends:", "    drain: {mode: pin, timeout: 60s, idle_timeout: 60s}\n    backends:")
    with scene.agent(confirm_s=60) as (agent, _):
        before = scene.flows
        tried(scene, agent, "weight: 70", "weight: 0")
        cookie = cookie_of(Stage.LEARNED, service_id=agent.snapshot().services[0].service_id)
        text = f" cookie={cookie:#x}, table=2, idle_timeout=60, priority=30,tcp,tp_src=7 actions=drop"
        scene.switch.install("ovsbr1", (each.flow for each in parse_dump(text)))
        revert(agent)
        assert scene.flows == before


def test_while_a_pause_holds_it_back_no_config_is_accepted_unconfirmed_and_confirmed_it_stays(scene: Scene) -> None:
    with scene.agent(confirm_s=60) as (agent, client):
        before, digest = scene.flows, agent.config.digest
        client.ask("pause")
        scene.edit("weight: 30", "weight: 300")
        eventually(lambda: agent.snapshot().pending_flow_mods > 0, "the pause holds the change back")
        assert (scene.flows, agent.config.digest, agent.snapshot().confirm_by_s) == (before, digest, None)
        client.ask("resume")
        changed, shown = scene.flows, agent.snapshot()
        assert (shown.confirm_by_s is None, shown.rolls_back_to, shown.candidate) == (False, digest, "")
        client.ask("confirm")
        assert (agent.snapshot().confirm_by_s, agent.snapshot().rolls_back_to, problem(agent)) == (None, "", "")
        assert scene.flows == changed != before


def test_requests_are_answered_while_a_config_waits_for_the_switch(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: object, **__: object) -> None:
        raise CommandTimeout(argv=["ovs-ofctl"], timeout_s=1.0)

    with scene.agent() as (agent, client):
        monkeypatch.setattr(type(scene.switch), "dump_flows", silent)
        scene.edit("weight: 30", "weight: 300")
        eventually(lambda: agent.state.round.error != "", "the round fails")
        assert agent.snapshot().candidate != ""
        done = client.ask("drain", {"service": "dns", "backend": "fips2"})
        assert not done["is_applied"]
        assert "ovs-ofctl" in done["message"]
        monkeypatch.undo()
        eventually(lambda: agent.reloader.reloads == 1, "the new config is read")


def test_a_pause_and_a_later_drain_survive_the_revert(scene: Scene, revert: Callable[[Agent], None]) -> None:
    with scene.agent(confirm_s=60) as (agent, client):
        client.ask("weight", {"service": "dns", "backend": "fips2", "weight": 7})
        tried(scene, agent)
        client.ask("drain", {"service": "dns", "backend": "fips2"})
        drained = scene.flows
        client.ask("pause")
        revert(agent)
        assert (agent.snapshot().is_paused, scene.flows) == (True, drained)
        client.ask("resume")
        eventually(lambda: scene.flows == drained, "flows of the old config, without the drained one")
        assert [(o.backend, o.weight) for o in agent.state.runtime.overrides] == [("fips2", Fraction(0))]


def test_the_revert_leaves_other_services_unchanged(scene: Scene, revert: Callable[[Agent], None]) -> None:
    """Its drain continues; the revert of the changed service ended it too."""
    second = SMALL_CONFIG.partition("services:\n")[2].replace("dns", "ntp").replace("53", "123")
    scene.config.write_text(SMALL_CONFIG + second)
    with scene.agent(confirm_s=60) as (agent, client):
        first, before = agent.snapshot().services[0].service_id, scene.flows
        tried(scene, agent, "weight: 30}\n  - name: ntp", "weight: 300}\n  - name: ntp")
        client.ask("drain", {"service": "ntp", "backend": "fips2"})
        bundles, drained = len(scene.switch.applied), {f for f in scene.flows if service_of(f.cookie) != first}
        revert(agent)
        assert {f for f in scene.flows if service_of(f.cookie) != first} == drained
        assert {f for f in scene.flows if service_of(f.cookie) == first} < before
        ours = [mod.flow for _, bundle in scene.switch.applied[bundles:] for mod in bundle.mods]
        assert {service_of(flow.cookie) for flow in ours} == {first}


def test_overrides_that_the_previous_config_refuses_end_with_an_event(
    scene: Scene, revert: Callable[[Agent], None]
) -> None:
    with scene.agent(confirm_s=60) as (agent, client):
        tried(scene, agent, "    backends:", "    backends:\n      - {name: new, mac: 02:00:5e:10:00:09, weight: 9}")
        for name in ("fips2", "fips3"):
            client.ask("drain", {"service": "dns", "backend": name})
        revert(agent)
        eventually(lambda: agent.state.runtime.overrides == (), "both drains have ended")
        assert "an override has ended" in [event.text for event in agent.events.since(0)]
