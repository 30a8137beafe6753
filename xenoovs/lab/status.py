"""What of a lab is alive."""

from __future__ import annotations

from dataclasses import dataclass

from xenoovs.lab.lab import MARK, Lab
from xenoovs.lab.netns import namespaces_of, processes_in
from xenoovs.lab.preflight import check_root, probe_host
from xenoovs.lab.processes import marked_processes


@dataclass(frozen=True, slots=True)
class MachineStatus:
    """A backend machine. `is_up`: its namespace is there and a process answers in it."""

    label: str
    names: tuple[str, ...]
    namespace: str
    mac: str
    egress: str
    is_up: bool


@dataclass(frozen=True, slots=True)
class LabStatus:
    """A lab. `ovs_pids`: ovs-vswitchd, then ovsdb-server, those that run. `missing`: namespaces that are gone."""

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
        return len(self.ovs_pids) == 2 and not self.missing and all(machine.is_up for machine in self.machines)


def lab_status(lab: Lab) -> LabStatus:
    """Look at the namespaces and processes of a lab. Raises LabError without root."""
    check_root(probe_host())
    topology = lab.topology
    present = namespaces_of(lab.name)
    ours = set(marked_processes(MARK, str(lab.directory)))
    machines = tuple(
        MachineStatus(
            machine.label,
            machine.names,
            machine.namespace,
            machine.mac,
            machine.egress,
            is_up=machine.namespace in present and not ours.isdisjoint(processes_in(machine.namespace)),
        )
        for machine in topology.machines
    )
    return LabStatus(
        lab.name,
        str(lab.directory),
        topology.bridge,
        topology.bridges[0].ports,
        lab.ovs.db,
        lab.ovs.pids(),
        missing=tuple(namespace for namespace in topology.namespaces if namespace not in present),
        machines=machines,
    )
