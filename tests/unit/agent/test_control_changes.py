"""Changes that operators request from a running agent through its socket."""

from __future__ import annotations

import time
from fractions import Fraction
from typing import Any

import pytest

from tests.agent_support import Scene
from tests.patience import eventually
from xenoovs.errors import AgentRefused
from xenoovs.show.snapshot import BackendState, Snapshot, parse_snapshot


def backend(name: str, **more: object) -> dict[str, Any]:
    return {"service": "dns", "backend": name, **more}


def seen(client: Any) -> Snapshot:
    return parse_snapshot(client.ask("status")["snapshot"])


def share(client: Any, name: str) -> float:
    (service,) = seen(client).services
    return next(one.share for one in service.backends if one.name == name)


def test_a_drained_backend_has_no_clients_until_undrain(scene: Scene) -> None:
    with scene.agent() as (_, client):
        before = scene.flows
        done = client.ask("drain", backend("fips2"))
        assert (done["is_applied"], done["clients_moved"]) == (True, {"dns": 0.6875})
        assert "68.75% of the clients of dns (least possible: 68.75%) moved by" in done["message"]
        assert share(client, "fips2") == 0
        (service,) = seen(client).services
        assert service.backends[0].state is BackendState.DRAINED
        client.ask("undrain", backend("fips2"))
        assert share(client, "fips2") == 0.6875
        assert len(scene.flows) == len(before)


def test_the_weight_of_the_config_is_no_override(scene: Scene) -> None:
    with scene.agent() as (_, client):
        client.ask("weight", backend("fips2", weight=30))
        client.ask("weight", backend("fips2", weight=70))
        assert seen(client).overrides == ()
        assert not scene.state.exists()


REFUSED = [
    ("drain", {"service": "dnss", "backend": "fips2"}, 404, "did you mean dns?"),
    ("drain", {"service": "dns", "backend": "fips22"}, 404, "did you mean fips2"),
    ("weight", {"service": "dns", "backend": "fips2", "weight": 0.00001}, 409, "tolerance"),
    ("weight", {"service": "dns", "backend": "fips2", "weight": -1}, 400, "below 0"),
    ("confirm", {}, 409, "no change waits"),
]


@pytest.mark.parametrize(("route", "request_", "status", "message"), REFUSED)
def test_what_cannot_be_is_refused(
    scene: Scene, route: str, request_: dict[str, Any], status: int, message: str
) -> None:
    with scene.agent() as (_, client):
        before = scene.flows
        with pytest.raises(AgentRefused, match=message) as refused:
            client.ask(route, request_)
        assert refused.value.status == status
        assert (seen(client).overrides, scene.flows) == ((), before)


def test_the_last_backend_is_drained_to_a_backup(scene: Scene) -> None:
    sorry = "{name: sorry, mac: 02:00:5e:10:00:09, weight: 1, backup: true}"
    scene.edit("    backends:\n", f"    backends:\n      - {sorry}\n")
    with scene.agent() as (_, client):
        assert share(client, "sorry") == 0
        client.ask("drain", backend("fips2"))
        client.ask("drain", backend("fips3"))
        assert [share(client, name) for name in ("sorry", "fips2", "fips3")] == [1, 0, 0]
        client.ask("undrain", backend("fips3"))
        assert [share(client, name) for name in ("sorry", "fips2", "fips3")] == [0, 0, 1]
        client.ask("drain", backend("sorry"))
        with pytest.raises(AgentRefused, match="every backend with a weight is drained"):
            client.ask("drain", backend("fips3"))


def test_a_paused_agent_reports_differences_and_changes_nothing(scene: Scene) -> None:
    with scene.agent(command_options=lambda: " --bridge ovsbr1") as (_, client):
        before = scene.flows
        assert client.ask("pause")["message"].endswith("changes nothing until `xenoovs resume --bridge ovsbr1`")
        done = client.ask("drain", backend("fips2"))
        assert not done["is_applied"]
        scene.edit("weight: 30", "weight: 60")
        eventually(lambda: seen(client).reloads == 1, "the config is read")
        victim = next(iter(scene.flows))
        scene.switch.remove_flow("ovsbr1", victim.key)
        eventually(lambda: seen(client).pending_flow_mods > 0, "a round finds the difference")
        assert scene.flows == before - {victim}
        client.ask("resume")
        assert (share(client, "fips2"), seen(client).pending_flow_mods, seen(client).is_paused) == (0, 0, False)


def test_overrides_and_a_pause_outlive_a_restart(scene: Scene) -> None:
    with scene.agent() as (_, client):
        client.ask("drain", backend("fips2"))
        since_s = seen(client).overrides[0].since_s
        client.ask("pause")
    assert scene.state.stat().st_mode & 0o777 == 0o600
    with scene.agent() as (_, client):
        assert seen(client).is_paused
        (override,) = seen(client).overrides
        assert (override.weight, override.since_s) == (Fraction(0), since_s)
        assert share(client, "fips2") == 0


def test_a_broken_state_is_reported_and_set_aside(scene: Scene) -> None:
    scene.state.write_text('{"version": 1, "overrides": 7}')
    with scene.agent() as (agent, client):
        assert seen(client).overrides == ()
        assert agent.state.round.rounds == 1
        assert "overrides are lost" in [event["text"] for event in client.ask("events")["events"]]
    assert not scene.state.exists()
    assert scene.state.with_name("state.json.broken").read_text() == '{"version": 1, "overrides": 7}'


def test_an_edit_of_the_file_ends_the_override_of_its_backend_alone(scene: Scene) -> None:
    with scene.agent() as (_, client):
        client.ask("weight", backend("fips2", weight=50))
        client.ask("weight", backend("fips3", weight=10))
        scene.edit("weight: 30", "weight: 40")
        eventually(lambda: len(seen(client).overrides) == 1, "one override has ended")
        (override,) = seen(client).overrides
        assert override.backend == "fips2"
        (service,) = seen(client).services
        assert [one.weight_in_use for one in service.backends] == [50, 40]


def test_a_new_name_moves_no_client_and_keeps_the_override(scene: Scene) -> None:
    with scene.agent() as (agent, client):
        client.ask("drain", backend("fips2"))
        before, rounds = scene.flows, agent.state.round.rounds
        scene.edit("name: dns", "name: resolvers")
        scene.edit("name: fips2", "name: first")
        eventually(lambda: seen(client).services[0].name == "resolvers", "the new name is shown")
        (override,) = seen(client).overrides
        assert (override.service, override.backend) == ("resolvers", "first")
        assert (scene.flows, agent.state.round.rounds) == (before, rounds)


def test_events_are_numbered_and_followed(scene: Scene) -> None:
    with scene.agent() as (_, client):
        first = client.ask("events")
        assert [event["number"] for event in first["events"]] == list(range(1, first["last"] + 1))
        client.ask("pause")
        assert next(client.events(first["last"]))["text"].startswith("paused")
        later = client.ask("events", query={"since": first["last"]})
        assert [event["level"] for event in later["events"]] == ["info"]


def test_a_response_reports_the_round_that_made_the_change(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if a round was already due: the round after the request then has no changes left."""
    with scene.agent() as (_, client):
        longer_than_a_resync_s = 0.7
        monkeypatch.setattr(
            "xenoovs.agent.reload.require_possible", lambda *_, **__: time.sleep(longer_than_a_resync_s)
        )
        done = client.ask("weight", backend("fips2", weight=30))
        assert done["clients_moved"] == {"dns": 0.1875}
