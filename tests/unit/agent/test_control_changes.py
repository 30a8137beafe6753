"""Changes of a running agent: what operators request through its socket, and what servers advertise."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tests.agent_support import FIPS2, FIPS3, Scene, Servers, checked_scene, make_scene
from tests.patience import eventually
from tests.unit import balancer as small
from xenoovs.agent import health
from xenoovs.agent.control.client import Client
from xenoovs.agent.daemon import Agent
from xenoovs.agent.health import HealthTracker
from xenoovs.agent.overrides import require_possible
from xenoovs.agent.probe.target import AgentTarget, ProbeResult, Target
from xenoovs.decision.decision import with_weights
from xenoovs.errors import AgentRefused, CompileError, MacUnknown
from xenoovs.model.balancer import Balancer
from xenoovs.show.conditions import notices
from xenoovs.show.snapshot import BackendState, BackendView, Override, Snapshot, parse_snapshot

CONFIG = """\
version: 1
switch: {bridge: ovsbr1, ingress: [p0], egress: p1}
services:
  - name: web
    vip: 192.0.2.10
    protocol: tcp
    ports: [80]
    backends:
      - {name: web1, mac: 02:00:5e:10:00:01, address: 192.0.2.21, weight: 1}
      - {name: web2, mac: 02:00:5e:10:00:02, address: 192.0.2.22, weight: 1}
      - {name: same, mac: 02:00:5e:10:00:03, weight: 1}
  - name: dns
    vip: 192.0.2.10
    protocol: udp
    ports: [53]
    backends:
      - {name: dns1, mac: 02:00:5e:10:00:01, weight: 1}
      - {name: web2, mac: 02:00:5e:10:00:02, weight: 1}
      - {name: same, mac: 02:00:5e:10:00:09, weight: 1}
