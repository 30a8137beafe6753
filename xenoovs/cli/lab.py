"""`xenoovs lab`: a whole test network on this machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xenoovs.cli.options import Output, connect, hand_on, load, machine_of, output_option, run_inside
from xenoovs.cli.output import echo, print_json, print_table
from xenoovs.display import percent
from xenoovs.errors import counted
from xenoovs.model.balancer import Protocol

if TYPE_CHECKING:
    from xenoovs.compile.program import Program
    from xenoovs.lab.nic.machine import VirtualMachine
    from xenoovs.lab.traffic import LabReport, ServiceTraffic
    from xenoovs.model.balancer import Balancer


# A progress bar on a terminal, nothing when nobody looks.


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[str, int, int], None]]:
    """A function to be called with what is being done, steps done, steps in all. Draws on stderr."""
    if not sys.stderr.isatty():
        yield lambda _what, _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.fields[title]}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", title=title, total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)


# What came of the lab's traffic, beside what was wanted.


_HEADERS = ["SERVICE", "BACKEND", "WANTED", "ADDRESS SPACE", "PACKETS", "SEEN"]


def show_traffic(report: LabReport, program: Program) -> None:
    """Print a table, then what was lost or went astray."""
    rows = [row for service in report.services for row in _rows(service, _spaces(program, service.service))]
    print_table(_HEADERS, rows, right=range(2, 6))
    echo()
    for service in report.services:
        echo(_line(service))
    for name, reason in report.skipped:
        echo(f"{name}: not tried, {reason}")
    for reason, packets in report.failures:
        echo(click.style(f"{counted(packets, 'packet')} not sent: {reason}", fg="red"))
    if report.duplicates:
        echo(click.style(f"{counted(report.duplicates, 'packet')} answered twice", fg="yellow"))


def traffic_document(report: LabReport, program: Program) -> dict[str, object]:
    """The same for programs."""
    return {
        "duration_s": round(report.duration_s, 3),
        "duplicates": report.duplicates,
        "skipped": dict(report.skipped),
        "failures": dict(report.failures),
        "services": [_document(service, _spaces(program, service.service)) for service in report.services],
    }


def _spaces(program: Program, name: str) -> Mapping[str, Fraction]:
    found = next(service for service in program.services if service.service.name == name)
    names = (backend.name for backend in found.service.backends)
    return dict(zip(names, found.shares, strict=True))


def _rows(service: ServiceTraffic, spaces: Mapping[str, Fraction]) -> list[list[str]]:
    rows = [
        [
            service.service,
            backend.name,
            percent(backend.wanted),
            percent(spaces[backend.name]),
            str(backend.answered),
            percent(backend.share),
        ]
        for backend in service.backends
    ]
    foreign_answers = [
        [service.service, name, "-", "-", str(packets), "-"] for name, packets in service.foreign_answers
    ]
    return [*rows, *foreign_answers]


def _line(service: ServiceTraffic) -> str:
    kind = f"{counted(service.sent, f'{service.protocol.value} packet')} of {counted(service.clients, 'client')}"
    line = f"{service.service}: {kind}, {service.answered} answered, {service.lost} lost"
    return click.style(line, fg="yellow") if service.lost else line


def _document(service: ServiceTraffic, spaces: Mapping[str, Fraction]) -> dict[str, object]:
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
                "wanted": float(backend.wanted),
                "space": float(spaces[backend.name]),
                "answered": backend.answered,
                "seen": None if backend.share is None else float(backend.share),
            }
            for backend in service.backends
        ],
    }


DEFAULT_NAME = "default"

name_option = click.option("--name", default=DEFAULT_NAME, show_default=True, help="Labs of different names coexist.")
name_inside = click.option(
    "--name",
    default=DEFAULT_NAME,
    show_default=True,
    callback=hand_on,
    help="Labs of different names coexist.",
)
optional_config = click.argument("config", required=False, metavar="[FILE]", type=click.Path(path_type=Path))


@click.group("lab")
def lab_command() -> None:
    """A whole test network on this machine, no NIC needed: clients, a real Open vSwitch, backends.

    Everything lives in network namespaces of its own; the host's network and Open vSwitch stay untouched. Needs root.

    \b
    Example:
      xenoovs lab up my.yaml
      xenoovs apply my.yaml --lab default
      xenoovs lab traffic
      xenoovs lab down

    With `--nic emulated` all of it is in a virtual machine, whose emulated NIC takes offloaded flows.
    """


@lab_command.command("up")
@optional_config
@name_option
@click.option(
    "--nic",
    type=click.Choice(["none", "emulated"]),
    default="none",
    show_default=True,
    help="emulated: in a virtual machine (QEMU) with Debian's kernel and a NIC that flows are offloaded to.",
)
@output_option
def up_command(config: Path | None, name: str, *, nic: str, output: Output) -> None:
    """Build a lab for the config FILE (default: the template quickstart).

    Its bridge has the ports of the config and no flows yet; each backend is a namespace with the MAC of the config and
    the VIP on its loopback (direct server return). If anything fails, all of it is removed again.

    With --nic emulated the lab is in a virtual machine, which takes half a minute to boot and up to 2 GB of memory. The
    first time Debian's kernel is downloaded (100 MB) and a module built for it; both are kept in ~/.cache/xenoovs/nic.
    Commands with --lab, `lab status` and `lab traffic` run in there by themselves, `lab exec` and `lab shell` anything.
    """
    from xenoovs.config.emit import render_config
    from xenoovs.lab.lab import CONFIG
    from xenoovs.lab.lifecycle import up

    balancer = _balancer(config)
    if nic == "emulated":
        _up_emulated(config, name, balancer, output=output)
        return
    with progress_bar("building the lab") as progress:
        lab = up(name, balancer, progress=progress)
    (lab.directory / CONFIG).write_text(render_config(balancer))
    if output is Output.JSON:
        print_json(
            {"lab": name, "db": lab.ovs.db, "rundir": str(lab.ovs.directory), "backends": len(lab.topology.machines)}
        )
        return
    option = "" if config is None else f" {config}"
    echo(f"lab {name} is up: {counted(len(lab.topology.machines), 'backend')}, Open vSwitch at {lab.ovs.db}")
    echo(f"next: xenoovs apply{option or ' FILE'} --lab {name}; OVS tools: export OVS_RUNDIR={lab.ovs.directory}")


def _up_emulated(config: Path | None, name: str, balancer: Balancer, *, output: Output) -> None:
    from xenoovs.cli import nic_guest
    from xenoovs.lab.nic.up import up

    with progress_bar("building the lab") as progress:
        machine = up(name, balancer, guest=nic_guest.__name__, progress=progress)
    if output is Output.JSON:
        print_json({"lab": name, "nic": "emulated", "pid": machine.pid, "console": str(machine.console)})
        return
    echo(f"lab {name} is up in a virtual machine with an emulated NIC (process {machine.pid})")
    echo(f"next: xenoovs apply {config or 'FILE'} --lab {name}; anything else: xenoovs lab shell --name {name}")


@lab_command.command("down")
@name_option
@output_option
def down_command(name: str, *, output: Output) -> None:
    """Remove a lab entirely, also one whose building crashed. Nothing to remove is fine."""
    from xenoovs.lab.lifecycle import down

    removed = down(name)
    if output is Output.JSON:
        print_json({"lab": name, "namespaces": removed.namespaces, "processes": removed.processes})
    elif removed.anything:
        processes = counted(removed.processes, "process", "processes")
        echo(f"lab {name} removed: {counted(removed.namespaces, 'namespace')}, {processes}")
    else:
        echo(f"there is no lab {name}")


def _status_inside(context: click.Context, parameter: click.Parameter, name: str) -> str | None:
    if (machine := machine_of(name)) and "json" not in context.find_root().obj:
        echo(f"in a virtual machine with an emulated NIC: process {machine.pid}, console {machine.console}")
    return hand_on(context, parameter, name)


@lab_command.command("status")
@click.option(
    "--name", default=DEFAULT_NAME, show_default=True, callback=_status_inside, help="Labs of different names coexist."
)
@output_option
@click.pass_context
def status_command(context: click.Context, /, name: str, *, output: Output) -> None:
    """Show what of a lab is alive. Exit status 2: not all of it."""
    from dataclasses import asdict

    from xenoovs.cli.main import EXIT_DIFFERS, EXIT_OK
    from xenoovs.lab.lab import open_lab
    from xenoovs.lab.lifecycle import lab_status

    status = lab_status(open_lab(name))
    if output is Output.JSON:
        print_json({**asdict(status), "healthy": status.is_healthy})
    else:
        daemons = "runs" if len(status.ovs_pids) == 2 else click.style("does not run", fg="red")
        echo(f"lab {name} in {status.directory}\nOpen vSwitch {daemons} at {status.db}")
        echo(f"bridge {status.bridge}: {', '.join(status.ports)}\n")
        rows = [[", ".join(m.names), m.mac, m.egress, m.namespace, _state(up=m.is_up)] for m in status.machines]
        print_table(["BACKEND", "MAC", "BEHIND", "NAMESPACE", "STATE"], rows)
    context.exit(EXIT_OK if status.is_healthy else EXIT_DIFFERS)


@lab_command.command("traffic")
@optional_config
@name_inside
@click.option(
    "--clients", type=click.IntRange(1, 1_000_000), default=2000, show_default=True, help="Different source addresses."
)
@click.option(
    "--packets",
    type=click.IntRange(1, 1_000_000),
    default=20000,
    show_default=True,
    help="Packets; for TCP connections.",
)
@click.option("--udp", "protocol", flag_value=Protocol.UDP.value, help="Only services that take UDP.")
@click.option("--tcp", "protocol", flag_value=Protocol.TCP.value, help="Only services that take TCP.")
@click.option("--icmp", "protocol", flag_value=Protocol.ICMP.value, help="Only services that take ICMP.")
@click.option("--seed", type=int, default=0, show_default=True, help="Another seed, other clients.")
@output_option
@click.pass_context
def traffic_command(
    context: click.Context, /, config: Path | None, name: str, *, protocol: str | None, output: Output, **load: Any
) -> None:
    """Send packets from many clients to the services of a lab and count who answered.

    The backends are told by their answers, never by the flows. FILE: a config other than the one the lab was built
    for, with the same ports, VIPs and backends (other weights, say).

    Exit status 0: the backends of each service answered, 2: of a service more than 1% was lost, or somebody else
    answered, or twice, or some could not be sent, 1: nothing could be sent.
    """
    from xenoovs.cli.main import EXIT_DIFFERS, EXIT_FAILED, EXIT_OK
    from xenoovs.compile.program import compile_onto
    from xenoovs.lab.lab import CONFIG, open_lab
    from xenoovs.lab.traffic import Load, send

    lab = open_lab(name)
    balancer = _balancer(config or lab.directory / CONFIG)
    wanted = Load(protocol=Protocol(protocol) if protocol else None, **load)
    with progress_bar("sending") as progress:
        report = send(lab, balancer, load=wanted, progress=progress)
    program = compile_onto(balancer, connect(db=None, lab=name).dump_flows(balancer.uplinks.bridge))
    if output is Output.JSON:
        print_json(traffic_document(report, program))
    else:
        show_traffic(report, program)
    if not report.is_sent:
        context.exit(EXIT_FAILED)
    context.exit(EXIT_OK if report.is_served else EXIT_DIFFERS)


@lab_command.command("exec", context_settings={"ignore_unknown_options": True})
@name_option
@click.argument("argv", metavar="COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def exec_command(context: click.Context, /, name: str, argv: tuple[str, ...]) -> None:
    """Run a command in the virtual machine of a lab with an emulated NIC.

    It has the files of this host (read-only; what it writes is gone with the machine), this directory, and finds the
    lab's Open vSwitch. Its exit status is that of the command.

    \b
    Example:
      xenoovs lab exec -- ovs-appctl dpctl/dump-flows -m type=offloaded
      xenoovs lab exec -- cat /sys/kernel/debug/eswitch/rules
    """
    context.exit(run_inside(_machine(name), argv, name=name))


@lab_command.command("shell")
@name_option
@click.pass_context
def shell_command(context: click.Context, /, name: str) -> None:
    """Open a shell in the virtual machine of a lab with an emulated NIC; `exit` leaves it."""
    # Without anybody's start-up files, which may take long when they are emulated.
    prompt = f"PS1=lab {name}:\\w\\$ "
    context.exit(run_inside(_machine(name), ["env", prompt, "bash", "--noprofile", "--norc"], name=name))


def _machine(name: str) -> VirtualMachine:
    from xenoovs.errors import LabError
    from xenoovs.lab.lab import open_lab
    from xenoovs.lab.topology import switch_namespace

    if machine := machine_of(name):
        return machine
    open_lab(name)
    here = f"`ip netns exec {switch_namespace(name)} COMMAND`"
    raise LabError(f"lab {name} is in no virtual machine but in namespaces of this host: {here} runs there")


def _balancer(config: Path | None) -> Balancer:
    if config is not None:
        return load(config)
    from xenoovs.config.load import parse_config
    from xenoovs.config.templates import read_template

    return parse_config(read_template("quickstart"), file="quickstart")


def _state(*, up: bool) -> str:
    return click.style("up", fg="green") if up else click.style("down", fg="red")
