"""Replies of servers' agents that are wrong or missing, and weights that cannot be; scenarios have the good ones."""

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
from xenoovs.show.snapshot import Snapshot, parse_snapshot

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
    """An agent, and what the agents of its servers reply; None if nothing."""

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


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ("fine", "the reply cannot be used: 'fine' is not a word of agent-check"),
        ("", "the reply cannot be used: it has no word"),
        ("up down", "the reply cannot be used: its words contradict each other"),
        (None, "connection refused"),
    ],
)
def test_a_wrong_or_silent_agent_is_reported_and_changes_nothing(scene: Scene, reply: str | None, problem: str) -> None:
    with running(scene) as world:
        world.replies["a"] = "50%"
        eventually(lambda: world.snapshot.services[0].backends[0].weight_in_use == 1, "half of its weight is in use")
        world.replies["a"] = reply
        world.wait_for_notice(f"web/a: the agent of its server does not reply: {problem}")
        assert "; its last reply '50%' stays in effect" in world.notices
        backend = world.snapshot.services[0].backends[0]
        assert (backend.weight_in_use, backend.last_change) == (1, "50% advertised by its agent")
        world.replies["a"] = "75%"
        eventually(lambda: "does not reply" not in world.notices, "the agent replies again")
        texts = [event["text"] for event in world.client.ask("events")["events"]]
        assert "internal error" not in "".join(texts)
        assert "agent of a server does not reply" in texts


def test_a_reply_that_makes_an_internal_error_is_a_failed_one(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def mistaken(_line: str) -> NoReturn:
        raise ZeroDivisionError

    with running(scene) as world:
        world.wait(0.5, 0.5)
        with monkeypatch.context() as patch:
            patch.setattr(health, "parse_reply", mistaken)
            world.wait_for_notice("internal error: ZeroDivisionError: , test_agent_check.py:")
        world.replies = dict.fromkeys("ab", "drain")
        world.wait_for_notice("all servers advertise drain or 0%")
        assert "does not reply" not in world.notices


def test_weights_that_cannot_be_installed_are_ignored_and_all_else_goes_on(scene: Scene) -> None:
    with running(scene, more="match: {bits: 2}") as world:
        world.wait(0.5, 0.5)
        world.replies["a"] = "1%"
        world.wait_for_notice("web: the weights that its servers advertise are ignored: ")
        world.wait(0.5, 0.5)
        assert world.agent.state.round.error == ""
        world.client.ask("drain", {"service": "web", "backend": "a"})
        world.wait(0, 1)