"""
WEB1, WEB2 = ({"service": "web", "backend": name} for name in ("web1", "web2"))


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    made = make_scene(tmp_path)
    made.config.write_text(CONFIG)
    return made


Pair = tuple[Agent, Client]


@pytest.fixture
def pair(scene: Scene) -> Iterator[Pair]:
    with scene.agent() as both:
        yield both


def seen(client: Client) -> Snapshot:
    return parse_snapshot(client.ask("status")["snapshot"])


def backends(client: Client) -> dict[str, BackendView]:
    return {f"{service.name}/{one.name}": one for service in seen(client).services for one in service.backends}


def in_state(client: Client, state: BackendState) -> set[str]:
    return {name for name, backend in backends(client).items() if backend.state is state}


@pytest.mark.parametrize("server", ["web1", "dns1", "02:00:5E:10:00:01"])
def test_a_server_is_drained_in_all_services_in_one_round(pair: Pair, server: str) -> None:
    (agent, client), drained = pair, {"web/web1", "dns/dns1"}
    rounds = agent.state.round.rounds
    done = client.ask("drain", {"backend": server})
    assert done["backends"] == [WEB1, {"service": "dns", "backend": "dns1"}]
    assert (agent.state.round.rounds - rounds, done["is_applied"]) == (1, True)
    assert done["clients_moved"].keys() == {"web", "dns"}
    assert in_state(client, BackendState.DRAINED) == drained
    assert {name for name, each in backends(client).items() if not each.share} == drained
    assert "web/web1 is drained (the config says 1), dns/dns1 is drained (the config says 1): " in done["message"]
    assert client.ask("undrain", {"backend": server})["backends"] == done["backends"]
    assert in_state(client, BackendState.DRAINED) == set()


def test_the_weight_of_the_config_is_no_override(pair: Pair, scene: Scene) -> None:
    _, client = pair
    for weight in (3, 1):
        client.ask("weight", {**WEB1, "weight": weight})
    assert seen(client).overrides == ()
    assert not scene.state.exists()


Requests = list[tuple[str, dict[str, Any]]]
DNS_LEAVES: Requests = [("drain", {"service": "dns", "backend": name}) for name in ("web2", "same")]
MOST: Requests = [("maintenance", {"service": "web", "backend": name}) for name in ("web1", "same")]
SERVER: Requests = [("maintenance", {"backend": "web1"})]
HEAVY: Requests = [("weight", {**WEB1, "weight": 3})]
REFUSED: list[tuple[Requests, str, dict[str, Any], str, str]] = [
    ([], "drain", {"service": "wbe", "backend": "web1"}, "404 unknown_service", "did you mean web?"),
    ([], "drain", {"service": "web", "backend": "web11"}, "404 unknown_backend", "did you mean web1"),
    ([], "drain", {"service": "web", "backend": "dns1"}, "404 unknown_backend", "service web has no backend dns1"),
    ([], "drain", {"backend": "web3"}, "404 unknown_backend", "did you mean web2 or web1"),
    ([], "drain", {"backend": "02:00:5e:10:00:07"}, "404 unknown_backend", "has no backend 02:00:5e:10:00:07"),
    ([], "drain", {"backend": "zzz"}, "404 unknown_backend", "it has web1, web2, same, dns1"),
    ([], "drain", {"backend": "same"}, "409 ambiguous_backend", "web/same (02:00:5e:10:00:03@p1), dns/same"),
    ([], "drain", {"backend": "web1", "for_s": 0}, "400 bad_request", "not a time from 1"),
    ([], "drain", {"backend": "web1", "for_s": "30m"}, "400 bad_request", "not a time from 1"),
    ([], "weight", {"backend": "web1", "weight": 2}, "400 bad_request", "service is missing"),
    ([], "weight", {**WEB1, "weight": 0.00001}, "409 impossible", "tolerance"),
    ([], "weight", {**WEB1, "weight": -1}, "400 bad_request", "below 0"),
    ([], "confirm", {}, "409 nothing_waits", "no change waits"),
    ([], "pause", {"withdraw": True}, "409 not_announced", "the config announces no VIP"),
    (DNS_LEAVES, "drain", {"backend": "web1"}, "409 impossible", "service dns: every backend with a weight is drained"),
    (MOST, "drain", WEB2, "409 impossible", "every other backend with a weight is down or in maintenance"),
    (SERVER, "undrain", WEB1, "409 in_maintenance", "this ends maintenance: `xenoovs reset web/web1`"),
    (SERVER, "weight", {**WEB1, "weight": 3}, "409 in_maintenance", "web/web1 is in maintenance; end it first"),
    (HEAVY, "undrain", WEB1, "409 not_drained", "has weight 3 by an override; `xenoovs reset web/web1`"),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: f"{case[1]}: {case[4]}")
def test_what_cannot_be_is_refused_and_changes_nothing(
    pair: Pair, scene: Scene, case: tuple[Requests, str, dict[str, Any], str, str]
) -> None:
    (agent, client), (before, route, request, code, message) = pair, case
    for each in before:
        client.ask(*each)
    runtime, flows = agent.state.runtime, scene.flows
    with pytest.raises(AgentRefused) as refused:
        client.ask(route, request)
    assert f"{refused.value.status} {refused.value.code}" == code
    assert message in str(refused.value)
    assert (agent.state.runtime, scene.flows) == (runtime, flows)


def test_a_paused_agent_reports_differences_and_changes_nothing(scene: Scene) -> None:
    with scene.agent(command_options=lambda: " --bridge ovsbr1") as (_, client):
        before = scene.flows
        assert client.ask("pause")["message"].endswith("changes nothing until `xenoovs resume --bridge ovsbr1`")
        assert not client.ask("drain", WEB1)["is_applied"]
        scene.edit("192.0.2.22, weight: 1", "192.0.2.22, weight: 2")
        eventually(lambda: seen(client).reloads == 1, "the config is read")
        victim = next(iter(scene.flows))
        scene.switch.remove_flow("ovsbr1", victim.key)
        eventually(lambda: seen(client).pending_flow_mods > 0, "a round finds the difference")
        assert scene.flows == before - {victim}
        client.ask("resume")
        assert (seen(client).pending_flow_mods, seen(client).is_paused) == (0, False)
        assert backends(client)["web/web1"].share == 0


def test_overrides_and_a_pause_outlive_a_restart_and_a_broken_file_is_set_aside(scene: Scene) -> None:
    with scene.agent() as (_, client):
        client.ask("drain", {**WEB1, "for_s": 3000})
        client.ask("pause")
        (before,) = seen(client).overrides
    with scene.agent() as (_, client):
        (override,) = seen(client).overrides
        assert (override.weight, override.since_s) == (Fraction(0), before.since_s)
        assert override.until_s == pytest.approx(before.until_s)
        assert (seen(client).is_paused, backends(client)["web/web1"].share) == (True, 0)
    scene.state.write_text("{")
    with scene.agent() as (_, client):
        assert seen(client).overrides == ()
        assert "overrides are lost" in [event["text"] for event in client.ask("events")["events"]]
    assert [path.name for path in scene.directory.glob("state*")] == ["state.json.broken"]


def test_a_new_name_moves_no_client_and_keeps_the_override(pair: Pair, scene: Scene) -> None:
    agent, client = pair
    client.ask("drain", WEB1)
    before, rounds = scene.flows, agent.state.round.rounds
    scene.config.write_text(CONFIG.replace("name: web1", "name: first").replace("name: web\n", "name: pages\n"))
    eventually(lambda: "pages/first" in backends(client), "the new names are shown")
    assert [(each.service, each.backend) for each in seen(client).overrides] == [("pages", "first")]
    assert (scene.flows, agent.state.round.rounds) == (before, rounds)


def test_events_are_numbered_and_followed(pair: Pair) -> None:
    _, client = pair
    first = client.ask("events")
    assert [event["number"] for event in first["events"]] == list(range(1, first["last"] + 1))
    client.ask("pause")
    assert next(client.events(first["last"]))["text"].startswith("paused")
    later = client.ask("events", query={"since": first["last"]})
    assert [event["level"] for event in later["events"]] == ["info"]


def test_a_response_reports_the_round_of_the_change(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if a round was already due: the round after the request then has no changes left."""
    longer_than_a_resync_s = 0.7
    monkeypatch.setattr("xenoovs.agent.reload.require_possible", lambda *_, **__: time.sleep(longer_than_a_resync_s))
    assert pair[1].ask("drain", WEB1)["clients_moved"].keys() == {"web"}


