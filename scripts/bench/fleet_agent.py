"""A fleet of 1,000 services at its controller and at one agent, whose Open vSwitch has a dummy datapath.

Times are of processors, each with the children that it has waited for, but for the first `fleet apply`.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from scripts.bench.agent_load import cpu_s
from scripts.bench.configs import large_config
from scripts.bench.measure import XENOOVS, Row, process
from xenoovs.lab.private_ovs import Datapath, PrivateOvs, start_private_ovs, stop_private_ovs
from xenoovs.store.rows import StoreDatabase
from xenoovs.store.servers import create_databases, server_of, start_server, stop_server

_SERVICES, _BACKENDS, _DRAINS = 1000, 16, 4
_PATIENCE_S, _QUIET_S = 120.0, 3.0


def rows() -> Iterator[Row]:
    """Yield what a start, the first config, a new service, another VIP and drains cost."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ovs = start_private_ovs(directory / "ovs", datapath=Datapath.DUMMY)
        stack.callback(stop_private_ovs, ovs)
        os.environ.update(ovs.env)
        ports = [word for port in ("p0", "p1") for word in ("--", "add-port", "ovsbr1", port)]
        types = [word for port in ("p0", "p1") for word in ("--", "set", "interface", port, "type=dummy")]
        ovs.vsctl("add-br", "ovsbr1", "--", "set", "bridge", "ovsbr1", "datapath_type=dummy", *ports, *types)
        fleet = _Fleet(directory, ovs)
        fleet.start(stack)
        config = large_config(directory, services=_SERVICES, backends=_BACKENDS)
        with fleet.agent(str(config)) as agent:
            own_s = fleet.started_s(agent)
        fleet.clear()
        yield from fleet.figures(config, own_s, stack)


@dataclass(frozen=True, slots=True)
class _Fleet:
    """A store with its controller, and the bridge of one DPU."""

    directory: Path
    ovs: PrivateOvs

    def start(self, stack: ExitStack) -> None:
        create_databases(self.directory / "store", name="bench")
        for database in StoreDatabase:
            files = server_of(self.directory / "store", database)
            stack.callback(stop_server, files)
            if reason := start_server(files):
                raise RuntimeError(reason)

    def figures(self, config: Path, own_s: float, stack: ExitStack) -> Iterator[Row]:
        controller = stack.enter_context(_running("fleet", "--directory", str(self.directory / "store"), "serve"))
        self.command("add-dpu", "dpu1")
        text = config.read_text()
        begun_s, before_s = time.monotonic(), cpu_s(controller)
        cost = self.command("apply", str(config), "--now", "--yes", "--timeout", "1s")
        yield Row(f"fleet apply, {_SERVICES} new services: until it is decided", time.monotonic() - begun_s - 1, "s", 5)
        yield Row("  CPU of the command", cost, "s")
        yield Row("  CPU of the controller", cpu_s(controller) - before_s, "s")
        local = self.directory / "dpu.yaml"
        local.write_text("version: 1\nswitch: {bridge: ovsbr1, ingress: [p0], egress: p1}\n")
        remotes = [server_of(self.directory / "store", each).remote for each in StoreDatabase]
        joined = ("--fleet", remotes[0], "--fleet-state", remotes[1], "--dpu", "dpu1")
        with self.agent(str(local), *joined) as agent:
            fleet_s = self.started_s(agent)
            yield Row(f"agent, {_SERVICES} services of a fleet: CPU of its start", fleet_s, "s", 2)
            yield Row("  / with them in its own file", fleet_s / own_s, "x", 1.3)
            other = self.directory / "other.yaml"
            for name, changed in (
                ("a VIP", text.replace("vip: 10.0.5.1\n", "vip: 10.99.5.1\n")),
                ("a service less", text[: text.rindex("  - name:")].replace("vip: 10.0.5.1\n", "vip: 10.99.5.1\n")),
                ("a service more", text),
            ):
                other.write_text(changed)
                yield from self.change(name, agent, controller, "apply", str(other), "--now", "--yes")
            costs = [
                list(self.change("a drain", agent, controller, *words, "service-7", "backend-7-3"))
                for words in (("drain", "--yes"), ("reset",)) * (_DRAINS // 2)
            ]
            for same in zip(*costs, strict=True):
                yield Row(same[0].name, statistics.median(each.value for each in same), "s", same[0].bound)

    def change(self, name: str, agent: int, controller: int, *words: str) -> Iterator[Row]:
        """Yield the CPU of a change, without what an idle agent takes, and without the comparison of all flows."""
        idle_s, begun_s = cpu_s(agent), time.monotonic()
        time.sleep(_QUIET_S)
        idle = (cpu_s(agent) - idle_s) / (time.monotonic() - begun_s)
        before, begun_s = (cpu_s(agent), cpu_s(controller)), time.monotonic()
        cost = self.command(*words)
        time.sleep(_QUIET_S)
        agent_s = cpu_s(agent) - before[0] - idle * (time.monotonic() - begun_s)
        yield Row(f"{name}: CPU of the agent", agent_s, "s", 0.005 if name == "a drain" else None)
        yield Row(f"{name}: CPU of the controller", cpu_s(controller) - before[1], "s")
        yield Row(f"{name}: CPU of the command", cost, "s")

    def command(self, *words: str) -> float:
        """Run a command; return its CPU."""
        argv = [XENOOVS, "fleet", "--directory", str(self.directory / "store"), *words]
        return process(argv, runs=1, expected=2 if "1s" in words else 0).cpu_s

    @contextmanager
    def agent(self, *words: str) -> Iterator[int]:
        with _running("agent", *words, "--db", self.ovs.db, "--resync", "10m") as pid:
            yield pid

    def started_s(self, agent: int) -> float:
        """Return the CPU of an agent once it has installed its flows and is quiet."""
        _until(lambda: self.flows() >= _SERVICES * _BACKENDS)
        before_s = -1.0
        while (now_s := cpu_s(agent)) > before_s:
            before_s = now_s
            time.sleep(1)
        return now_s

    def flows(self) -> int:
        said = subprocess.run(
            ["ovs-ofctl", "dump-aggregate", self.management], check=True, capture_output=True, text=True
        )
        return int(re.findall(r"flow_count=([0-9]+)", said.stdout)[0])

    def clear(self) -> None:
        process(["ovs-ofctl", "del-flows", self.management], runs=1)

    @property
    def management(self) -> str:
        return f"unix:{self.ovs.directory / 'ovsbr1.mgmt'}"


@contextmanager
def _running(*words: str) -> Iterator[int]:
    null = subprocess.DEVNULL
    with subprocess.Popen([XENOOVS, *words], stdin=null, stdout=null, stderr=null) as child:
        try:
            yield child.pid
        finally:
            child.terminate()


def _until(is_so: Callable[[], bool]) -> None:
    end_s = time.monotonic() + _PATIENCE_S
    while not is_so():
        if time.monotonic() > end_s:
            raise RuntimeError(f"it has not come within {_PATIENCE_S:g} s")
        time.sleep(0.2)
