"""A store with its controller, and DPUs: each an Open vSwitch of its own with an agent."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.command_line import SMALL_CONFIG, XENOOVS, CommandLine, CommandResult, start
from tests.ovs.dummy import DummyBridge, running_dummy_ovs
from tests.ovs.stores import transact
from tests.patience import PATIENCE_S, eventually
from xenoovs.store.rows import StoreDatabase
from xenoovs.store.servers import StorePort, create_databases, server_of, start_server, stop_server
from xenoovs.switch.endpoint import answers

LOCAL = "version: 1\nswitch: {bridge: ovsbr1, ingress: [p0], egress: p1, fleet_ports: {hosts: p2}}\n"


WAITING = ("apply", "drain", "reset", "weight")
"""Commands that wait until all DPUs have the new generation."""
ASKING = ("drain", "weight", "drain-dpu")


@dataclass
class FleetDpu:
    """A DPU: a bridge and the command line of its agent. `netns`: where it probes from; None: here."""

    name: str
    bridge: DummyBridge
    config: Path
    store: FleetServers
    netns: str | None = None
    process: subprocess.Popen[str] | None = None

    @property
    def socket(self) -> Path:
        return self.bridge.ovs.directory / "xenoovs" / "ovsbr1.sock"

    @property
    def cache(self) -> Path:
        return self.bridge.ovs.directory / "xenoovs" / "ovsbr1.fleet"

    def argv(self) -> list[str]:
        """The command line of its agent."""
        fleet, states = (self.store.remote(database) for database in StoreDatabase)
        remotes = ["--fleet", fleet, "--fleet-state", states]
        return [str(XENOOVS), "agent", str(self.config), "--db", self.bridge.ovs.db, *remotes, "--dpu", self.name]

    def start(self) -> None:
        self.process = start(*self.argv()[1:], netns=self.netns)

    def stop(self) -> str:
        """End the agent; return its log."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        _, log = self.process.communicate()
        self.process = None
        return log

    def kill(self) -> None:
        _kill(self.process)

    def answers(self) -> bool:
        return answers(self.socket)

    def flows(self) -> list[str]:
        return sorted(self.bridge.dump_flows())

    def blocks(self) -> list[str]:
        """The flows that split clients, without what DPUs have of their own."""
        lines = (line for line in self.flows() if "table=1" in line)
        return sorted(re.sub(r"cookie=[^,]*, |duration=[^,]*, ", "", line) for line in lines)