def test_maintenance_is_at_once_and_ends_by_reset_and_of_all_it_drops_packets(pair: Pair) -> None:
    _, client = pair
    done = client.ask("maintenance", {"backend": "web1"})
    assert done["message"].startswith("web/web1 is in maintenance, dns/dns1 is in maintenance: ")
    found = backends(client)["web/web1"]
    assert (found.state, found.share, found.is_ejected) == (BackendState.MAINTENANCE, 0, True)
    for name in ("web2", "same"):
        done = client.ask("maintenance", {"service": "web", "backend": name})
        assert ("; no backend of web serves: packets are dropped" in done["message"]) == (name == "same")
    assert not any(each.share for name, each in backends(client).items() if name.startswith("web/"))
    client.ask("reset", {"backend": "web1"})
    assert backends(client)["web/web1"].share == 1


def test_what_is_set_for_a_time_ends_by_itself_and_is_shown_as_last_change(pair: Pair, scene: Scene) -> None:
    agent, client = pair
    assert {(each.changes, each.last_change, each.last_change_s) for each in backends(client).values()} == {
        (0, "", None)
    }
    for route in ("drain", "undrain"):
        client.ask(route, {"backend": "web1"})
    assert " for 2s: " in client.ask("maintenance", {"backend": "web1", "for_s": 1.5})["message"]
    assert abs((seen(client).overrides[0].until_s or 0) - time.time()) < 60
    eventually(lambda: not agent.state.runtime.overrides, "the maintenance has ended")
    eventually(lambda: 0 < backends(client)["web/web1"].share < 0.5, "the backend has its clients")
    reasons = [each["facts"]["reason"] for each in client.ask("events")["events"] if "has ended" in each["text"]]
    assert {*reasons} == {"its time is over"}
    found = backends(client)["dns/dns1"]
    assert (found.changes, found.last_change) == (4, "maintenance ended: its time is over")
    assert abs((found.last_change_s or 0) - time.time()) < 60
    scene.edit("192.0.2.22, weight: 1", "192.0.2.22, weight: 3")
    change = "weight 3 in the config, 1 before"
    eventually(lambda: backends(client)["web/web2"].last_change == change, "the config is reloaded")
    assert backends(client)["dns/web2"].changes == 0


