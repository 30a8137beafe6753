"""Real TCP connections in the lab while their clients move: kept with a drain, cut without one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.ovs.agents import running_agent
from tests.ovs.lab_support import running_lab
from tests.patience import eventually
from xenoovs.agent.daemon import Agent
from xenoovs.compile.holding import holdings_of
from xenoovs.config.load import load_config
from xenoovs.lab.lab import Lab
from xenoovs.lab.netns import processes_in
from xenoovs.lab.processes import kill_and_wait
from xenoovs.openflow.parse import parse_dump
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.live import LiveSwitch

pytestmark = pytest.mark.ovs

VIP, PORT = "10.3.10.45", "80"
HERE = Path(__file__).parent

CONFIG = """\
version: 1
switch: {bridge: ovsbr1, ingress: [p0], egress: p1}
drain: {mode: pin, timeout: 5m, rest: 5s}
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


@dataclass(frozen=True, slots=True)
class Clients:
    """The clients' end."""

    process: subprocess.Popen[str]

    def say(self, *words: object) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(*words, file=self.process.stdin, flush=True)
        return self.process.stdout.readline().strip()


@dataclass(frozen=True, slots=True)
class World:
    lab: Lab
    file: Path
    agent: Agent
    clients: Clients

    def change(self, text: str) -> None:
        rounds = self.agent.rounds
        self.file.write_text(text)
        eventually(lambda: self.agent.rounds > rounds, "a round")

    def flows(self) -> str:
        return LiveSwitch(Endpoint(self.lab.ovs.db, self.lab.ovs.directory)).dump_flow_text("ovsbr1")

    def begin_drain(self) -> None:
        """Take backend one out, and wait until new connections go to the other."""
        self.change(WITHOUT_ONE)
        assert self.is_draining()
        served = set(self.clients.say("fresh", 1, *sources(self.lab, 4)).split())
        assert served == {"one", "two"} or not self.is_settling()
        self.settle()

    def settle(self) -> None:
        eventually(lambda: not self.is_settling(), "new connections that go on")

    def is_settling(self) -> bool:
        held = holdings_of(parse_dump(self.flows()))
        return any(each.is_pinned and not each.has_settled for blocks in held.values() for each in blocks)

    def is_draining(self) -> bool:
        return "table=2," in self.flows()


@contextmanager
def program(namespace: str, *argv: str) -> Iterator[subprocess.Popen[str]]:
    command = ["ip", "netns", "exec", namespace, sys.executable, *argv]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    """A lab with an agent whose two backends give out a file; `request.param`: the config's text."""
    file = tmp_path / "my.yaml"
    file.write_text(getattr(request, "param", CONFIG))
    with ExitStack() as stack:
        lab = stack.enter_context(running_lab("drain", load_config(file), tmp_path / "labs"))
        for machine in lab.topology.machines:
            kill_and_wait(processes_in(machine.namespace))
            argv = (str(HERE / "drain_server.py"), machine.names[0], VIP, PORT)
            server = stack.enter_context(program(machine.namespace, *argv))
            assert server.stdout is not None
            assert server.stdout.readline() == "listening\n"
        agent = stack.enter_context(running_agent(file, lab.ovs.directory))
        eventually(lambda: agent.rounds == 1, "flows at first")
        client = program(lab.topology.clients.namespace, str(HERE / "drain_client.py"), VIP, PORT)
        clients = stack.enter_context(client)
        yield World(lab, file, agent, Clients(clients))


def sources(lab: Lab, count: int) -> list[str]:
    """Addresses of clients, of both halves."""
    net = lab.topology.clients.nets[0].split("/")[0].rsplit(".", 1)[0]
    return [f"{net}.{number}" for number in range(10, 10 + count)]


def of_backend_one(world: World) -> list[str]:
    """Ten clients whose server is `one`, each with a connection that is open and in use."""
    mine = [source for source in sources(world.lab, 20) if world.clients.say("fresh", 1, source) == "one"]
    assert len(mine) == 10
    for number, source in enumerate(mine):
        assert world.clients.say("open", source) == "one"
        assert world.clients.say("read", number, 5) == "right"
    return mine


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
