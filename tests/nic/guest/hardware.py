"""Runs tests/hardware in the guest: its matrix on the emulated NIC, and each reason for which it does not begin."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest

from tests.hardware.options import read_options
from tests.nic.guest import ovs as switch
from tests.nic.guest.nic import PORTS, WIRE_NETNS, load_nic, unload_nic
from xenoovs.lab.nic.guest.lab import wait_for_cores
from xenoovs.switch.process import run, try_run

_OPTIONS = {
    "--p0": "p0",
    "--p1": "p1",
    "--bridge": "xenoovs-test",
    "--client-interface": "p0-w",
    "--client-netns": WIRE_NETNS,
    "--server-interface": "p1-w",
    "--server-netns": WIRE_NETNS,
}
_MAX_IDLE_MS = 600_000

# What an operator may have left, by name: commands that bring it about, and the one that undoes it.
# The filters come before the bridges: Open vSwitch leaves the ports that it had with a qdisc for them.
_OBSTACLES: dict[str, list[str]] = {
    "filters": [
        "tc qdisc add dev p0 ingress",
        "tc filter add dev p0 ingress protocol ip flower action drop",
        "tc qdisc del dev p0 ingress",
    ],
    "on a bridge": ["ovs-vsctl add-br inuse -- add-port inuse p0", "ovs-vsctl del-br inuse"],
    "bridge exists": ["ovs-vsctl add-br xenoovs-test", "ovs-vsctl del-br xenoovs-test"],
    "bridge of Linux": [
        "ip link add linux type bridge",
        "ip link set p0 master linux",
        "ip link delete linux",
    ],
    "address": ["ip addr add 192.0.2.1/24 dev p1", "ip addr flush dev p1"],
    "down": ["ip link set p1 down", "ip link set p1 up"],
    "hw-offload off": [
        "ovs-vsctl --no-wait set Open_vSwitch . other_config:hw-offload=false",
        "ovs-vsctl --no-wait set Open_vSwitch . other_config:hw-offload=true",
    ],
    "hw-tc-offload off": ["ethtool -K p0 hw-tc-offload off", "ethtool -K p0 hw-tc-offload on"],
}


@dataclass(slots=True)
class HardwareRecord:
    """`outcomes`: by test, the worst of its phases. `refusals`: why it does not begin, by obstacle (None: it would).

    before, after: bridges, settings, qdiscs, devices, offload features and log levels.
    """

    outcomes: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    refusals: dict[str, str | None] = field(default_factory=dict)
    before: str = ""
    after: str = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A hook of pytest."""
        name = report.nodeid.partition("::")[2]
        if self.outcomes.get(name, "passed") == "passed":
            self.outcomes[name] = report.outcome
        if report.failed:
            self.failures[name] = report.longreprtext[-6000:]
        print(f"hardware: {name}: {report.when} {report.outcome}, {report.duration:.0f} s", file=sys.stderr)


def main() -> None:
    """The record as JSON on stdout."""
    wires = load_nic(sys.argv[1])
    wait_for_cores()
    for wire in wires.values():
        wire.close()
    ovs = switch.start_ovs(Path("/run/ovs/hardware"), hw_offload="true", settings=[f"max-idle={_MAX_IDLE_MS}"])
    os.environ.update(ovs.env)
    refusals = {name: _refusal(name) for name in _OBSTACLES}
    record = HardwareRecord(refusals=refusals, before=_state())
    with redirect_stdout(sys.stderr):
        pytest.main(_arguments(sys.argv[2:]), plugins=[record])
    record.after = _state()
    switch.stop_ovs(ovs)
    unload_nic(wires)
    print(json.dumps(asdict(record)))


def _arguments(rows: Sequence[str]) -> list[str]:
    """`rows`: names of tests; none: all."""
    options = [word for pair in _OPTIONS.items() for word in pair]
    wanted = [f"tests/hardware/test_hardware.py::{row}" for row in rows] or ["tests/hardware"]
    return ["-p", "no:cacheprovider", "-m", "hardware", *wanted, "--change-settings", "-q", *options]


def _refusal(obstacle: str) -> str | None:
    with _made(obstacle):
        try:
            read_options(lambda name: _OPTIONS.get(name))
        except pytest.UsageError as reason:
            return str(reason)
    return None


@contextmanager
def _made(obstacle: str) -> Iterator[None]:
    *commands, undo = _OBSTACLES[obstacle]
    for command in commands:
        run(command.split())
    try:
        yield
    finally:
        run(undo.split())


def _state() -> str:
    commands = [
        ["ovs-vsctl", "list-br"],
        ["ovs-vsctl", "get", "Open_vSwitch", ".", "other_config"],
        ["ovs-appctl", "vlog/list"],
        ["tc", "qdisc", "show"],
        ["ip", "-o", "link", "show"],
        *(["ethtool", "-k", port] for port in PORTS),
        *(["tc", "filter", "show", "dev", port, "ingress"] for port in PORTS),
    ]
    return "".join(f"$ {' '.join(argv)}\n{try_run(argv).stdout}" for argv in commands)


if __name__ == "__main__":
    main()
