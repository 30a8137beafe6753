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
from xenoovs.compile.read import read
from xenoovs.decision.decision import Phase
from xenoovs.lab.host import kill_and_wait, processes_in
from xenoovs.lab.lab import Lab
from xenoovs.model.load import load_config
from xenoovs.openflow.text import parse_dump
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.management import ManagementSwitch

VIP, PORT = "10.3.10.45", "80"
HERE = Path(__file__).parent
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
LONG, NONE = CONFIG.replace("idle_timeout: 5s", "idle_timeout: 5m"), CONFIG.replace("mode: pin", "mode: none")


@dataclass(frozen=True, slots=True)
class World:
    """A lab with an agent, servers that give out a file piece by piece, and clients that keep connections open."""

    lab: Lab
    file: Path
    agent: Agent
    clients: subprocess.Popen[str]

    @property
    def sources(self) -> list[str]:
        """Twenty addresses of clients, of both halves."""
        net = self.lab.topology.clients.nets[0].split("/")[0].rsplit(".", 1)[0]
        return [f"{net}.{number}" for number in range(10, 30)]

    def say(self, *words: object) -> str:
        """Tell the clients what to do, and return what came of it."""
        assert self.clients.stdin is not None
        assert self.clients.stdout is not None
        print(*words, file=self.clients.stdin, flush=True)
        return self.clients.stdout.readline().strip()

    def fresh(self, count: int, sources: list[str]) -> list[str]:
        return self.say("fresh", count, *sources).split()

    def read(self, connections: int, pieces: int) -> list[str]:
        """Ask for so many pieces by each of the first connections."""
        return [self.say("read", number, pieces) for number in range(connections)]

    def of_backend_one(self) -> list[str]:
        """Ten clients whose server is `one`, each with a connection that is open and in use."""
        mine = [source for source in self.sources if self.fresh(1, [source]) == ["one"]]
        assert [self.say("open", source) for source in mine] == ["one"] * 10
        assert self.read(10, 5) == ["right"] * 10
        return mine

    def change(self, text: str) -> None:
        rounds = self.agent.state.round.rounds
        self.file.write_text(text)
        eventually(lambda: self.agent.state.round.rounds > rounds, "a round")

    def begin_drain(self) -> None:
        """Take backend one out, and wait until new connections go to the other."""
        self.change(self.file.read_text().replace("00:02, weight: 1", "00:02, weight: 0"))
        assert self.is_draining()
        assert "one" in self.fresh(1, self.sources[:4])
        self.settle()

    def settle(self) -> None:
        eventually(lambda: not self.is_settling(), "new connections that go on")

    def flows(self) -> str:
        return ManagementSwitch(Endpoint(self.lab.ovs.db, self.lab.ovs.directory)).dump_flow_text("ovsbr1")

    def is_settling(self) -> bool:
        _, transition = read(parse_dump(self.flows()), load_config(self.file))
        return any(move.phase is Phase.SETTLING for _, moves in transition.services for move in moves)

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
    """`request.param`: the config's text."""
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
        eventually(lambda: agent.state.round.rounds == 1, "flows at first")
        client = program(lab.topology.clients.namespace, str(HERE / "drain_client.py"), VIP, PORT)
        yield World(lab, file, agent, stack.enter_context(client))


def test_downloads_survive_a_drain(world: World) -> None:
    mine = world.of_backend_one()
    world.begin_drain()
    # Their megaflows are there now. New connections must not meet them, not even with the first packets of the first.
    assert world.read(10, 1) == ["right"] * 10
    assert world.fresh(5, mine) == ["two"] * 50
    for _ in range(3):
        assert world.read(10, 40) == ["right"] * 10
    assert world.is_draining()
    # Nobody asks for more: the drain ends by itself, and what is open then is cut.
    eventually(lambda: not world.is_draining(), "the end of the drain")
    assert world.read(1, 1) == ["ConnectionResetError"]
    assert world.fresh(1, mine) == ["two"] * 10


@pytest.mark.parametrize("world", [NONE], ids=["none"], indirect=True)
def test_without_a_drain_downloads_are_cut(world: World) -> None:
    mine = world.of_backend_one()
    world.change(NONE.replace("00:02, weight: 1", "00:02, weight: 0"))
    assert not world.is_draining()
    assert world.read(10, 40) == ["ConnectionResetError"] * 10
    assert world.fresh(5, mine) == ["two"] * 50


@pytest.mark.parametrize("world", [LONG], ids=["long"], indirect=True)
def test_a_second_change_in_the_middle_cuts_nobody(world: World) -> None:
    mine = world.of_backend_one()
    others = [source for source in world.sources if source not in mine]
    world.begin_drain()
    assert [world.say("open", source) for source in (mine[0], *others)] == ["two"] * 11
    world.change(LONG)
    assert world.read(21, 40) == ["right"] * 21
    world.settle()
    assert sorted(world.fresh(1, [*mine, *others])) == ["one"] * 10 + ["two"] * 10
    assert world.read(21, 40) == ["right"] * 21
