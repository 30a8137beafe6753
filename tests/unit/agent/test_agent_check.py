"""Servers advertise their weight and state: agents on real sockets, with valid and with wrong replies."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from ipaddress import IPv4Address
from threading import Thread
from typing import NoReturn

import pytest

from tests.agent_support import Scene
from tests.patience import eventually
from xenoovs.agent import health
from xenoovs.agent.control.client import Client
from xenoovs.agent.daemon import Agent
from xenoovs.agent.probe.run import Prober
from xenoovs.agent.probe.target import AgentTarget, ProbeResult, Target
from xenoovs.show.conditions import notices
from xenoovs.show.snapshot import BackendView, Snapshot, parse_snapshot

ADDRESSES = {"a": "127.0.0.2", "b": "127.0.0.3"}
"""Where the agents of 192.0.2.2 and 192.0.2.3 are: a config has no loopback addresses."""
CONFIG = """\
version: 1
switch: {bridge: ovsbr1, ingress: [p0], egress: p1}
services:
  - name: web
    vip: 192.0.2.10
    protocol: tcp
    ports: [80]
    %s
    agent_check: {port: %d, interval: 100ms, timeout: 90ms, send: "web\\n"}
    backends:
      - {name: a, mac: 02:00:5e:10:00:01, address: 192.0.2.2, weight: 2}
      - {name: b, mac: 02:00:5e:10:00:02, address: 192.0.2.3, weight: 2}
