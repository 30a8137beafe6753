"""A fleet of two DPUs, the canary on the NIC: a roll-out whose megaflows exceed the NIC's table is taken back."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from unittest.mock import patch

from tests.nic.guest import nic
from tests.nic.guest.bench import CLIENTS, Bench, Process
from tests.nic.guest.frames import Kind
from tests.nic.guest.ovs import BRIDGE, KEEPS_IDLE
from xenoovs.fleet.commands import client
from xenoovs.fleet.rollout import hw_share
from xenoovs.store.client import DpuStatusReader, StoreClient
from xenoovs.store.rows import StoreDatabase
from xenoovs.store.servers import create_databases, files_of, start_server, stop_server

CANARY, OTHER = "dpu1", "dpu2"
ADDED_MAC = "02:00:5e:10:00:05"
_SOAK = "300s"
"""A problem ends a roll-out sooner; without one, a slow machine must have sampled by then."""
_CONNECT_S = 600.0
_OTHER_BRIDGE, _OTHER_PORTS = "ovsbr2", ("q0", "q1")
"""Of the second DPU, which is not on the NIC."""
_DPU = "version: 1\nswitch: {{bridge: {}, ingress: [{}], egress: {}, other_traffic: passthrough}}\n"
_BALANCER = Bench.balancer("dns")
_ADDED = f"      - {{name: fips5, mac: {ADDED_MAC}, weight: 20}}\n"
# What agents and the controller import; once for all, as it takes this machine seconds.
_MODULES = ("xenoovs.cli.agent", "xenoovs.cli.agent_fleet", "xenoovs.agent.daemon", "xenoovs.fleet.commands.servers")


def fleet(bench: Bench) -> None:
    """The table has room for the megaflows of the first config; those of the second one are more."""
    # So the canary finds the flows of the first config on its bridge, and their megaflows in the NIC.
    bench.begin("dns", settings=[KEEPS_IDLE])
    bench.prime()
    nic.set_max_rules(len(nic.rules().splitlines()))
    with _running_fleet(bench) as made, made.told(CANARY, BRIDGE), made.told(OTHER, _OTHER_BRIDGE):
        made.wait_until_ready()
        bench.send(packets_each=5)
        bench.look("first config")
        second = made.file("second.yaml", _BALANCER.read_text() + _ADDED)
        applying = made.roll_out(second)
        # It does not report what it has before the look has it too.
        with made.agents[CANARY].stopped():
            bench.wait_until_revalidated()
            bench.prime()
            bench.look("second config", is_changed=True)
        bench.wait_until(lambda: applying.status is not None, "the end of the roll-out")
        bench.note(applying.argv, applying.output.read_text(), exit_code=applying.status or 0)
        bench.wait_until(lambda: not made.has_added, "the canary has the old flows")
        bench.wait_until_revalidated()
        bench.send(packets_each=5)
        bench.look("taken back", is_changed=True)
    bench.purge()
    bench.prime()
    bench.look("purged")
    bench.judge(BRIDGE, "verify-offload", recorded=True)


class _Fleet:
    """Its store, and the commands that run until the end of `stack`."""

    def __init__(self, bench: Bench, stack: ExitStack) -> None:
        self._bench, self._stack = bench, stack
        self._directory = bench.ovs.directory / "fleet"
        self._directory.mkdir()
        self.directory = self._directory / "store"
        self.store = ("--directory", str(self.directory))
        self.agents = dict[str, Process]()

    def remote(self, database: StoreDatabase) -> str:
        return files_of(self.directory, database).remote

    def file(self, name: str, text: str) -> str:
        (self._directory / name).write_text(text)
        return str(self._directory / name)

    def start(self, *argv: str) -> Process:
        process = self._bench.start(*argv)
        self._stack.callback(process.end)
        return process

    def roll_out(self, config: str) -> Process:
        """Return the command that gives the fleet a config, once the canary has its flows, or it has ended."""
        argv = ("fleet", "apply", config, "--canary", "1", "--yes", "--soak", _SOAK, *self.store)
        applying = self.start(*argv)
        self._bench.wait_until(lambda: self.has_added or applying.status is not None, "the canary has the new flows")
        return applying

    @property
    def has_added(self) -> bool:
        """Whether the canary has flows of the backend that the second config adds."""
        return ADDED_MAC in self._bench.appctl("bridge/dump-flows", BRIDGE)

    def wait_until_ready(self) -> None:
        """Return when the store knows what a roll-out asks: both DPUs are fit, and the canary is all in hardware."""
        # Their threads have ended before the next fork.
        with (
            StoreClient(self.remote(StoreDatabase.FLEET)) as store,
            DpuStatusReader(self.remote(StoreDatabase.STATES)) as reader,
        ):

            def is_ready() -> bool:
                # Clients go on sending: a megaflow that went while flows were replaced comes back.
                self._bench.send_frames([Kind().frame(source) for source in CLIENTS])
                view, found = store.view(), reader.statuses() or {}
                is_fit = [
                    dpu in found and found[dpu].is_fit and not found[dpu].error and not view.dpus[dpu].is_unfit
                    for dpu in (CANARY, OTHER)
                    if view is not None
                ]
                return is_fit == [True, True] and hw_share(found[CANARY].verdicts) == 1

            what = "both DPUs are fit, and the canary has reported its share in hardware"
            self._bench.wait_until(is_ready, what, shown=lambda: (store.view(), reader.statuses()))

    @contextmanager
    def told(self, dpu: str, bridge: str) -> Iterator[None]:
        """In the block, Open vSwitch tells of each change of a flow of a bridge (ovs-ofctl(8), `monitor`)."""
        file, ovs = self._directory / f"{dpu}.changes", self._bench.ovs
        argv = ["ovs-ofctl", "monitor", f"unix:{ovs.directory / bridge}.mgmt", "watch:"]
        with file.open("w") as out:
            monitor = subprocess.Popen(argv, stdout=out, stderr=out, env={**os.environ, **ovs.env})
        try:
            # The flows that are there come first.
            self._bench.wait_until(lambda: "event=ADDED" in file.read_text(), "the monitor")
            before = len(file.read_text())
            yield
            self._bench.note(("changes", dpu), file.read_text()[before:])
        finally:
            monitor.terminate()
            monitor.wait()


@contextmanager
def _running_fleet(bench: Bench) -> Iterator[_Fleet]:
    """A store, a controller, two agents, and the first config in use."""
    with ExitStack() as stack:
        made = _Fleet(bench, stack)
        # On a busy machine the store answers later than a command waits for it.
        stack.enter_context(patch.object(client, "CONNECT_S", _CONNECT_S))
        create_databases(made.directory, name="test")
        for database in StoreDatabase:
            stack.callback(stop_server, files_of(made.directory, database))
            if problem := start_server(files_of(made.directory, database)):
                raise RuntimeError(problem)
        _add_other_bridge(bench)
        for module in _MODULES:
            import_module(module)
        made.start("fleet", "serve", "--switch-after", "0", *made.store)
        remotes = ("--fleet", made.remote(StoreDatabase.FLEET), "--fleet-state", made.remote(StoreDatabase.STATES))
        for name, bridge, ports in ((CANARY, BRIDGE, ("p0", "p1")), (OTHER, _OTHER_BRIDGE, _OTHER_PORTS)):
            bench.ask("fleet", "add-dpu", name, *made.store)
            config = made.file(f"{name}.yaml", _DPU.format(bridge, *ports))
            made.agents[name] = made.start("agent", config, "--db", bench.ovs.db, *remotes, "--dpu", name)
        applied = bench.ask("fleet", "apply", str(_BALANCER), "--now", "--yes", "--timeout", "900s", *made.store)
        if applied.exit_code:
            raise RuntimeError(applied.stdout + applied.stderr)
        yield made


def _add_other_bridge(bench: Bench) -> None:
    added = [word for port in _OTHER_PORTS for word in ("--", "add-port", _OTHER_BRIDGE, port)]
    added += [word for port in _OTHER_PORTS for word in ("--", "set", "interface", port, "type=internal")]
    bench.ovs.vsctl("add-br", _OTHER_BRIDGE, "--", "set", "bridge", _OTHER_BRIDGE, "fail_mode=secure", *added)
    nic.ip_batch(*(f"link set {port} up" for port in _OTHER_PORTS))
