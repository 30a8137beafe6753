"""Real TCP connections in the lab while their clients move: kept with a drain, cut without one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ovs.drain_world import World, drain_world, of_backend_one, sources
from tests.patience import eventually

pytestmark = pytest.mark.ovs

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


def test_the_connection_that_made_a_megaflow_survives(world: World) -> None:
    """The first of its block. The others go on using its megaflow while the drain begins."""
    numbers = [n for n, source in enumerate(sources(world.lab, 20)) if world.clients.say("open", source) == "one"]
    assert len(numbers) == 10
    assert [world.clients.say("read", number, 5) for number in numbers] == ["right"] * 10
    world.begin_drain()
    assert [world.clients.say("read", number, 40) for number in numbers] == ["right"] * 10


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
