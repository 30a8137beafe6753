"""Servers advertise their weight and state: what becomes of good, wrong and missing replies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import pytest

from tests.agent_support import Scene
from tests.patience import eventually
from xenoovs.agent import health
from xenoovs.agent.control.client import Client
from xenoovs.agent.daemon import Agent
from xenoovs.agent.probe.target import AgentTarget, ProbeResult, Target
from xenoovs.show.conditions import notices
from xenoovs.show.snapshot import BackendView, Snapshot, parse_snapshot

CONFIG = """\
version: 1
switch: {bridge: ovsbr1, ingress: [p0], egress: p1}
services:
  - name: web
    vip: 192.0.2.10
    protocol: tcp
    ports: [80]
    %s
    agent_check: {port: 8080, interval: 20ms, timeout: 10ms}
    backends:
      - {name: a, mac: 02:00:5e:10:00:01, address: 192.0.2.2, weight: 2}
      - {name: b, mac: 02:00:5e:10:00:02, address: 192.0.2.3, weight: 2}
"""


class World:
    """An agent, and what the agents of its servers reply; None: nothing."""

    agent: Agent
    client: Client

    def __init__(self) -> None:
        self.replies: dict[str, str | None] = {"a": "up 100%", "b": "up 100%"}

    async def probe(self, target: Target, *, timeout_s: float) -> ProbeResult:
        assert isinstance(target, AgentTarget)
        reply = self.replies[" ab"[int(target.address) % 256 - 1]]
        if reply is None:
            return ProbeResult(ok=False, latency_s=0.0, reason="connection refused")
        return ProbeResult(ok=True, latency_s=0.0, reason="answered", reply=reply)

    @property
    def snapshot(self) -> Snapshot:
        return parse_snapshot(self.client.ask("status")["snapshot"])

    @property
    def a(self) -> BackendView:
        return self.snapshot.services[0].backends[0]

    def reply(self, text: str) -> None:
        """Let a server advertise this, and wait until that is read."""
        self.replies["a"] = text
        eventually(lambda: (view := self.a.agent) is not None and view.reply == text, f"{text} is read")

    def wait(self, a: float, b: float) -> None:
        eventually(lambda: [one.share for one in self.snapshot.services[0].backends] == [a, b], f"shares {a} and {b}")

    @property
    def notices(self) -> str:
        return "\n".join(text for text, _ in notices(self.snapshot))

    def wait_for_notice(self, text: str) -> None:
        eventually(lambda: text in self.notices, text)


@contextmanager
def running(scene: Scene, *, more: str = "") -> Iterator[World]:
    world = World()
    scene.config.write_text(CONFIG % more)
    with scene.agent(probe=world.probe) as (world.agent, world.client):
        yield world


@pytest.fixture
def world(scene: Scene) -> Iterator[World]:
    with running(scene) as made:
        yield made


def test_a_server_advertises_its_weight(world: World) -> None:
    world.wait(0.5, 0.5)
    world.replies["a"] = "50%"
    eventually(lambda: 0.3 < world.a.share < 0.35, "the backend has half of its weight")
    assert world.a.last_change == "50% advertised by its agent"
    moved = dict(world.agent.state.round.moved)
    world.reply("55%")
    assert (world.a.weight_in_use, dict(world.agent.state.round.moved)) == (1, moved)
    world.replies["a"] = "100%"
    world.wait(0.5, 0.5)


@pytest.mark.parametrize(("word", "more"), [("drain", "up"), ("maint", "50%"), ("down#disk full", "100%")])
def test_a_server_that_advertises_drain_has_no_clients_until_it_is_ready(world: World, word: str, more: str) -> None:
    world.replies["a"] = word
    world.wait(0, 1)
    world.reply(more)
    assert world.a.share == 0
    world.replies["a"] = "up ready 100%"
    world.wait(0.5, 0.5)


def test_an_operator_takes_precedence_over_an_agent(world: World) -> None:
    world.client.ask("drain", {"service": "web", "backend": "a"})
    world.reply("ready up 100%")
    assert world.a.share == 0


def test_servers_that_all_advertise_drain_keep_their_clients(world: World) -> None:
    for word, text in (
        ("drain", "all servers advertise drain or 0%"),
        ("ready down", "advertise that they are down"),
    ):
        world.replies = dict.fromkeys("ab", word)
        world.wait_for_notice(text)
        world.wait(0.5, 0.5)


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ("fine", "the reply cannot be used: 'fine' is not a word of agent-check"),
        ("", "the reply cannot be used: it has no word"),
        ("up down", "the reply cannot be used: its words contradict each other"),
        (None, "connection refused"),
    ],
)
def test_a_wrong_or_silent_agent_is_reported_and_changes_nothing(world: World, reply: str | None, problem: str) -> None:
    world.replies["a"] = "50%"
    eventually(lambda: world.a.weight_in_use == 1, "the backend has half of its weight")
    world.replies["a"] = reply
    world.wait_for_notice(f"web/a: the agent of its server does not reply: {problem}")
    assert "; its last reply '50%' stays in effect" in world.notices
    assert world.a.weight_in_use == 1
    world.replies["a"] = "75%"
    eventually(lambda: "does not reply" not in world.notices, "the agent replies again")
    texts = [event["text"] for event in world.client.ask("events")["events"]]
    assert "internal error" not in "".join(texts)
    assert "agent of a server does not reply" in texts


def test_a_reply_that_makes_an_internal_error_is_a_failed_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def mistaken(_line: str) -> NoReturn:
        raise ZeroDivisionError

    world.wait(0.5, 0.5)
    with monkeypatch.context() as patch:
        patch.setattr(health, "parse_reply", mistaken)
        world.wait_for_notice("internal error: ZeroDivisionError: , test_agent_check.py:")
    eventually(lambda: "does not reply" not in world.notices, "the agents reply again")


def test_weights_that_cannot_be_installed_are_ignored_and_all_else_goes_on(scene: Scene) -> None:
    with running(scene, more="match: {bits: 2}") as world:
        world.wait(0.5, 0.5)
        world.replies["a"] = "1%"
        world.wait_for_notice("web: the weights that its servers advertise are ignored: ")
        world.wait(0.5, 0.5)
        assert world.agent.state.round.error == ""
        world.client.ask("drain", {"service": "web", "backend": "a"})
        world.wait(0, 1)