@dataclass
class FleetServers:
    """The directory of a store on this host, and its DPUs."""

    directory: Path
    xenoovs: CommandLine
    dpus: list[FleetDpu] = field(default_factory=list)
    controllers: list[subprocess.Popen[str]] = field(default_factory=list)

    def remote(self, database: StoreDatabase) -> str:
        return server_of(self.directory, database).remote

    def fleet(self, command: str, *arguments: object) -> CommandResult:
        """Run a command, which waits for DPUs as long as they may take on a busy machine."""
        patience = ("--timeout", f"{PATIENCE_S:g}s") if command in WAITING and "--timeout" not in arguments else ()
        sure = ("--yes",) if command in ASKING and "--dry-run" not in arguments else ()
        return self.xenoovs("fleet", "--directory", self.directory, command, *arguments, *sure, *patience)

    def create(self, *servers: StorePort) -> None:
        create_databases(self.directory, name="test", servers=servers)

    def start(self) -> None:
        for database in StoreDatabase:
            assert start_server(server_of(self.directory, database)) == ""

    def stop(self) -> None:
        for database in StoreDatabase:
            stop_server(server_of(self.directory, database))

    def start_controller(self, *, switch_after: str = "0s") -> None:
        self.controllers.append(start("fleet", "--directory", self.directory, "serve", "--switch-after", switch_after))

    def wait_active(self) -> None:
        """Wait until a controller decides: a command gives one that starts 15 s, too short beside other work."""
        process = self.controllers[0]
        assert process.stderr is not None
        assert any("active: the server leads" in line for line in process.stderr), "the controller has ended"

    def kill_controllers(self) -> None:
        for process in self.controllers:
            _kill(process)

    def end_controller(self) -> str:
        """End the oldest one; return its log."""
        process = self.controllers.pop(0)
        process.send_signal(signal.SIGTERM)
        return process.communicate()[1]

    def is_well(self) -> bool:
        return self.fleet("status").status == 0

    def status(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.fleet("status", "-o", "json").out)
        return document

    def states(self) -> dict[str, str]:
        """Of each DPU."""
        return {dpu["name"]: dpu["state"] for dpu in self.status()["dpus"]}

    def intents(self) -> list[str]:
        """The states of the configs, newest first."""
        return [row["state"] for row in self.history() if row["config"]]

    def history(self) -> list[dict[str, Any]]:
        """Its entries, newest first."""
        entries: list[dict[str, Any]] = json.loads(self.fleet("history", "-o", "json").out)["history"]
        return entries

    def transact(self, *operations: Mapping[str, object]) -> list[dict[str, Any]]:
        """Change rows as no xenoovs would."""
        answer = transact(self.remote(StoreDatabase.FLEET), None, *operations, database=StoreDatabase.FLEET.value)
        assert not any("error" in each for each in answer), answer
        return answer

    def select(self, table: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.transact({"op": "select", "table": table, "where": []})[0]["rows"]
        return rows


@contextmanager
def running_fleet(
    directory: Path,
    xenoovs: CommandLine,
    *,
    dpus: int = 2,
    netns: str | None = None,
    servers: Sequence[StorePort] = (),
    switch_after: str = "0s",
    text: str = SMALL_CONFIG,
) -> Iterator[FleetServers]:
    """A fleet with a controller and agents that run.

    servers: of its cluster. switch_after: as of `fleet serve`. text: the config that all have.
    """
    with ExitStack() as stack:
        store = FleetServers(directory / "store", xenoovs)
        store.create(*servers)
        stack.callback(store.stop)
        store.start()
        store.start_controller(switch_after=switch_after)
        stack.callback(store.kill_controllers)
        for number in range(1, dpus + 1):
            ovs = stack.enter_context(running_dummy_ovs(directory / f"d{number}"))
            bridge = stack.enter_context(ovs.bridge(ports=("p0", "p1", "p2")))
            config = directory / f"dpu{number}.yaml"
            config.write_text(LOCAL)
            dpu = FleetDpu(f"dpu{number}", bridge, config, store, netns)
            store.dpus.append(dpu)
            stack.callback(dpu.kill)
            assert store.fleet("add-dpu", dpu.name).status == 0
            dpu.start()
        store.wait_active()
        config = directory / "services.yaml"
        config.write_text(text)
        # A machine with much to do may start the controller late, and the agents later: they are waited for below.
        first = ("apply", config, "--now", "--yes", "--timeout", "1s")
        eventually(lambda: store.fleet(*first).status in (0, 2), "the first config")
        eventually(lambda: all(dpu.answers() for dpu in store.dpus), "the sockets of the agents")
        eventually(store.is_well, "the first config")
        yield store


def _kill(process: subprocess.Popen[str] | None) -> None:
    if process is not None:
        process.kill()
        process.communicate()


@contextmanager
def flow_changes(dpu: FleetDpu, file: Path) -> Iterator[Path]:
    """A file with every change of a flow of a bridge, as ovs-ofctl(8), `monitor`, tells them."""
    argv = ["ovs-ofctl", "monitor", dpu.bridge.management, "watch:"]
    with file.open("w") as out:
        process = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT, env=dpu.bridge.ovs.env)
    try:
        # The flows that are there come first.
        eventually(lambda: "event=ADDED" in file.read_text(), "the monitor")
        yield file
    finally:
        process.terminate()
        process.wait()
