"""What operators change on a running agent, where no scenario of tests/scenario/running can tell it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from unittest.mock import Mock

import pytest

from tests.agent_support import FIPS2, FIPS3, Scene, Servers
from tests.patience import eventually
from tests.unit import balancer as small
from xenoovs.agent import health
from xenoovs.agent.health import HealthTracker
from xenoovs.agent.overrides import require_possible
from xenoovs.decision.decision import with_weights
from xenoovs.errors import AgentRefused, CompileError, MacUnknown
from xenoovs.model.balancer import Balancer
from xenoovs.show.conditions import notices
from xenoovs.show.snapshot import Override, parse_snapshot

DRAIN = {"service": "dns", "backend": "fips2"}


def test_events_are_numbered_and_followed(scene: Scene) -> None:
    with scene.agent() as (_, client):
        first = client.ask("events")
        assert [event["number"] for event in first["events"]] == list(range(1, first["last"] + 1))
        client.ask("pause")
        assert next(client.events(first["last"]))["text"].startswith("paused")
        later = client.ask("events", query={"since": first["last"]})
        assert [event["level"] for event in later["events"]] == ["info"]


def test_a_response_reports_the_round_of_the_change(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if a round was already due: the round after the request then has no changes left."""
    longer_than_a_resync_s = 0.7
    monkeypatch.setattr("xenoovs.agent.reload.require_possible", lambda *_, **__: time.sleep(longer_than_a_resync_s))
    with scene.agent() as (_, client):
        assert client.ask("drain", DRAIN)["clients_moved"].keys() == {"dns"}


def no_mac(balancer: Balancer) -> Balancer:
    """As `with_macs` while this machine has not answered: it has no weight."""
    return with_weights(balancer, {("dns", "fips2"): Fraction(0)})


def none_known(_: Balancer) -> Balancer:
    raise MacUnknown(unknown={})


@pytest.mark.parametrize("resolve", [no_mac, none_known])
def test_an_override_of_a_backend_without_a_mac_yet_is_that_of_the_config(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, resolve: Callable[[Balancer], Balancer]
) -> None:
    """Such an override ended with the next reload, because it stored the weight 0."""
    with scene.agent() as (agent, client):
        with monkeypatch.context() as patch:
            patch.setattr(agent.engine, "resolve", resolve)
            with suppress(AgentRefused):
                client.ask("maintenance", DRAIN)
        assert {(float(each.weight), float(each.configured)) for each in agent.state.runtime.overrides} == {(70, 70)}


def test_a_drain_can_be_undone_after_an_edited_config_left_none_but_drained_backends() -> None:
    balancer = small.balancer(small.service(small.claim(), 1, 1))
    first, second = (Override("s", name, Fraction(0), 0.0, Fraction(1)) for name in ("b0", "b1"))
    with pytest.raises(CompileError, match="every backend with a weight is drained"):
        require_possible(HealthTracker(), balancer, (first, second))
    require_possible(HealthTracker(), balancer, (first,), instead_of=(first, second))


def test_a_reply_that_makes_an_internal_error_is_a_failed_one(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    servers = Servers()
    scene.edit("    backends:", "    agent_check: {port: 8080, interval: 20ms, timeout: 10ms}\n    backends:")
    scene.edit("weight: 70", f"weight: 2, address: {FIPS2}")
    scene.edit("weight: 30", f"weight: 2, address: {FIPS3}")
    with scene.agent(probe=servers.probe) as (_, client):

        def is_told(text: str) -> bool:
            return text in str([*notices(parse_snapshot(client.ask("status")["snapshot"]))])

        with monkeypatch.context() as patch:
            patch.setattr(health, "parse_reply", Mock(side_effect=ZeroDivisionError))
            eventually(lambda: is_told("internal error: ZeroDivisionError: "), "the error")
        servers.replies = dict.fromkeys((FIPS2, FIPS3), "drain")
        eventually(lambda: is_told("all servers advertise drain or 0%"), "their next replies")
        assert not is_told("does not reply")
