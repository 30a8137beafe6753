"""The commands of `xenoovs lab` for a fabric lab: options, status, commands on its machines, elephants."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import click

from xenoovs.errors import LabError, counted, did_you_mean
from xenoovs.lab.fabric import build, status
from xenoovs.lab.fabric_topology import BRIDGE, FabricShape, elephant_net
from xenoovs.lab.host import Progress, check_root
from xenoovs.lab.lab import FabricLab, open_fabric
from xenoovs.switch.process import PYTHON_MODULE
from xenoovs.terminal.command import EXIT_DIFFERS, EXIT_OK
from xenoovs.terminal.defaults import CONFIG_VARIABLE, LAB_VARIABLE
from xenoovs.terminal.output import answer, echo, is_text, print_json, print_table


def shape_of(topology: str, given: Mapping[str, Any]) -> FabricShape | None:
    """Return the shape of a fabric from the options; None if the lab is no fabric. Raises click.UsageError."""
    named = {name: value for name, value in given.items() if value is not None}
    if topology == "fabric":
        return FabricShape(**named)
    if named:
        option = next(iter(named)).removesuffix("_bps").removesuffix("_bytes")
        raise click.UsageError(f"--{option} is for --topology fabric.")
    return None


def up(name: str, shape: FabricShape, *, progress: Progress) -> None:
    """Build a fabric lab and print the next step. Raises LabError."""
    lab = build.up(name, shape, progress=progress)
    configs = {site.dpu: str(lab.config(site.dpu)) for site in lab.fabric.sites}
    if not is_text():
        print_json({"lab": name, "topology": "fabric", **asdict(shape), "configs": configs})
        return
    echo(f"lab {name} is up: {counted(shape.senders, 'sender')}, {shape.paths} paths, a DPU with Open vSwitch each")
    echo(f"next: xenoovs lab exec --lab {name} --on dpua1 -- xenoovs apply; its config: {configs['dpua1']}")


def show_status(lab: FabricLab) -> int:
    """Show which machines of a fabric lab work. Return the exit status. Raises LabError."""
    machines = status.fabric_machines(lab)
    state = status.state_of(machines)
    exit_status = EXIT_OK if state == "up" else EXIT_DIFFERS
    if not is_text():
        facts = {"name": lab.name, "directory": str(lab.directory), "bridge": BRIDGE}
        print_json({**facts, "machines": [*map(asdict, machines)], "state": state, "healthy": state == "up"})
        return exit_status
    echo(f"lab {lab.name} in {lab.directory}\nbridge of each DPU: {BRIDGE}\n")
    rows = list[list[str]]()
    for each in machines:
        shown = click.style(each.state, fg="green" if each.state == "up" else "red")
        rows.append([each.name, each.namespace, each.address or "-", shown])
    print_table(["MACHINE", "NAMESPACE", "ADDRESS", "STATE"], rows)
    return exit_status


def fail(lab: FabricLab, spine: str, how: str) -> None:
    """Make a spine drop every packet. `how`: the option's value. Raises LabError."""
    check_root()
    if how != "silent":
        raise LabError(f"a spine of a fabric fails as `--how silent`, not {how}: its links stay up, and nothing passes")
    status.silence(lab, spine)
    answer(
        lambda: {"lab": lab.name, "spine": spine, "failure": how},
        lambda: echo(f"{spine} swallows all packets\nnext: xenoovs lab fail {spine} --end --lab {lab.name}"),
    )


def heal(lab: FabricLab, spine: str | None) -> None:
    """Make one spine, or all of them, forward again. Raises LabError."""
    check_root()
    healed = status.restore(lab, lab.fabric.spines if spine is None else (spine,))
    message = f"{', '.join(healed)} {'forward' if len(healed) > 1 else 'forwards'} again" if healed else "nothing to do"
    answer(lambda: {"lab": lab.name, "healed": list(healed)}, lambda: echo(message))


def enter(name: str, machine: str, argv: Sequence[str]) -> NoReturn:
    """Execute a command on a machine of a fabric lab; on a DPU it uses the DPU's Open vSwitch. Raises LabError."""
    check_root()
    lab = open_fabric(name)
    machines = lab.fabric.machines
    if machine not in machines:
        guess = did_you_mean(machine, machines)
        raise LabError(f"lab {name} has no machine {machine!r}.{guess} `xenoovs lab status --lab {name}` lists them.")
    # The caller's variables may name another Open vSwitch, or another config, than those of the machine.
    named = (CONFIG_VARIABLE, LAB_VARIABLE, "OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR")
    environment = {key: value for key, value in os.environ.items() if key not in named} | lab.marks
    if any(site.dpu == machine for site in lab.fabric.sites):
        environment |= {**lab.ovs(machine).env, CONFIG_VARIABLE: str(lab.config(machine))}
    sys.stdout.flush()
    namespace = lab.fabric.namespace(machine)
    os.execvpe("ip", ["ip", "netns", "exec", namespace, *argv], environment)  # noqa: S606, S607 - what the user typed


@click.command("elephant")
@click.argument("path", type=click.IntRange(1))
@click.option(
    "--load",
    type=click.FloatRange(0, 10, min_open=True),
    default=1.2,
    show_default=True,
    help="Rate, as a share of the rate of a path: above 1 its queue stays full.",
)
@click.option("--reverse", is_flag=True, help="Send from the second leaf to the first: only answers are late.")
@click.option("--for", "for_s", metavar="SECONDS", type=click.FloatRange(0), help="End after this time.")
@click.option("--lab", "name", required=True, metavar="NAME", help="Name of the fabric lab.")
def elephant_command(path: int, *, load: float, reverse: bool, for_s: float | None, name: str) -> None:
    """Send an elephant over one PATH of a fabric lab, 1 to the number of its spines. Ctrl-C ends it.

    \b
    Example:
      xenoovs lab elephant 2 --lab fabric
    """
    lab = open_fabric(name)
    status.find_spine(lab, f"spine{path}")
    address = elephant_net("leafb" if reverse else "leafa", path).replace(".0/24", ".2")
    rate_bps = load * lab.fabric.shape.rate_bps
    program = [*PYTHON_MODULE, "xenoovs.lab.fabric.elephant", address, f"{rate_bps}"]
    # Begins at once: only measurements set a start time.
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    enter(name, "elephant", [*program, *([f"{for_s}"] if for_s is not None else [])])
