"""The commands of `xenoovs lab` for a lab with the bridge of a config."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import click

from xenoovs.compile.plan import ChangeKind
from xenoovs.display import percent, span
from xenoovs.engine.change import PlanOptions
from xenoovs.engine.engine import Engine
from xenoovs.errors import LabError, ListenError, XenoovsError, counted, first_names, worded
from xenoovs.lab import lifecycle, servers, traffic
from xenoovs.lab.client import Pace
from xenoovs.lab.commands import fabric as lab_fabric
from xenoovs.lab.host import check_root
from xenoovs.lab.lab import Lab, config_of, directory_of, fabric_of, lab_names, link_config, open_lab, write_config
from xenoovs.lab.nic import up as nic_up
from xenoovs.lab.probing import in_lab
from xenoovs.lab.servers import Failure
from xenoovs.lab.status import LabStatus, MachineStatus, lab_status
from xenoovs.lab.target import config_of_lab, forward_to_vm, run_in_vm, vm_of
from xenoovs.lab.topology import Machine, plan_topology
from xenoovs.lab.traffic import LabReport, ServiceTraffic
from xenoovs.model.balancer import Balancer, Protocol, service_ids
from xenoovs.model.templates import read_template
from xenoovs.switch.management import ManagementSwitch
from xenoovs.terminal.command import EXIT_DIFFERS, EXIT_FAILED, EXIT_OK
from xenoovs.terminal.completion import complete_lab_backend
from xenoovs.terminal.defaults import DEFAULT_LAB, announce, environment_config, find_lab, usual_lab
from xenoovs.terminal.load import load, resolved
from xenoovs.terminal.options import (
    Command,
    data_rate,
    data_size,
    lab_option,
    optional_config_argument,
    output_option,
    time_option,
)
from xenoovs.terminal.output import echo, is_text, print_json, print_table
from xenoovs.terminal.reach import find_places

_GUEST = "xenoovs.cli.nic_guest"
"""The first Python module of a virtual machine. It imports all commands, and so belongs to a room above the lab."""
_HELP = "Name of the lab; several can coexist.  [env var: XENOOVS_LAB; default: {}]"
_USUAL = "the only one, else `default`"
Shares = Mapping[tuple[str, str], Fraction]
"""Shares of clients by service and backend."""

_PACKETS = 20_000
_USUAL_RATE = 200.0


def _named(context: click.Context, _parameter: click.Parameter, given: str | None) -> str | None:
    lab, origin = find_lab(given, DEFAULT_LAB)
    announce(f"lab {lab}", origin)
    return lab


def _existing(_context: click.Context, _parameter: click.Parameter, given: str | None) -> str | None:
    return find_lab(given)[0] or usual_lab()


def _forwarded(context: click.Context, parameter: click.Parameter, given: str | None) -> str | None:
    return forward_to_vm(context, parameter, _existing(context, parameter, given))


def _forward_status(context: click.Context, parameter: click.Parameter, given: str | None) -> str | None:
    name = _existing(context, parameter, given)
    if name is not None and (machine := vm_of(name)) and "json" not in context.find_root().obj:
        echo(f"in a virtual machine with an emulated NIC: process {machine.pid}, console {machine.console}")
    return forward_to_vm(context, parameter, name)


def name_option(callback: Callable[..., str | None] = _existing, default: str = _USUAL) -> Callable[[Command], Command]:
    """Declare the option --lab NAME, which the command gets as `name`."""
    return lab_option("name", help=_HELP.format(default), callback=callback, is_eager=True)


@click.command("up")
@optional_config_argument
@name_option(_named, DEFAULT_LAB)
@click.option(
    "--nic",
    type=click.Choice(["none", "emulated"]),
    default="none",
    show_default=True,
    help="emulated: build the lab in a virtual machine (QEMU) with Debian's kernel and a NIC with hardware offload.",
)
@click.option(
    "--topology",
    type=click.Choice(["balancer", "fabric"]),
    default="balancer",
    show_default=True,
    help="balancer: clients, a bridge, backends. fabric: hosts with DPUs at two leaves, a spine for each path.",
)
@click.option("--paths", type=int, metavar="N", help="Spines of a fabric, 2 to 16.  [default: 4]")
@click.option("--senders", type=int, metavar="N", help="Hosts at its first leaf, 1 to 16.  [default: 1]")
@click.option("--rate", "rate_bps", type=data_rate, metavar="RATE", help="Of each path and sender.  [default: 40mbit]")
@click.option(
    "--buffer",
    "buffer_bytes",
    type=data_size,
    metavar="SIZE",
    help="Queue before each path, in kb of 1000 bytes.  [default: 100kb]",
)
@output_option
def up_command(config: Path | None, name: str, *, nic: str, topology: str, **shape: int | None) -> None:
    """Build a lab for the config FILE, or a fabric.

    Without FILE, the lab is for the template quickstart. Its bridge has the ports of the config and no flows yet. Each
    backend is a namespace with the MAC of the config and the VIP on its loopback (direct server return). If anything
    fails, all of it is removed again.

    Health checks work: `xenoovs agent --lab` probes inside the lab, whatever `interface` and `netns` say, and the
    backends answer what the config expects. A backend without `address` gets one.

    With --nic emulated the lab is in a virtual machine, which takes half a minute to boot and up to 2 GB of memory. The
    first time, Debian's kernel is downloaded (100 MB) and a module is built for it; ~/.cache/xenoovs/nic caches both.
    Commands with --lab, `lab status` and `lab traffic` are forwarded into it; `lab exec` runs any command in it.

    With --topology fabric the lab has hosts that send VXLAN through DPUs, and two leaves that spread it over several
    spines. It takes no FILE: each DPU has a config with `tunnels`, and `lab exec --on DPU -- xenoovs ...` uses it.
    """
    if (fabric := lab_fabric.shape_of(topology, shape)) is not None:
        if config is not None or nic != "none":
            raise click.UsageError("--topology fabric takes neither a FILE nor --nic.")
        with _progress_bar("building the fabric") as progress:
            lab_fabric.up(name, fabric, progress=progress)
        return
    config = config or environment_config()
    if config is not None:
        balancer = load(config, for_lab=True)
    else:
        from xenoovs.model.load import parse_config

        balancer = parse_config(read_template("quickstart"), file="quickstart")
    with _progress_bar("building the lab") as progress:
        if nic == "emulated":
            machine = nic_up.up(name, balancer, guest=_GUEST, progress=progress)
            write_config(directory_of(name, None), balancer)
            document: dict[str, object] = {"nic": "emulated", "pid": machine.pid, "console": str(machine.console)}
            up = f"in a virtual machine with an emulated NIC (process {machine.pid})"
            tools = f"anything else: xenoovs lab exec --lab {name}"
        else:
            lab = lifecycle.up(name, balancer, progress=progress)
            write_config(lab.directory, balancer)
            backends = len(lab.topology.machines)
            document = {"db": lab.ovs.db, "rundir": str(lab.ovs.directory), "backends": backends}
            up = f"with {counted(backends, 'backend')}, Open vSwitch at {lab.ovs.db}"
            tools = f"OVS tools: export OVS_RUNDIR={lab.ovs.directory}"
    if config is not None and str(config) != "-":
        link_config(directory_of(name, None), config)
    if not is_text():
        print_json({"lab": name, **document, "chosen_addresses": _chosen_addresses(name, balancer)})
        return
    echo(f"lab {name} is up {up}")
    if chosen := _chosen_addresses(name, balancer):
        named = ", ".join(f"{backend} {address}" for backend, address in chosen.items())
        echo(f"health checks go to addresses of the lab, as the config has none: {named}")
    echo(f"next: xenoovs apply --lab {name}; {tools}")


def _chosen_addresses(name: str, balancer: Balancer) -> dict[str, str]:
    """Return the addresses that the lab chose for backends with health checks, by `service/backend`."""
    inside = in_lab(balancer, plan_topology(name, balancer))
    return {
        f"{service.name}/{backend.name}": str(there.address)
        for service, service_there in zip(balancer.services, inside.services, strict=True)
        if service.health is not None
        for backend, there in zip(service.backends, service_there.backends, strict=True)
        if backend.address is None
    }


@click.command("down")
@name_option(_named, DEFAULT_LAB)
@output_option
def down_command(name: str) -> None:
    """Remove a lab, also one whose `lab up` crashed. Succeeds if there is none."""
    removed = lifecycle.down(name)
    if not is_text():
        print_json({"lab": name, "namespaces": removed.namespaces, "processes": removed.processes})
    elif removed.anything:
        processes = counted(removed.processes, "process", "processes")
        echo(f"lab {name} removed: {counted(removed.namespaces, 'namespace')}, {processes}")
    else:
        others = ", ".join(lab_names())
        echo(f"there is no lab {name}" + (f"; up: {others} (--lab NAME chooses one)" if others else ""))


@click.command("status")
@name_option(_forward_status)
@output_option
@click.pass_context
def status_command(context: click.Context, /, name: str) -> None:
    """Show which parts of a lab work, and which backends answer; of a fabric its machines.

    Backends are probed inside the lab, by the path of health checks. RECEIVED: packets that reached the backend. Exit
    status 2: something does not work.
    """
    if fabric := fabric_of(name):
        context.exit(lab_fabric.show_status(fabric))
    status = lab_status(open_lab(name))
    exit_status = EXIT_OK if status.is_healthy else EXIT_DIFFERS
    if not is_text():
        print_json(_document(status))
        context.exit(exit_status)
    daemons = "runs" if len(status.ovs_pids) == 2 else click.style("does not run", fg="red")
    echo(f"lab {name} in {status.directory}\nOpen vSwitch {daemons} at {status.db}")
    echo(f"bridge {status.bridge}: {', '.join(status.ports)}\n")
    rows = list[list[str]]()
    for each in status.machines:
        machine, received = each.machine, "-" if each.received is None else str(each.received)
        answer = each.answer if each.latency_s is None else f"{each.answer} ({span(each.latency_s)})"
        rows.append([", ".join(machine.names), machine.namespace, machine.address, _state(each), answer, received])
    print_table(["BACKEND", "NAMESPACE", "ADDRESS", "STATE", "ANSWER", "RECEIVED"], rows, right=[5])
    context.exit(exit_status)


@click.command("fail")
@click.argument("backend", required=False, shell_complete=complete_lab_backend)
@click.option(
    "--how",
    type=click.Choice([how.value for how in Failure]),
    help="What fails: the link, the program, all answers, or only the speed.  [default: port]",
)
@click.option("--end", is_flag=True, help="Make BACKEND work again; without BACKEND, all of them.")
@name_option(_forwarded)
@output_option
def fail_command(backend: str | None, name: str, *, how: str | None, end: bool) -> None:
    """Make a backend of a lab fail, as if its server died, or a spine of a fabric; or work again with --end.

    \b
    link    its cable is unplugged
    port    its program has ended, and the kernel refuses connections
    silent  it receives packets and answers nothing, not even ARP
    slow    its program answers after 2s

    \b
    Example:
      xenoovs lab fail fips3 --how silent
      xenoovs lab status
      xenoovs lab fail --end
      xenoovs lab fail spine2 --how silent --lab fabric
    """
    if end:
        if how is not None:
            raise click.UsageError("--how has no use with --end.")
        _end_failures(backend, name)
        return
    if backend is None:
        raise click.UsageError("Missing argument 'BACKEND'; only --end is for all of them.")
    failure = Failure.PORT if how is None else Failure(how)
    if fabric := fabric_of(name):
        lab_fabric.fail(fabric, backend, failure.value)
        return
    check_root()
    lab = open_lab(name)
    machine, balancer = servers.find_machine(lab, backend), config_of(lab)
    servers.fail(lab, machine, failure, balancer)
    if not is_text():
        print_json({"lab": name, "backend": _label(machine), "failure": failure.value})
        return
    echo(f"{_label(machine)} fails ({failure.value}): {servers.EFFECTS[failure]}")
    for service in balancer.services:
        is_its = any(each.name in machine.names for each in service.backends)
        if is_its and service.health and service.health.probe in servers.UNNOTICED_BY.get(failure, ()):
            probe = service.health.probe.value
            echo(f"health check of {service.name} does not notice: the kernel still answers {probe} probes")
    echo(f"next: xenoovs lab fail {machine.names[0]} --end --lab {name}")


def _end_failures(backend: str | None, name: str) -> None:
    if fabric := fabric_of(name):
        lab_fabric.heal(fabric, backend)
        return
    check_root()
    lab = open_lab(name)
    machines = lab.topology.machines if backend is None else (servers.find_machine(lab, backend),)
    healed = servers.heal(lab, machines, config_of(lab))
    if not is_text():
        print_json({"lab": name, "healed": [_label(machine) for machine in healed]})
    elif healed:
        echo(f"{', '.join(map(_label, healed))} answers again" if len(healed) == 1 else f"{len(healed)} answer again")
    else:
        echo("nothing to do: " + ("no backend has failed" if backend is None else f"{backend} has not failed"))


@click.command("traffic")
@optional_config_argument
@name_option(_forwarded)
@click.option(
    "--clients",
    metavar="N",
    type=click.IntRange(1, 1_000_000),
    default=2000,
    show_default=True,
    help="Number of source addresses.",
)
@click.option(
    "--packets",
    metavar="N",
    type=click.IntRange(1, 1_000_000),
    help="Number of packets, or of TCP connections.  [default: 20000]",
)
@time_option(
    "--for",
    help="Send for this time, such as 60s, in place of --packets. Ctrl-C ends it and prints the summary.",
)
@click.option(
    "--rate",
    type=click.FloatRange(0, 100_000, min_open=True),
    metavar="N",
    help="Packets a second.  [default: as fast as answers come; with --for 200]",
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
    packets: int | None,
    for_s: float | None,
    rate: float | None,
    **amount: Any,
) -> None:
    """Send packets to the services of a lab, and count answers.

    The packets come from many clients; answers are counted by backend. A backend is recognised by its answer, not by
    the flows. SHARE is what the bridge has now, TARGET what the config says; a note names services for which the config
    is not applied. FILE: a config other than the one of `lab up`, with the same ports, VIPs and backends, but other
    weights for example.

    Exit status 0: the backends of each service answered, 2: more than 1 % of a service's packets were lost, another
    machine answered, an answer came twice, or some packets could not be sent, 1: nothing could be sent.

    \b
    Example:
      xenoovs lab traffic --for 60s --rate 200 &
    """
    if packets is not None and for_s is not None:
        raise click.UsageError("--packets and --for exclude each other: --rate times --for packets are sent.")
    if rate is None and for_s is not None:
        rate = _USUAL_RATE
    lab = open_lab(name)
    path = config or environment_config() or config_of_lab(name)
    balancer = in_lab(load(path, for_lab=True), lab.topology)
    wanted = traffic.Load(protocol=Protocol(protocol) if protocol else None, packets=packets or _PACKETS, **amount)
    pace = None if rate is None else Pace(rate, for_s)
    with _progress_bar("sending") as progress:
        report = traffic.send(lab, balancer, load=wanted, pace=pace, progress=progress)
    shares = _installed_shares(balancer, lab)
    if not is_text():
        print_json(_traffic_document(report, shares))
    else:
        _show_traffic(report, shares, is_paced=pace is not None)
    if differing := _not_applied(balancer, lab):
        names = first_names(differing)
        verb = worded(len(differing), "differs", "differ")
        echo(
            f"note: {names} {verb} on the bridge from the config: SHARE and TRAFFIC are of what is applied, TARGET is "
            "of the config; `xenoovs plan` shows the difference",
            err=True,
        )
    if not report.is_sent:
        context.exit(EXIT_FAILED)
    context.exit(EXIT_OK if report.is_served else EXIT_DIFFERS)


def _show_traffic(report: LabReport, shares: Shares, *, is_paced: bool) -> None:
    rows = []
    for service in report.services:
        for backend in service.backends:
            space, answered = percent(shares.get((service.service, backend.name), Fraction(0))), str(backend.answered)
            target, share = percent(backend.wanted), percent(backend.share)
            rows.append([service.service, backend.name, target, space, answered, share])
        rows += [[service.service, other, "-", "-", str(packets), "-"] for other, packets in service.foreign_answers]
    print_table(["SERVICE", "BACKEND", "TARGET", "SHARE", "PACKETS", "TRAFFIC"], rows, right=range(2, 6))
    echo()
    for service in report.services:
        sent = f"{counted(service.sent, f'{service.protocol.value} packet')} of {counted(service.clients, 'client')}"
        speed = f" in {span(report.duration_s)}" if is_paced else ""
        text = f"{service.service}: {sent}{speed}, {service.answered} answered, {service.lost} lost"
        echo(click.style(text, fg="yellow") if service.lost else text)
    for name, reason in report.skipped:
        echo(f"{name}: skipped, {reason}")
    for reason, packets in report.failures:
        echo(click.style(f"{counted(packets, 'packet')} not sent: {reason}", fg="red"))
    if report.duplicates:
        echo(click.style(f"{counted(report.duplicates, 'packet')} answered twice", fg="yellow"))


def _traffic_document(report: LabReport, shares: Shares) -> dict[str, object]:
    return {
        "duration_s": round(report.duration_s, 3),
        "duplicates": report.duplicates,
        "skipped": dict(report.skipped),
        "failures": dict(report.failures),
        "services": [_service_document(service, shares) for service in report.services],
    }


def _service_document(service: ServiceTraffic, shares: Shares) -> dict[str, object]:
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
                "share": float(shares.get((service.service, backend.name), Fraction(0))),
                "answered": backend.answered,
                "traffic_share": None if backend.share is None else float(backend.share),
            }
            for backend in service.backends
        ],
    }


def _installed_shares(balancer: Balancer, lab: Lab) -> Shares:
    """Return the share of the clients that each backend has on the bridge now."""
    decision, _ = Engine(ManagementSwitch(lab.endpoint)).decision(resolved(balancer))
    ids = service_ids(service.claim for service in balancer.services)
    services = dict(decision.services)
    return {
        (service.name, backend): share
        for service in balancer.services
        if ids[service.claim] in services
        for backend, share in services[ids[service.claim]].active.shares().items()
    }


def _not_applied(balancer: Balancer, lab: Lab) -> list[str]:
    """Return the services whose flows on the bridge differ from the config; empty if an agent runs for the bridge."""
    bridge = balancer.uplinks.bridge
    with suppress(ListenError):
        if find_places(lab.endpoint).running(bridge) is not None:
            return []
    try:
        changes = Engine(ManagementSwitch(lab.endpoint)).plan(resolved(balancer), PlanOptions(partial=True)).services()
        return [each.name for each in changes if each.kind is not ChangeKind.SAME]
    except XenoovsError:
        # No flows can have these weights.
        return [service.name for service in balancer.services]


_machine_option = click.option("--on", "machine", metavar="MACHINE", help="Machine of a fabric, such as dpua1.")


@click.command("exec", context_settings={"ignore_unknown_options": True})
@name_option()
@_machine_option
@click.argument("argv", metavar="[COMMAND]...", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def exec_command(context: click.Context, /, name: str, machine: str | None, argv: tuple[str, ...]) -> None:
    """Run a command in the virtual machine of a lab, or on a machine of a fabric; without COMMAND, a shell.

    With `--nic emulated` the command sees the files of this host read-only (what it writes is lost with the machine),
    starts in this directory, and uses the lab's Open vSwitch. On a DPU of a fabric it uses the Open vSwitch and the
    config of that DPU. The exit status is that of the command.

    \b
    Example:
      xenoovs lab exec -- ovs-appctl dpctl/dump-flows -m type=offloaded
      xenoovs lab exec
      xenoovs lab exec -- cat /sys/kernel/debug/eswitch/rules
      xenoovs lab exec --lab fabric --on dpua1 -- xenoovs apply
    """
    # Without the user's start-up files, which may be slow on an emulated processor.
    prompt = f"PS1=lab {name if machine is None else f'{name} {machine}'}:\\w\\$ "
    words = argv or ("env", prompt, "bash", "--noprofile", "--norc")
    if machine is not None:
        lab_fabric.enter(name, machine, words)
    if (vm := vm_of(name)) is None:
        here = f"`ip netns exec {open_lab(name).topology.switch_namespace} COMMAND`"
        raise LabError(f"lab {name} has no virtual machine; {here} runs a command in its namespace on this host")
    context.exit(run_in_vm(vm, words, name=name))


def _is_foreground() -> bool:
    """Return whether stderr is a terminal, and this command runs in its foreground."""
    try:
        return os.tcgetpgrp(sys.stderr.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return False


@contextmanager
def _progress_bar(title: str) -> Iterator[Callable[[str, int, int], None]]:
    """Draw a progress bar on stderr if it is a terminal. Yield a function of the step, the steps done and all steps."""
    if not _is_foreground():
        yield lambda _what, _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.fields[title]}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", title=title, total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)


def _document(status: LabStatus) -> dict[str, object]:
    document = {**asdict(status), "healthy": status.is_healthy}
    document["machines"] = [
        {
            "label": each.machine.label,
            "names": each.machine.names,
            "namespace": each.machine.namespace,
            "mac": each.machine.mac,
            "egress": each.machine.egress,
            "address": each.machine.address,
            "failure": each.failure and each.failure.value,
            "answer": each.answer,
            "latency_s": each.latency_s,
            "received": each.received,
            "is_up": each.is_up,
        }
        for each in status.machines
    ]
    return document


def _state(machine: MachineStatus) -> str:
    if machine.failure is not None:
        return click.style(f"failed: {machine.failure.value}", fg="yellow")
    return click.style("up", fg="green") if machine.is_up else click.style("down", fg="red")


def _label(machine: Machine) -> str:
    return "/".join(machine.names)
