"""`xenoovs lab`: a whole test network on this machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import click

from xenoovs.cli import nic_guest
from xenoovs.cli.lab_vm import forward_to_vm, run_in_vm, vm_of
from xenoovs.cli.main import EXIT_DIFFERS, EXIT_FAILED, EXIT_OK
from xenoovs.cli.options import OutputFormat, connect, load, optional_config_argument, output_option
from xenoovs.cli.output import echo, print_json, print_table
from xenoovs.compile.program import Program, compile_onto
from xenoovs.config.emit import render_config
from xenoovs.config.templates import read_template
from xenoovs.display import percent
from xenoovs.errors import LabError, counted
from xenoovs.lab import lifecycle, traffic
from xenoovs.lab.lab import CONFIG, open_lab
from xenoovs.lab.nic import up as nic_up
from xenoovs.lab.nic.machine import VirtualMachine
from xenoovs.lab.topology import switch_namespace
from xenoovs.lab.traffic import LabReport, ServiceTraffic
from xenoovs.model.balancer import Balancer, Protocol

_NAME: dict[str, Any] = {
    "default": "default",
    "metavar": "NAME",
    "show_default": True,
    "help": "Name of the lab; several can coexist.",
}
name_option = click.option("--name", **_NAME)


@click.group("lab")
def lab_command() -> None:
    """Run a whole test network on this machine, without a NIC: clients, a real Open vSwitch, backends.

    Everything is in network namespaces of its own; the host's network and Open vSwitch stay untouched. Needs root.

    \b
    Example:
      xenoovs lab up my.yaml
      xenoovs apply my.yaml --lab default
      xenoovs lab traffic
      xenoovs lab down

    With `--nic emulated` the lab is in a virtual machine with an emulated NIC that flows are offloaded to.
    """


@lab_command.command("up")
@optional_config_argument
@name_option
@click.option(
    "--nic",
    type=click.Choice(["none", "emulated"]),
    default="none",
    show_default=True,
    help="emulated: build the lab in a virtual machine (QEMU) with Debian's kernel and a NIC with hardware offload.",
)
@output_option
def up_command(config: Path | None, name: str, *, nic: str, output: OutputFormat) -> None:
    """Build a lab for the config FILE.

    Without FILE, it is for the template quickstart. Its bridge has the ports of the config and no flows yet. Each
    backend is a namespace with the MAC of the config and the VIP on its loopback (direct server return). If anything
    fails, all of it is removed again.

    With --nic emulated the lab is in a virtual machine, which takes half a minute to boot and up to 2 GB of memory. The
    first time, Debian's kernel is downloaded (100 MB) and a module is built for it; ~/.cache/xenoovs/nic caches both.
    Commands with --lab, `lab status` and `lab traffic` are forwarded into it; `lab exec` and `lab shell` run anything.
    """
    balancer = _balancer(config)
    with _progress_bar("building the lab") as progress:
        if nic == "emulated":
            machine = nic_up.up(name, balancer, guest=nic_guest.__name__, progress=progress)
            document: dict[str, object] = {"nic": "emulated", "pid": machine.pid, "console": str(machine.console)}
            up = f"in a virtual machine with an emulated NIC (process {machine.pid})"
            tools = f"anything else: xenoovs lab shell --name {name}"
        else:
            lab = lifecycle.up(name, balancer, progress=progress)
            (lab.directory / CONFIG).write_text(render_config(balancer))
            backends = len(lab.topology.machines)
            document = {"db": lab.ovs.db, "rundir": str(lab.ovs.directory), "backends": backends}
            up = f"with {counted(backends, 'backend')}, Open vSwitch at {lab.ovs.db}"
            tools = f"OVS tools: export OVS_RUNDIR={lab.ovs.directory}"
    if output is OutputFormat.JSON:
        print_json({"lab": name, **document})
        return
    echo(f"lab {name} is up {up}")
    echo(f"next: xenoovs apply {config or 'FILE'} --lab {name}; {tools}")


@lab_command.command("down")
@name_option
@output_option
def down_command(name: str, *, output: OutputFormat) -> None:
    """Remove a lab, also one whose `lab up` crashed. Succeeds if there is none."""
    removed = lifecycle.down(name)
    if output is OutputFormat.JSON:
        print_json({"lab": name, "namespaces": removed.namespaces, "processes": removed.processes})
    elif removed.anything:
        processes = counted(removed.processes, "process", "processes")
        echo(f"lab {name} removed: {counted(removed.namespaces, 'namespace')}, {processes}")
    else:
        echo(f"there is no lab {name}")


def _forward_status(context: click.Context, parameter: click.Parameter, name: str) -> str | None:
    if (machine := vm_of(name)) and "json" not in context.find_root().obj:
        echo(f"in a virtual machine with an emulated NIC: process {machine.pid}, console {machine.console}")
    return forward_to_vm(context, parameter, name)


@lab_command.command("status")
@click.option("--name", callback=_forward_status, **_NAME)
@output_option
@click.pass_context
def status_command(context: click.Context, /, name: str, *, output: OutputFormat) -> None:
    """Show which parts of a lab are running. Exit status 2: some are not."""
    status = lifecycle.lab_status(open_lab(name))
    if output is OutputFormat.JSON:
        print_json({**asdict(status), "healthy": status.is_healthy})
    else:
        daemons = "runs" if len(status.ovs_pids) == 2 else click.style("does not run", fg="red")
        echo(f"lab {name} in {status.directory}\nOpen vSwitch {daemons} at {status.db}")
        echo(f"bridge {status.bridge}: {', '.join(status.ports)}\n")
        states = {True: click.style("up", fg="green"), False: click.style("down", fg="red")}
        rows = [[", ".join(m.names), m.mac, m.egress, m.namespace, states[m.is_up]] for m in status.machines]
        print_table(["BACKEND", "MAC", "PORT", "NAMESPACE", "STATE"], rows)
    context.exit(EXIT_OK if status.is_healthy else EXIT_DIFFERS)


@lab_command.command("traffic")
@optional_config_argument
@click.option("--name", callback=forward_to_vm, **_NAME)
@click.option(
    "--clients",
    type=click.IntRange(1, 1_000_000),
    default=2000,
    show_default=True,
    help="Number of source addresses.",
)
@click.option(
    "--packets",
    type=click.IntRange(1, 1_000_000),
    default=20000,
    show_default=True,
    help="Number of packets, or of TCP connections.",
)
@click.option("--udp", "protocol", flag_value=Protocol.UDP.value, help="Only services that accept UDP.")
@click.option("--tcp", "protocol", flag_value=Protocol.TCP.value, help="Only services that accept TCP.")
@click.option("--icmp", "protocol", flag_value=Protocol.ICMP.value, help="Only services that accept ICMP.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the clients' addresses.")
@output_option
@click.pass_context
def traffic_command(
    context: click.Context,
    /,
    config: Path | None,
    name: str,
    *,
    protocol: str | None,
    output: OutputFormat,
    **load: Any,
) -> None:
    """Send packets to the services of a lab, and count answers.

    The packets come from many clients; answers are counted by backend. A backend is recognised by its answer, not by
    the flows. FILE: a config other than the one of `lab up`, with the same ports, VIPs and backends, but other weights
    for example.

    Exit status 0: the backends of each service answered, 2: more than 1 % of a service's packets were lost, another
    machine answered, an answer came twice, or some packets could not be sent, 1: nothing could be sent.
    """
    lab = open_lab(name)
    balancer = _balancer(config or lab.directory / CONFIG)
    wanted = traffic.Load(protocol=Protocol(protocol) if protocol else None, **load)
    with _progress_bar("sending") as progress:
        report = traffic.send(lab, balancer, load=wanted, progress=progress)
    program = compile_onto(balancer, connect(db=None, lab=name).dump_flows(balancer.uplinks.bridge))
    if output is OutputFormat.JSON:
        print_json(_traffic_document(report, program))
    else:
        _show_traffic(report, program)
    if not report.is_sent:
        context.exit(EXIT_FAILED)
    context.exit(EXIT_OK if report.is_served else EXIT_DIFFERS)


def _show_traffic(report: LabReport, program: Program) -> None:
    rows = []
    for service in report.services:
        shares = _shares(program, service)
        for backend in service.backends:
            space, answered = percent(shares[backend.name]), str(backend.answered)
            target, share = percent(backend.wanted), percent(backend.share)
            rows.append([service.service, backend.name, target, space, answered, share])
        rows += [[service.service, other, "-", "-", str(packets), "-"] for other, packets in service.foreign_answers]
    print_table(["SERVICE", "BACKEND", "TARGET", "SHARE", "PACKETS", "TRAFFIC"], rows, right=range(2, 6))
    echo()
    for service in report.services:
        sent = f"{counted(service.sent, f'{service.protocol.value} packet')} of {counted(service.clients, 'client')}"
        text = f"{service.service}: {sent}, {service.answered} answered, {service.lost} lost"
        echo(click.style(text, fg="yellow") if service.lost else text)
    for name, reason in report.skipped:
        echo(f"{name}: skipped, {reason}")
    for reason, packets in report.failures:
        echo(click.style(f"{counted(packets, 'packet')} not sent: {reason}", fg="red"))
    if report.duplicates:
        echo(click.style(f"{counted(report.duplicates, 'packet')} answered twice", fg="yellow"))


def _traffic_document(report: LabReport, program: Program) -> dict[str, object]:
    return {
        "duration_s": round(report.duration_s, 3),
        "duplicates": report.duplicates,
        "skipped": dict(report.skipped),
        "failures": dict(report.failures),
        "services": [_service_document(service, _shares(program, service)) for service in report.services],
    }


def _service_document(service: ServiceTraffic, shares: Mapping[str, Fraction]) -> dict[str, object]:
    return {
        "service": service.service,
        "protocol": service.protocol.value,
        "clients": service.clients,
        "sent": service.sent,
        "answered": service.answered,
        "lost": service.lost,
        "other_machines": dict(service.foreign_answers),
        "backends": [
            {
                "backend": backend.name,
                "target_share": float(backend.wanted),
                "share": float(shares[backend.name]),
                "answered": backend.answered,
                "traffic_share": None if backend.share is None else float(backend.share),
            }
            for backend in service.backends
        ],
    }


def _shares(program: Program, service: ServiceTraffic) -> Mapping[str, Fraction]:
    """Return the share of the clients of each backend."""
    found = next(compiled for compiled in program.services if compiled.service.name == service.service)
    return dict(zip((backend.name for backend in found.service.backends), found.shares, strict=True))


@lab_command.command("exec", context_settings={"ignore_unknown_options": True})
@name_option
@click.argument("argv", metavar="COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def exec_command(context: click.Context, /, name: str, argv: tuple[str, ...]) -> None:
    """Run a command in the virtual machine of a lab.

    For a lab with `--nic emulated`. The command sees the files of this host read-only (what it writes is lost with the
    machine), starts in this directory, and uses the lab's Open vSwitch. The exit status is that of the command.

    \b
    Example:
      xenoovs lab exec -- ovs-appctl dpctl/dump-flows -m type=offloaded
      xenoovs lab exec -- cat /sys/kernel/debug/eswitch/rules
    """
    context.exit(run_in_vm(_vm(name), argv, name=name))


@lab_command.command("shell")
@name_option
@click.pass_context
def shell_command(context: click.Context, /, name: str) -> None:
    """Open a shell in the virtual machine of a lab; `exit` leaves it.

    For a lab with `--nic emulated`.
    """
    # Without start-up files of the user, which may take long on an emulated processor.
    prompt = f"PS1=lab {name}:\\w\\$ "
    context.exit(run_in_vm(_vm(name), ["env", prompt, "bash", "--noprofile", "--norc"], name=name))


def _vm(name: str) -> VirtualMachine:
    if machine := vm_of(name):
        return machine
    open_lab(name)
    here = f"`ip netns exec {switch_namespace(name)} COMMAND`"
    raise LabError(f"lab {name} has no virtual machine; {here} runs a command in its namespace on this host")


def _balancer(config: Path | None) -> Balancer:
    if config is not None:
        return load(config)
    from xenoovs.config.load import parse_config

    return parse_config(read_template("quickstart"), file="quickstart")


@contextmanager
def _progress_bar(title: str) -> Iterator[Callable[[str, int, int], None]]:
    """Draw a progress bar on stderr, if it is a terminal; yields a function of the step, steps done, all steps."""
    if not sys.stderr.isatty():
        yield lambda _what, _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.fields[title]}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", title=title, total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)
