"""A backend that dies while a drain goes on: its own connections cannot be saved, all others are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ovs.drain_world import World, drain_world, sources
from tests.patience import eventually

pytestmark = pytest.mark.ovs

CONFIG = """\
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
    with drain_world(CONFIG, tmp_path) as world:
        yield Story(world)


def test_the_old_one_dies(story: Story) -> None:
    """The drain ends at once, so that its clients get a reset and can connect again."""
    story.world.dies("one")
    eventually(lambda: not story.world.is_draining(), "the end of the drain")
    assert story.broken() == {"one"}
    assert story.servers_of_new_ones() == {"two", "six"}


def test_the_new_one_dies(story: Story) -> None:
    """Connections that the old one still has stay with it; the blocks go to who is left."""
    rounds = story.world.agent.rounds
    story.world.dies("two")
    eventually(lambda: story.world.agent.rounds > rounds, "clients of the dead one lent to others")
    assert story.world.is_draining()
    assert story.broken() == {"two"}
    story.world.settle()
    assert story.servers_of_new_ones() == {"six"}
    assert story.broken() == {"two"}
