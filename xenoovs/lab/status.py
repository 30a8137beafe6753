"""The health of a lab: its Open vSwitch, its namespaces, and the answers of its backends."""

from __future__ import annotations

import json

from xenoovs.dataclass import dataclass
from xenoovs.errors import CommandFailed
from xenoovs.lab.host import LabNetns, check_root, namespaces_of
from xenoovs.lab.lab import Lab
from xenoovs.lab.servers import Failure, failures_of
from xenoovs.lab.topology import Machine
from xenoovs.switch.process import PYTHON_MODULE, try_run


@dataclass(frozen=True, slots=True)
class MachineStatus:
    """The health of a backend machine. `answer`: its answer to a query for its names, or why there is none. `received`:
    packets that reached it since `up`; None if its namespace is missing."""

    machine: Machine
    failure: Failure | None
    latency_s: float | None
    answer: str
    received: int | None

    @property
    def is_up(self) -> bool:
        """Return whether the machine answers, and `fail` has not made it fail."""
        return self.latency_s is not None and self.failure is None


@dataclass(frozen=True, slots=True)
class LabStatus:
    """The health of a lab. `ovs_pids`: ovs-vswitchd, then ovsdb-server. `missing`: missing namespaces."""

    name: str
    directory: str
    bridge: str
    ports: tuple[str, ...]
    db: str
    ovs_pids: tuple[int, ...]
    missing: tuple[str, ...]
    machines: tuple[MachineStatus, ...]

    @property
    def is_healthy(self) -> bool:
        return self.state == "up"

    @property
    def state(self) -> str:
        """Return `up`, `failing` if only backends that `lab fail` made fail are down, else `damaged`."""
        if len(self.ovs_pids) < 2 or self.missing or any(not m.is_up and m.failure is None for m in self.machines):
            return "damaged"
        return "up" if all(machine.is_up for machine in self.machines) else "failing"


def lab_status(lab: Lab) -> LabStatus:
    """Return the health of a lab. Raises LabError without root."""
    check_root()
    topology, failures, unasked = lab.topology, failures_of(lab), (None, "cannot be asked")
    present = namespaces_of(lab.name)
    answers = _answers(lab) if topology.switch_namespace in present else {}
    return LabStatus(
        lab.name,
        str(lab.directory),
        topology.bridge,
        topology.ports_of(topology.bridge),
        lab.ovs.db,
        lab.ovs.pids(),
        missing=tuple(namespace for namespace in topology.namespaces if namespace not in present),
        machines=tuple(
            MachineStatus(one, failures.get(one.label), *answers.get(one.address, unasked), _received(one))
            for one in topology.machines
        ),
    )


def _answers(lab: Lab) -> dict[str, tuple[float | None, str]]:
    addresses = [machine.address for machine in lab.topology.machines]
    argv = [*PYTHON_MODULE, "xenoovs.lab.inquiry"]
    try:
        done = LabNetns(lab.marks).execute(lab.topology.switch_namespace, argv, stdin=json.dumps(addresses))
    except CommandFailed:
        return {}
    return {address: (latency_s, answer) for address, (latency_s, answer) in json.loads(done.stdout).items()}


def _received(machine: Machine) -> int | None:
    done = try_run(["ip", "-n", machine.namespace, "-s", "-j", "link", "show", "eth0"])
    return int(json.loads(done.stdout)[0]["stats64"]["rx"]["packets"]) if done.exit_code == 0 else None
