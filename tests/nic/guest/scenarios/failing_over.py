"""The representor of a backend's port goes down: the switch moves its clients, whether a controller runs or not."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from importlib import import_module

from tests.nic.guest import nic
from tests.nic.guest.bench import CLIENTS, Bench, Process
from tests.nic.guest.ovs import BRIDGE
from tests.nic.guest.stream import Stream

CONFIG, PLAIN = "failover", "failover_by_agent"
PORT = "pf0hpf"
RUNS = ("never", "throughout", "killed")
"""When `xenoovs controller` runs, which ejects backends of dead ports by itself. `killed`: until the port goes down,
and again before it comes back."""


def failover(bench: Bench) -> None:
    """The port goes down and comes back, each time beside a stream of all clients."""
    bench.begin()
    for balancer in (PLAIN, CONFIG):
        bench.xenoovs("apply", balancer, "--yes")
        bench.purge()
        bench.prime()
        bench.send(packets_each=2)
        bench.look(balancer)
    whole = _blocks(bench)
    # Before the first fork, as it takes this machine seconds.
    import_module("xenoovs.cli.agent")
    with ExitStack() as stack:
        for when in RUNS:
            if when == "throughout":
                controller = _controller(bench, stack)
                # Open vSwitch has removed all flows with the first controller that was set.
                bench.wait_until(lambda: _is_connected(bench) and _blocks(bench) == whole, "the controller's flows")
                bench.wait_until_revalidated()
            with bench.streaming() as stream:
                stream.go_on(len(CLIENTS))
                _set_link(bench, stream, "down")
                if when == "killed":
                    os.kill(controller.pid, signal.SIGKILL)
                _wait_for_rules(bench, stream, is_up=False)
                if when == "throughout":
                    bench.wait_until(lambda: _blocks(bench) != whole, "the controller ejects the backend")
                    stream.go_on(len(CLIENTS))
            bench.look(when, is_changed=True)
            if when == "never":
                bench.judge(CONFIG, "verify-offload", recorded=True, simulated=True)
            if when == "killed":
                _controller(bench, stack)
                bench.wait_until(lambda: _blocks(bench) != whole, "the new controller ejects the backend")
            with bench.streaming() as stream:
                stream.go_on(len(CLIENTS))
                _set_link(bench, stream, "up")
                bench.wait_until(lambda: _blocks(bench) == whole, "the flows are as before")
                _wait_for_rules(bench, stream, is_up=True)


def _controller(bench: Bench, stack: ExitStack) -> Process:
    process = bench.start("controller", str(bench.balancer(CONFIG)), "--db", bench.ovs.db, "--attach")
    stack.callback(process.end)
    return process


def _is_connected(bench: Bench) -> bool:
    return bench.ovs.vsctl("--bare", "--columns=is_connected", "list", "controller").strip() == "true"


def _set_link(bench: Bench, stream: Stream, state: str) -> None:
    stream.mark(state)
    nic.ip_batch(f"link set {PORT} {state}")


def _wait_for_rules(bench: Bench, stream: Stream, *, is_up: bool) -> None:
    """Return when no packet is on its way to the other port any more, and each client has sent one since."""
    bench.wait_until(lambda: (f"redirect:{PORT}" in nic.rules()) == is_up, "the NIC's new rules", shown=nic.rules)
    bench.wait_until_revalidated()
    stream.mark("moved")
    stream.go_on(len(CLIENTS))


def _blocks(bench: Bench) -> list[str]:
    """Matches and actions of their flows, sorted."""
    lines = bench.appctl("bridge/dump-flows", BRIDGE).splitlines()
    return sorted(line.partition("priority=")[2] for line in lines if line.startswith("table_id=1,"))
