"""One server in all services, through the socket of an agent: drain, maintenance, reset, and their end by time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tests.agent_support import Scene, make_scene
from tests.patience import eventually
from xenoovs.agent.control.client import Client
from xenoovs.agent.daemon import Agent
from xenoovs.decision.decision import with_weights
from xenoovs.errors import AgentRefused, MacUnknown
from xenoovs.model.balancer import Balancer
from xenoovs.show.snapshot import BackendState, BackendView, parse_snapshot

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


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    made = make_scene(tmp_path)
    made.config.write_text(CONFIG)
    return made


@pytest.fixture
def pair(scene: Scene) -> Iterator[tuple[Agent, Client]]:
    with scene.agent() as both:
        yield both


def backends(client: Client) -> dict[str, BackendView]:
    snapshot = parse_snapshot(client.ask("status")["snapshot"])
    return {f"{service.name}/{one.name}": one for service in snapshot.services for one in service.backends}


def in_state(client: Client, state: BackendState) -> set[str]:
    return {name for name, backend in backends(client).items() if backend.state is state}


@pytest.mark.parametrize("server", ["web1", "dns1", "02:00:5E:10:00:01"])
def test_a_server_is_drained_in_all_services_in_one_round(pair: tuple[Agent, Client], server: str) -> None:
    agent, client = pair
    rounds = agent.state.round.rounds
    done = client.ask("drain", {"backend": server})
    assert done["backends"] == [{"service": "web", "backend": "web1"}, {"service": "dns", "backend": "dns1"}]
    assert agent.state.round.rounds == rounds + 1
    assert set(done["clients_moved"]) == {"web", "dns"}
    assert in_state(client, BackendState.DRAINED) == {"web/web1", "dns/dns1"}
    assert "web/web1 is drained (the config says 1), dns/dns1 is drained (the config says 1): " in done["message"]
    assert client.ask("undrain", {"backend": server})["backends"] == done["backends"]
    assert in_state(client, BackendState.DRAINED) == set()


REFUSED: list[tuple[str, dict[str, Any], int, str, str]] = [
    ("drain", {"backend": "web3"}, 404, "unknown_backend", "did you mean web2 or web1"),
    ("drain", {"backend": "02:00:5e:10:00:07"}, 404, "unknown_backend", "has no backend 02:00:5e:10:00:07"),
    ("drain", {"backend": "zzz"}, 404, "unknown_backend", "it has web1, web2, same, dns1"),
    ("drain", {"backend": "same"}, 409, "ambiguous_backend", "web/same .02:00:5e:10:00:03@p1., dns/same"),
    ("drain", {"service": "web", "backend": "dns1"}, 404, "unknown_backend", "service web has no backend dns1"),
    ("drain", {"backend": "web1", "for_s": 0}, 400, "bad_request", "not a time from 1"),
    ("drain", {"backend": "web1", "for_s": "30m"}, 400, "bad_request", "not a time from 1"),
    ("weight", {"backend": "web1", "weight": 2}, 400, "bad_request", "service is missing"),
]


@pytest.mark.parametrize(("route", "request_", "status", "code", "message"), REFUSED)
def test_a_server_that_is_unknown_or_ambiguous_is_refused(
    pair: tuple[Agent, Client], route: str, request_: dict[str, Any], status: int, code: str, message: str
) -> None:
    with pytest.raises(AgentRefused, match=message) as refused:
        pair[1].ask(route, request_)
    assert (refused.value.status, refused.value.code) == (status, code)
    assert pair[0].state.runtime.overrides == ()


def test_a_server_is_drained_in_all_services_or_in_none(pair: tuple[Agent, Client]) -> None:
    agent, client = pair
    client.ask("drain", {"service": "dns", "backend": "web2"})
    client.ask("drain", {"service": "dns", "backend": "same"})
    before = agent.state.runtime
    with pytest.raises(AgentRefused, match=r"service dns: every backend with a weight is drained.*nothing was changed"):
        client.ask("drain", {"backend": "web1"})
    assert agent.state.runtime == before


def test_maintenance_is_at_once_and_ends_by_reset(pair: tuple[Agent, Client]) -> None:
    _, client = pair
    done = client.ask("maintenance", {"backend": "web1"})
    assert done["message"].startswith("web/web1 is in maintenance, dns/dns1 is in maintenance: ")
    found = backends(client)["web/web1"]
    assert (found.state, found.share, found.is_ejected) == (BackendState.MAINTENANCE, 0, True)
    before = backends(client)
    with pytest.raises(AgentRefused, match=r"web/web1 is in maintenance; .*`xenoovs reset web/web1`"):
        client.ask("undrain", {"backend": "web1"})
    with pytest.raises(AgentRefused, match="web/web1 is in maintenance; end it first"):
        client.ask("weight", {"service": "web", "backend": "web1", "weight": 3})
    assert backends(client) == before
    client.ask("reset", {"backend": "web1"})
    assert {each.state for each in backends(client).values()} == {BackendState.UNCHECKED}
    assert backends(client)["web/web1"].share > 0


def test_a_drain_of_the_last_that_is_not_in_maintenance_is_refused(pair: tuple[Agent, Client]) -> None:
    _, client = pair
    for name in ("web1", "same"):
        client.ask("maintenance", {"service": "web", "backend": name})
    with pytest.raises(AgentRefused, match="every other backend with a weight is down or in maintenance"):
        client.ask("drain", {"service": "web", "backend": "web2"})


def test_undrain_of_another_weight_names_reset(pair: tuple[Agent, Client]) -> None:
    _, client = pair
    client.ask("weight", {"service": "web", "backend": "web1", "weight": 3})
    with pytest.raises(AgentRefused, match="has weight 3 by an override; `xenoovs reset web/web1`"):
        client.ask("undrain", {"service": "web", "backend": "web1"})
    assert backends(client)["web/web1"].weight_in_use == 3


def test_maintenance_of_all_drops_packets_and_is_reported(pair: tuple[Agent, Client]) -> None:
    _, client = pair
    for name in ("web1", "web2", "same"):
        done = client.ask("maintenance", {"service": "web", "backend": name})
        assert ("; no backend of web serves: packets are dropped" in done["message"]) == (name == "same")
    assert {name: each.share for name, each in backends(client).items() if name.startswith("web/")} == {
        "web/web1": 0,
        "web/web2": 0,
        "web/same": 0,
    }


@pytest.mark.parametrize("route", ["drain", "maintenance", "weight"])
def test_what_is_set_for_a_time_ends_by_itself(pair: tuple[Agent, Client], route: str) -> None:
    agent, client = pair
    more = {"weight": 5} if route == "weight" else {}
    done = client.ask(route, {"service": "web", "backend": "web1", "for_s": 1.5, **more})
    assert " for 2s: " in done["message"]
    (override,) = parse_snapshot(client.ask("status")["snapshot"]).overrides
    assert override.until_s is not None
    assert abs(override.until_s - time.time()) < 60
    eventually(lambda: not agent.state.runtime.overrides, "the override has ended")
    eventually(lambda: 0 < backends(client)["web/web1"].share < 0.5, "the backend has its clients")
    assert in_state(client, BackendState.UNCHECKED) == set(backends(client))
    assert ("an override has ended", "its time is over") in {
        (event["text"], event["facts"].get("reason")) for event in client.ask("events")["events"]
    }


@contextmanager
def clock_that_jumps(monkeypatch: pytest.MonkeyPatch, by_s: float) -> Iterator[None]:
    now = time.time
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: now() + by_s)
        yield


def test_time_goes_on_while_the_agent_is_not_there(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    with scene.agent() as (_, client):
        client.ask("drain", {"backend": "web1", "for_s": 3000})
        client.ask("drain", {"backend": "web2", "for_s": 1.2})
    end_s = time.monotonic() + 1.2
    eventually(lambda: time.monotonic() > end_s, "the shorter drain has ended")
    # A date that jumps by a day neither ends nor prolongs anything.
    with clock_that_jumps(monkeypatch, 86_400), scene.agent() as (_, client):
        eventually(lambda: in_state(client, BackendState.DRAINED) == {"web/web1", "dns/dns1"}, "one drain is left")
        snapshot = parse_snapshot(client.ask("status")["snapshot"])
        lefts = {override.until_s - snapshot.now_s for override in snapshot.overrides if override.until_s is not None}
        assert all(2900 < left <= 3000 for left in lefts)


def test_each_backend_has_its_last_change_and_their_number(pair: tuple[Agent, Client], scene: Scene) -> None:
    _, client = pair
    assert {(each.changes, each.last_change, each.last_change_s) for each in backends(client).values()} == {
        (0, "", None)
    }
    client.ask("drain", {"backend": "web1"})
    client.ask("undrain", {"backend": "web1"})
    client.ask("maintenance", {"backend": "web1", "for_s": 1})
    eventually(lambda: backends(client)["web/web1"].changes == 4, "the maintenance has ended")
    found = backends(client)
    assert found["dns/dns1"].last_change == "maintenance ended: its time is over"
    assert abs((found["dns/dns1"].last_change_s or 0) - time.time()) < 60
    scene.config.write_text(CONFIG.replace("address: 192.0.2.22, weight: 1", "address: 192.0.2.22, weight: 3"))
    eventually(
        lambda: backends(client)["web/web2"].last_change == "weight 3 in the config, 1 before", "the config is reloaded"
    )
    assert backends(client)["dns/web2"].changes == 0


def no_mac(balancer: Balancer) -> Balancer:
    """As `with_macs` while this machine has not answered: it has no weight."""
    return with_weights(balancer, {("web", "web2"): Fraction(0), ("dns", "web2"): Fraction(0)})


def none_known(_: Balancer) -> Balancer:
    raise MacUnknown(unknown={})


@pytest.mark.parametrize("resolve", [no_mac, none_known])
def test_an_override_of_a_backend_without_a_mac_yet_is_that_of_the_config(
    pair: tuple[Agent, Client], monkeypatch: pytest.MonkeyPatch, resolve: Callable[[Balancer], Balancer]
) -> None:
    """Such an override ended with the next reload, because it stored the weight 0."""
    agent, client = pair
    with monkeypatch.context() as patch:
        patch.setattr(agent.engine, "resolve", resolve)
        with suppress(AgentRefused):
            client.ask("maintenance", {"backend": "web2"})
    assert {(float(each.weight), float(each.configured)) for each in agent.state.runtime.overrides} == {(1, 1)}