def no_mac(balancer: Balancer) -> Balancer:
    """As `with_macs` while this machine has not answered: it has no weight."""
    return with_weights(balancer, {("web", "web2"): Fraction(0), ("dns", "web2"): Fraction(0)})


def none_known(_: Balancer) -> Balancer:
    raise MacUnknown(unknown={})


@pytest.mark.parametrize("resolve", [no_mac, none_known])
def test_an_override_of_a_backend_without_a_mac_yet_is_that_of_the_config(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, resolve: Callable[[Balancer], Balancer]
) -> None:
    """Such an override ended with the next reload, because it stored the weight 0."""
    agent, client = pair
    with monkeypatch.context() as patch:
        patch.setattr(agent.engine, "resolve", resolve)
        with suppress(AgentRefused):
            client.ask("maintenance", {"backend": "web2"})
    assert {(float(each.weight), float(each.configured)) for each in agent.state.runtime.overrides} == {(1, 1)}


# One of two backends is down, or starts slowly.

ONE_DOWN = Servers({FIPS3})


@pytest.mark.parametrize(("route", "more"), [("drain", {}), ("weight", {"weight": 0})])
def test_the_last_that_answers_is_not_drained(tmp_path: Path, route: str, more: dict[str, int]) -> None:
    scene = checked_scene(tmp_path)
    with scene.agent(probe=ONE_DOWN.probe) as (agent, client):
        eventually(lambda: agent.desired.ejected == {"dns": {"fips3"}}, "fips3 is ejected")
        before = scene.flows
        with pytest.raises(AgentRefused, match=r"every other backend with a weight is down.*nothing was changed"):
            client.ask(route, {"service": "dns", "backend": "fips2", **more})
        assert (scene.flows, agent.state.runtime.overrides) == (before, ())
        assert client.ask("drain", {"service": "dns", "backend": "fips3"})["is_applied"]


def test_the_response_reports_a_slow_start(tmp_path: Path) -> None:
    scene, asked = checked_scene(tmp_path), {"service": "dns", "backend": "fips2"}
    scene.edit("fall: 1", "fall: 1, ramp: 60s")
    with scene.agent(probe=Servers().probe) as (_, client):
        assert "slow start" not in client.ask("drain", asked)["message"]
        assert "has the weight 70 (as the config says, by a slow start)" in client.ask("undrain", asked)["message"]


def test_a_drain_can_be_undone_after_an_edited_config_left_none_but_drained_backends() -> None:
    balancer = small.balancer(small.service(small.claim(), 1, 1))
    first, second = (Override("s", name, Fraction(0), 0.0, Fraction(1)) for name in ("b0", "b1"))
    with pytest.raises(CompileError, match="every backend with a weight is drained"):
        require_possible(HealthTracker(), balancer, (first, second))
    require_possible(HealthTracker(), balancer, (first,), instead_of=(first, second))


