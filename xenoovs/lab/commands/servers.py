"""`xenoovs lab fail`, `heal` and `status`: the backends of a lab, and how they fail."""

from __future__ import annotations

from dataclasses import asdict

import click

from xenoovs.display import span
from xenoovs.lab import servers
from xenoovs.lab.config import config_of
from xenoovs.lab.host import check_root, probe_host
from xenoovs.lab.lab import open_lab
from xenoovs.lab.servers import Failure
from xenoovs.lab.status import LabStatus, MachineStatus, lab_status
from xenoovs.lab.topology import Machine
from xenoovs.model.balancer import Balancer, ProbeKind
from xenoovs.terminal.command import EXIT_DIFFERS, EXIT_OK
from xenoovs.terminal.options import OutputFormat
from xenoovs.terminal.output import echo, print_json, print_table


def fail(name: str, backend: str, how: Failure, *, output: OutputFormat) -> None:
    """Make a backend fail, and say which health checks do not notice. Raises LabError."""
    check_root(probe_host())
    lab = open_lab(name)
    machine, balancer = servers.find_machine(lab, backend), config_of(lab)
    servers.fail(lab, machine, how, balancer)
    if output is OutputFormat.JSON:
        print_json({"lab": name, "backend": _label(machine), "failure": how.value})
        return
    echo(f"{_label(machine)} fails ({how.value}): {how.effect}")
    for service, probe in _unaware(balancer, machine, how):
        echo(f"health check of {service} does not notice: the kernel still answers {probe.value} probes")
    echo(f"next: xenoovs lab heal {machine.names[0]} --lab {name}")


def heal(name: str, backend: str | None, *, output: OutputFormat) -> None:
    """Make one backend, or all of them, work again. Raises LabError."""
    check_root(probe_host())
    lab = open_lab(name)
    machines = lab.topology.machines if backend is None else (servers.find_machine(lab, backend),)
    healed = servers.heal(lab, machines, config_of(lab))
    if output is OutputFormat.JSON:
        print_json({"lab": name, "healed": [_label(machine) for machine in healed]})
    elif healed:
        echo(f"{', '.join(map(_label, healed))} answers again" if len(healed) == 1 else f"{len(healed)} answer again")
    else:
        echo("nothing to do: " + ("no backend has failed" if backend is None else f"{backend} has not failed"))


def show_status(name: str, *, output: OutputFormat) -> int:
    """Show which parts of a lab work. Return the exit status. Raises LabError."""
    status = lab_status(open_lab(name))
    if output is OutputFormat.JSON:
        print_json(_document(status))
        return EXIT_OK if status.is_healthy else EXIT_DIFFERS
    daemons = "runs" if len(status.ovs_pids) == 2 else click.style("does not run", fg="red")
    echo(f"lab {name} in {status.directory}\nOpen vSwitch {daemons} at {status.db}")
    echo(f"bridge {status.bridge}: {', '.join(status.ports)}\n")
    rows = [[", ".join(m.names), m.namespace, m.address, _state(m), _answer(m), _received(m)] for m in status.machines]
    print_table(["BACKEND", "NAMESPACE", "ADDRESS", "STATE", "ANSWER", "RECEIVED"], rows, right=[5])
    return EXIT_OK if status.is_healthy else EXIT_DIFFERS


def _document(status: LabStatus) -> dict[str, object]:
    document = {**asdict(status), "healthy": status.is_healthy}
    document["machines"] = [
        {**asdict(machine), "failure": machine.failure and machine.failure.value, "is_up": machine.is_up}
        for machine in status.machines
    ]
    return document


def _state(machine: MachineStatus) -> str:
    if machine.failure is not None:
        return click.style(f"failed: {machine.failure.value}", fg="yellow")
    return click.style("up", fg="green") if machine.is_up else click.style("down", fg="red")


def _answer(machine: MachineStatus) -> str:
    if machine.latency_s is None:
        return machine.answer
    late = span(machine.latency_s)
    return f"{machine.answer} ({late})"


def _received(machine: MachineStatus) -> str:
    return "-" if machine.received is None else str(machine.received)


def _label(machine: Machine) -> str:
    return "/".join(machine.names)


def _unaware(balancer: Balancer, machine: Machine, how: Failure) -> list[tuple[str, ProbeKind]]:
    """Return the services of a backend whose health checks do not see this failure, with their probes."""
    return [
        (service.name, service.health.probe)
        for service in balancer.services
        if service.health is not None
        and service.health.probe in how.unnoticed_by
        and any(backend.name in machine.names for backend in service.backends)
    ]
