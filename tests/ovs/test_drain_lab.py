"""Real TCP connections in the lab while their clients move: kept with a drain, cut without one, or by a death."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ovs.drain_world import World, drain_world, of_backend_one, sources
from tests.patience import eventually

CONFIG = """\
version: 1
switch: {bridge: ovsbr1, ingress: [p0], egress: p1}
drain: {mode: pin, timeout: 5m, idle_timeout: 5s}
services:
  - name: web
    vip: 10.3.10.45
    protocol: tcp
    ports: [80]
    vip_mac: 02:00:5e:10:00:01
    backends:
      - {name: one, mac: 02:00:5e:10:00:02, weight: 1}
      - {name: two, mac: 02:00:5e:10:00:03, weight: 1}
"""
WITHOUT_ONE = CONFIG.replace("00:02, weight: 1", "00:02, weight: 0")


@pytest.fixture
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    """`request.param`: the config's text."""
    with drain_world(getattr(request, "param", CONFIG), tmp_path) as made:
        yield made


def test_downloads_survive_a_drain(world: World) -> None:
    mine = of_backend_one(world)
    world.begin_drain()
    # Their megaflows are there now. New connections must not meet them, not even with the first packets of the first.
    assert [world.clients.say("read", number, 1) for number in range(10)] == ["right"] * 10
    assert world.clients.say("fresh", 5, *mine).split() == ["two"] * 50
    for _ in range(3):
        assert [world.clients.say("read", number, 40) for number in range(10)] == ["right"] * 10
    assert world.is_draining()
    # Nobody asks for more: the drain ends by itself, and what is open then is cut.
    eventually(lambda: not world.is_draining(), "the end of the drain")
    assert world.clients.say("read", 0, 1) == "ConnectionResetError"
    assert world.clients.say("fresh", 1, *mine).split() == ["two"] * 10


@pytest.mark.parametrize("world", [CONFIG.replace("mode: pin", "mode: none")], indirect=True)
def test_without_a_drain_downloads_are_cut(world: World) -> None:
    mine = of_backend_one(world)
    world.change(WITHOUT_ONE.replace("mode: pin", "mode: none"))
    assert not world.is_draining()
    assert [world.clients.say("read", number, 40) for number in range(10)] == ["ConnectionResetError"] * 10
    assert world.clients.say("fresh", 5, *mine).split() == ["two"] * 50


def test_a_second_change_in_the_middle_cuts_nobody(world: World) -> None:
    mine = of_backend_one(world)
    others = [source for source in sources(world.lab, 20) if source not in mine]
    world.begin_drain()
    assert world.clients.say("open", mine[0]) == "two"
    assert [world.clients.say("open", source) for source in others] == ["two"] * 10
    world.change(CONFIG)
    assert [world.clients.say("read", number, 40) for number in range(21)] == ["right"] * 21
    world.settle()
    assert sorted(world.clients.say("fresh", 1, *mine, *others).split()) == ["one"] * 10 + ["two"] * 10
    assert [world.clients.say("read", number, 40) for number in range(21)] == ["right"] * 21


THREE = """\
version: 1
switch: {bridge: ovsbr1, ingress: [p0], egress: p1}
drain: {mode: pin, timeout: 60s, idle_timeout: 60s}
health: {probe: tcp, interval: 200ms, fast_interval: 50ms, timeout: 150ms, fall: 5, rise: 2}
services:
  - name: web
    vip: 10.3.10.45
    protocol: tcp
    ports: [80]
    vip_mac: 02:00:5e:10:00:01
    backends:
      - {name: one, mac: 02:00:5e:10:00:02, weight: 1, address: 198.51.100.1}
      - {name: two, mac: 02:00:5e:10:00:03, weight: 1, address: 198.51.100.2}
      - {name: six, mac: 02:00:5e:10:00:04, weight: 2, address: 198.51.100.3}
"""


class Story:
    """Connections by number, of clients of all backends, and in the drain new ones of those that backend one had."""

    def __init__(self, world: World) -> None:
        self.world, self.servers = world, list[str]()
        clients = sources(world.lab, 24)
        for source in clients:
            self.open(source)
        self.of_one = [source for source, server in zip(clients, self.servers, strict=True) if server == "one"]
        assert set(self.servers) == {"one", "two", "six"}
        world.begin_drain()
        for source in self.of_one:
            self.open(source)
        assert set(self.servers[len(clients) :]) == {"two", "six"}
        assert self.broken() == set()

    def open(self, source: str) -> None:
        self.servers.append(self.world.clients.say("open", source))

    def broken(self) -> set[str]:
        """The servers whose connections were reset, after one more piece was asked of each."""
        said = [self.world.clients.say("read", number, 1) for number in range(len(self.servers))]
        assert set(said) <= {"right", "ConnectionResetError", "BrokenPipeError"}
        for server in set(self.servers):
            assert len({word for word, of in zip(said, self.servers, strict=True) if of == server}) == 1
        return {server for word, server in zip(said, self.servers, strict=True) if word != "right"}

    def servers_of_new_ones(self) -> set[str]:
        return set(self.world.clients.say("fresh", 1, *self.of_one).split())


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    with drain_world(THREE, tmp_path) as world:
        yield Story(world)


def test_the_old_one_dies(story: Story) -> None:
    """The drain ends at once, so that its clients get a reset and can connect again."""
    story.world.dies("one")
    eventually(lambda: not story.world.is_draining(), "the end of the drain")
    assert story.broken() == {"one"}
    assert story.servers_of_new_ones() == {"two", "six"}


def test_the_new_one_dies(story: Story) -> None:
    """Connections that the old one still has stay with it; the blocks go to who is left."""
    rounds = story.world.agent.state.round.rounds
    story.world.dies("two")
    eventually(lambda: story.world.agent.state.round.rounds > rounds, "clients of the dead one lent to others")
    assert story.world.is_draining()
    assert story.broken() == {"two"}
    story.world.settle()
    assert story.servers_of_new_ones() == {"six"}
    assert story.broken() == {"two"}