class Advertisers:
    """An agent, and what the agents of its servers reply; None if nothing."""

    agent: Agent
    client: Client

    def __init__(self) -> None:
        self.replies: dict[str, str | None] = {FIPS2: "up 100%", FIPS3: "up 100%"}

    async def probe(self, target: Target, *, timeout_s: float) -> ProbeResult:
        assert isinstance(target, AgentTarget)
        reply = self.replies[str(target.address)]
        reason = "connection refused" if reply is None else "answered"
        return ProbeResult(ok=reply is not None, latency_s=0.0, reason=reason, reply=reply or "")

    def wait(self, a: float, b: float) -> None:
        eventually(lambda: [one.share for one in backends(self.client).values()] == [a, b], f"shares {a} and {b}")

    @property
    def notices(self) -> str:
        return "\n".join(text for text, _ in notices(seen(self.client)))

    def wait_for_notice(self, text: str) -> None:
        eventually(lambda: text in self.notices, text)


@contextmanager
def advertising(directory: Path, more: str = "") -> Iterator[Advertisers]:
    world, scene = Advertisers(), make_scene(directory)
    scene.edit(
        "    backends:", f"    {more}\n    agent_check: {{port: 8080, interval: 20ms, timeout: 10ms}}\n    backends:"
    )
    scene.edit("weight: 70", f"weight: 2, address: {FIPS2}")
    scene.edit("weight: 30", f"weight: 2, address: {FIPS3}")
    with scene.agent(probe=world.probe) as (world.agent, world.client):
        yield world


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ("fine", "the reply cannot be used: 'fine' is not a word of agent-check"),
        ("", "the reply cannot be used: it has no word"),
        ("up down", "the reply cannot be used: its words contradict each other"),
        (None, "connection refused"),
    ],
)
def test_a_wrong_or_silent_agent_is_reported_and_moves_nobody(tmp_path: Path, reply: str | None, problem: str) -> None:
    with advertising(tmp_path) as world:
        world.replies[FIPS2] = "50%"
        eventually(lambda: backends(world.client)["dns/fips2"].weight_in_use == 1, "half of its weight is in use")
        world.replies[FIPS2] = reply
        world.wait_for_notice(f"dns/fips2: the agent of its server does not reply: {problem}")
        assert "; its last reply '50%' stays in effect" in world.notices
        backend = backends(world.client)["dns/fips2"]
        assert (backend.weight_in_use, backend.last_change) == (1, "50% advertised by its agent")
        world.replies[FIPS2] = "75%"
        eventually(lambda: "does not reply" not in world.notices, "the agent replies again")
        texts = [event["text"] for event in world.client.ask("events")["events"]]
        assert "internal error" not in "".join(texts)
        assert "agent of a server does not reply" in texts


def test_a_reply_that_makes_an_internal_error_is_a_failed_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with advertising(tmp_path) as world:
        world.wait(0.5, 0.5)
        with monkeypatch.context() as patch:
            patch.setattr(health, "parse_reply", Mock(side_effect=ZeroDivisionError))
            world.wait_for_notice("internal error: ZeroDivisionError: , ")
        world.replies = dict.fromkeys((FIPS2, FIPS3), "drain")
        world.wait_for_notice("all servers advertise drain or 0%")
        assert "does not reply" not in world.notices


def test_weights_that_cannot_be_installed_are_ignored_and_all_else_goes_on(tmp_path: Path) -> None:
    with advertising(tmp_path, "match: {bits: 2}") as world:
        world.wait(0.5, 0.5)
        world.replies[FIPS2] = "1%"
        world.wait_for_notice("dns: the weights that its servers advertise are ignored: ")
        world.wait(0.5, 0.5)
        assert world.agent.state.round.error == ""
        world.client.ask("drain", {"service": "dns", "backend": "fips2"})
        world.wait(0, 1)
