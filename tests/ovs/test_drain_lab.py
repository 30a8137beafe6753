"""Real TCP connections in the lab while their clients move: kept in a drain, cut after it."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread

import pytest

from tests.compiled import moves_of
from tests.ovs.agents import running_agent
from tests.ovs.lab_support import before_services, running_lab
from tests.ovs.ways import live_switch
from tests.patience import PATIENCE_S, eventually
from xenoovs.agent.daemon import Agent
from xenoovs.agent.probe.sockets import in_namespace
from xenoovs.decision.decision import Phase
from xenoovs.lab.host import kill_and_wait, processes_in
from xenoovs.lab.lab import Lab
from xenoovs.model.load import load_config

VIP = "10.3.10.45", 80
CONFIG = before_services("drain: {mode: pin, timeout: 5m, idle_timeout: 5s}")
LONG = CONFIG.replace("idle_timeout: 5s", "idle_timeout: 5m")


class Server(ThreadingTCPServer):
    """Answers each byte with its name."""

    daemon_threads, allow_reuse_address, request_queue_size = True, True, 256
    name = b""


class Answer(BaseRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, Server)
        while self.request.recv(1):
            self.request.sendall(self.server.name)


def ask(connection: socket.socket) -> str:
    """The server that answers by an open connection, or the error of one that was cut."""
    try:
        connection.sendall(b"?")
        return connection.recv(8).decode() or "closed"
    except OSError as error:
        return type(error).__name__


def asked(connections: Sequence[socket.socket], *, times: int = 40) -> list[str]:
    """Who answers each connection, always the same."""
    found = [{ask(connection) for _ in range(times)} for connection in connections]
    return [" ".join(sorted(names)) for names in found]


@dataclass(frozen=True, slots=True)
class World:
    """A lab with an agent, servers that keep connections, and clients."""

    lab: Lab
    file: Path
    agent: Agent
    opened: list[socket.socket] = field(default_factory=list)

    @property
    def sources(self) -> list[str]:
        """Twenty addresses of clients, of both halves."""
        net = self.lab.topology.clients.nets[0].split("/")[0].rsplit(".", 1)[0]
        return [f"{net}.{number}" for number in range(10, 30)]

    def connect(self, source: str) -> socket.socket:
        namespace = self.lab.topology.clients.namespace
        return in_namespace(namespace, lambda: socket.create_connection(VIP, PATIENCE_S, (source, 0)))

    def open(self, *sources: str) -> list[str]:
        """Open connections that stay; their servers."""
        begin = len(self.opened)
        self.opened.extend(map(self.connect, sources))
        return asked(self.opened[begin:])

    def fresh(self, count: int, sources: Sequence[str]) -> list[str]:
        """The servers of new connections."""
        found = []
        for source in sources:
            for _ in range(count):
                with self.connect(source) as connection:
                    found += asked([connection], times=2)
        return found

    def of_backend_one(self) -> list[str]:
        """Ten clients whose server is `one`, each with a connection that is open and in use."""
        mine = [source for source in self.sources if self.fresh(1, [source]) == ["one"]]
        assert self.open(*mine) == ["one"] * 10
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
        def is_settling() -> bool:
            moves = moves_of(live_switch(self.lab.ovs).dump_flows("ovsbr1"))
            return any(move.phase is Phase.SETTLING for _, move in moves)

        eventually(lambda: not is_settling(), "new connections that go on")

    def is_draining(self) -> bool:
        return "table=2," in live_switch(self.lab.ovs).dump_flow_text("ovsbr1")


@pytest.fixture
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    """`request.param`: the config's text."""
    file = tmp_path / "my.yaml"
    file.write_text(getattr(request, "param", CONFIG))
    with ExitStack() as stack:
        lab = stack.enter_context(running_lab("drain", load_config(file), tmp_path / "labs"))
        for machine in lab.topology.machines:
            kill_and_wait(processes_in(machine.namespace))
            server = stack.enter_context(in_namespace(machine.namespace, lambda: Server(VIP, Answer)))
            server.name = machine.names[0].encode()
            Thread(target=server.serve_forever).start()
            stack.callback(server.shutdown)
        agent = stack.enter_context(running_agent(file, lab.ovs.directory))
        eventually(lambda: agent.state.round.rounds == 1, "flows at first")
        made = World(lab, file, agent)
        yield made
        for each in made.opened:
            each.close()


def test_connections_survive_a_drain(world: World) -> None:
    mine = world.of_backend_one()
    world.begin_drain()
    # Their megaflows are there now. New connections must not meet them, not even with the first packets of the first.
    assert asked(world.opened, times=1) == ["one"] * 10
    assert world.fresh(5, mine) == ["two"] * 50
    assert asked(world.opened, times=120) == ["one"] * 10
    assert world.is_draining()
    # Nobody asks for more: the drain ends by itself, and what is open then is cut.
    eventually(lambda: not world.is_draining(), "the end of the drain")
    assert ask(world.opened[0]) == "ConnectionResetError"
    assert world.fresh(1, mine) == ["two"] * 10


@pytest.mark.parametrize("world", [LONG], ids=["long"], indirect=True)
def test_a_second_change_in_the_middle_cuts_nobody(world: World) -> None:
    mine = world.of_backend_one()
    others = [source for source in world.sources if source not in mine]
    world.begin_drain()
    assert world.open(mine[0], *others) == ["two"] * 11
    world.change(LONG)
    before = ["one"] * 10 + ["two"] * 11
    assert asked(world.opened) == before
    world.settle()
    assert sorted(world.fresh(1, [*mine, *others])) == ["one"] * 10 + ["two"] * 10
    assert asked(world.opened) == before