"""


async def probe_on_loopback(target: Target, *, timeout_s: float) -> ProbeResult:
    assert isinstance(target, AgentTarget)
    moved = replace(target, address=IPv4Address("127.0.0.0") + int(target.address) % 256)
    return await Prober().probe(moved, timeout_s=timeout_s)


class ServerAgent:
    """The agent of one server. `reply`: what it sends; None: it keeps the connection open, silent."""

    def __init__(self, address: str, port: int) -> None:
        self.reply: bytes | None = b"up 100%\n"
        self.asked = b""
        self._held: list[socket.socket] = []
        self._listener = socket.create_server((address, port))
        self.port: int = self._listener.getsockname()[1]
        Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listener.close()
        for each in self._held:
            each.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                if self.reply is None:
                    self._held.append(connection)
                    continue
                with connection, suppress(OSError):
                    self.asked = connection.recv(100)
                    connection.sendall(self.reply)


class World:
    def __init__(self, agent: Agent, client: Client, servers: dict[str, ServerAgent]) -> None:
        self.agent, self.client, self.servers = agent, client, servers

    @property
    def snapshot(self) -> Snapshot:
        return parse_snapshot(self.client.ask("status")["snapshot"])

    def backend(self, name: str) -> BackendView:
        return next(one for one in self.snapshot.services[0].backends if one.name == name)

    def wait(self, a: float, b: float) -> None:
        eventually(lambda: [one.share for one in self.snapshot.services[0].backends] == [a, b], f"shares {a} and {b}")

    @property
    def notices(self) -> str:
        return "\n".join(text for text, _ in notices(self.snapshot))


@contextmanager
def running(scene: Scene, *, more: str = "") -> Iterator[World]:
    first = ServerAgent(ADDRESSES["a"], 0)
    servers = {"a": first, "b": ServerAgent(ADDRESSES["b"], first.port)}
    scene.config.write_text(CONFIG % (more, first.port))
    try:
        with scene.agent(probe=probe_on_loopback) as (agent, client):
            yield World(agent, client, servers)
    finally:
        for server in servers.values():
            server.close()


@pytest.fixture
def world(scene: Scene) -> Iterator[World]:
    with running(scene) as made:
        yield made


def test_a_server_advertises_its_weight(world: World) -> None:
    world.wait(0.5, 0.5)
    assert world.servers["a"].asked == b"web\n"
    world.servers["a"].reply = b"50%\r\n"
    eventually(lambda: 0.3 < world.backend("a").share < 0.35, "the backend has half of its weight")
    assert world.backend("a").last_change == "50% advertised by its agent"
    moved = dict(world.agent.state.round.moved)
    world.servers["a"].reply = b"55%"
    eventually(lambda: (view := world.backend("a").agent) is not None and view.reply == "55%", "another reply is read")
    assert (world.backend("a").weight_in_use, dict(world.agent.state.round.moved)) == (1, moved)
    world.servers["a"].reply = b"100%\n"
    world.wait(0.5, 0.5)


@pytest.mark.parametrize("word", ["drain", "0%", "down#disk full", "maint", "stopped", "fail"])
def test_a_server_that_advertises_drain_has_no_clients_until_it_is_ready(world: World, word: str) -> None:
    world.servers["a"].reply = f"{word}\n".encode()
    world.wait(0, 1)
    world.servers["a"].reply = b"up\n" if word != "maint" else b"50%\n"
    if word in ("drain", "0%", "maint"):
        eventually(
            lambda: (view := world.backend("a").agent) is not None and view.reply != word, "another reply is read"
        )
        assert world.backend("a").share == 0
    world.servers["a"].reply = b"up ready 100%\n"
    world.wait(0.5, 0.5)


def test_an_operator_takes_precedence_over_an_agent(world: World) -> None:
    world.client.ask("drain", {"service": "web", "backend": "a"})
    world.servers["a"].reply = b"ready up 100%\n"
    eventually(
        lambda: (view := world.backend("a").agent) is not None and view.reply == "ready up 100%", "the reply is read"
    )
    assert world.backend("a").share == 0


def test_servers_that_all_advertise_drain_keep_their_clients(world: World) -> None:
    for word, text in (
        (b"drain\n", "all servers advertise drain or 0%"),
        (b"ready down\n", "advertise that they are down"),
    ):
        for server in world.servers.values():
            server.reply = word
        eventually(lambda text=text: text in world.notices, text)  # type: ignore[misc]
        world.wait(0.5, 0.5)


BAD: list[tuple[bytes | None, str]] = [
    (b"fine\n", "the reply cannot be used: 'fine' is no word of an agent"),
    (b"", "connection closed without a reply"),
    (b"\n", "the reply cannot be used: it has no word"),
    (b"up down\n", "the reply cannot be used: it says two things at once"),
    (b"x" * 5000, "no line end in the first 1024 bytes"),
    (b"\x1b[2J75%\n", "the reply is not printable ASCII"),
    (b"\xff\xfe\n", "the reply is not printable ASCII"),
    (None, "no whole line within 90ms"),
]


@pytest.mark.parametrize(("reply", "problem"), BAD, ids=range(len(BAD)))
def test_a_wrong_or_silent_agent_is_reported_and_changes_nothing(
    world: World, reply: bytes | None, problem: str
) -> None:
    world.servers["a"].reply = b"50%\n"
    eventually(lambda: world.backend("a").weight_in_use == 1, "the backend has half of its weight")
    world.servers["a"].reply = reply
    eventually(lambda: problem in world.notices, problem)
    assert "web/a: the agent of its server does not reply: " in world.notices
    assert "; its last reply '50%' stays in effect" in world.notices
    assert world.backend("a").weight_in_use == 1
    world.servers["a"].reply = b"75%\n"
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
        eventually(lambda: "internal error: ZeroDivisionError: , test_agent_check.py:" in world.notices, "it is shown")
    eventually(lambda: "does not reply" not in world.notices, "the agents reply again")


def test_an_agent_that_is_not_there_leaves_the_weight(world: World) -> None:
    world.servers["b"].close()
    eventually(
        lambda: "web/b: the agent of its server does not reply: connection refused" in world.notices,
        "the connection is refused",
    )
    world.wait(0.5, 0.5)


def test_weights_that_cannot_be_installed_are_ignored_and_all_else_goes_on(scene: Scene) -> None:
    with running(scene, more="match: {bits: 2}") as world:
        world.wait(0.5, 0.5)
        world.servers["a"].reply = b"1%\n"
        eventually(
            lambda: "web: the weights that its servers advertise are ignored: " in world.notices, "the reason is shown"
        )
        world.wait(0.5, 0.5)
        assert world.agent.state.round.error == ""
        world.client.ask("drain", {"service": "web", "backend": "a"})
        world.wait(0, 1)
