"""A lab for drains: an agent, servers that give out a file piece by piece, and clients that keep connections open."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.ovs.agents import AtHome, running_agent
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
from xenoovs.switch.process import run

VIP, PORT = "10.3.10.45", "80"
HERE = Path(__file__).parent


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
    servers: Mapping[str, subprocess.Popen[str]]

    def dies(self, name: str) -> None:
        """A whole machine: its server ends, and no packet comes from there any more, not even a reset."""
        machine = next(one for one in self.lab.topology.machines if one.names == (name,))
        namespace = self.lab.topology.switch_namespace
        run(["ip", "-n", namespace, "link", "set", machine.switch_interface, "down"])
        self.servers[name].kill()

    def change(self, text: str) -> None:
        rounds = self.agent.state.round.rounds
        self.file.write_text(text)
        eventually(lambda: self.agent.state.round.rounds > rounds, "a round")

    def flows(self) -> str:
        return ManagementSwitch(Endpoint(self.lab.ovs.db, self.lab.ovs.directory)).dump_flow_text("ovsbr1")

    def begin_drain(self) -> None:
        """Take backend one out, and wait until new connections go to the other."""
        self.change(self.file.read_text().replace("00:02, weight: 1", "00:02, weight: 0"))
        assert self.is_draining()
        assert "one" in self.clients.say("fresh", 1, *sources(self.lab, 4)).split()
        self.settle()

    def settle(self) -> None:
        eventually(lambda: not self.is_settling(), "new connections that go on")

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


@contextmanager
def drain_world(config: str, directory: Path) -> Iterator[World]:
    """A lab with an agent whose backends give out a file; where the config has health checks they ask the servers."""
    file = directory / "my.yaml"
    file.write_text(config)
    balancer = load_config(file)
    with ExitStack() as stack:
        lab = stack.enter_context(running_lab("drain", balancer, directory / "labs"))
        servers = {}
        for machine in lab.topology.machines:
            kill_and_wait(processes_in(machine.namespace))
            argv = (str(HERE / "drain_server.py"), machine.names[0], VIP, PORT)
            server = servers[machine.names[0]] = stack.enter_context(program(machine.namespace, *argv))
            assert server.stdout is not None
            assert server.stdout.readline() == "listening\n"
        probe = AtHome(lab, balancer.services[0]).probe
        agent = stack.enter_context(running_agent(file, lab.ovs.directory, probe=probe))
        eventually(lambda: agent.state.round.rounds == 1, "flows at first")
        client = program(lab.topology.clients.namespace, str(HERE / "drain_client.py"), VIP, PORT)
        clients = stack.enter_context(client)
        yield World(lab, file, agent, Clients(clients), servers)


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
