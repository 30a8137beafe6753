"""`xenoovs lab`: a whole test network on this machine."""

from __future__ import annotations

import click

from xenoovs.terminal.command import LazyGroup
from xenoovs.terminal.options import output_option
from xenoovs.terminal.output import echo, is_text, print_json, print_table

# Each command with the module that has it as `NAME_command`, and its one line, so that help imports no command.
_COMMANDS = {
    "up": ("lab", "Build a lab for the config FILE, or a fabric."),
    "down": ("lab", "Remove a lab, also one whose `lab up` crashed."),
    "list": ("", "List the labs on this machine."),
    "status": ("lab", "Show which parts of a lab work, and which backends answer."),
    "traffic": ("lab", "Send packets to the services of a lab, and count answers."),
    "fail": ("lab", "Make a backend or a spine fail, and work again."),
    "elephant": ("fabric", "Send an elephant over one path of a fabric."),
    "exec": ("lab", "Run a command in the virtual machine of a lab, or on a machine."),
}


@click.group(
    "lab",
    cls=LazyGroup,
    sections={"Commands": {name: text for name, (_, text) in _COMMANDS.items()}},
    modules={name: f"{__name__}.{module}".rstrip(".") for name, (module, _) in _COMMANDS.items()},
)
def lab_command() -> None:
    """Run a whole test network on this machine, without a NIC: clients, a real Open vSwitch, backends.

    Everything is in network namespaces of its own; the host's network and Open vSwitch stay untouched. Needs root.

    \b
    Example:
      xenoovs lab up my.yaml
      xenoovs apply --lab
      xenoovs lab traffic
      xenoovs lab down

    With `--nic emulated` the lab is in a virtual machine with an emulated NIC that flows are offloaded to.
    """


@click.command("list")
@output_option
def list_command() -> None:
    """List the labs on this machine.

    STATE is up, failing (only by `lab fail`), damaged (something of it does not work), stopped (its virtual machine),
    incomplete (`lab up` did not finish), or unreadable (its state file is broken, or of another version). `xenoovs
    lab down` removes each.
    """
    from xenoovs.lab.lab import lab_names

    labs = [_summary(name) for name in lab_names()]
    if not is_text():
        print_json({"labs": labs})
    elif labs:
        print_table(["LAB", "STATE", "NIC", "BRIDGE", "CONFIG"], [[*map(str, lab.values())] for lab in labs])
    else:
        echo("no lab is up; `xenoovs lab up` makes one")


def _summary(name: str) -> dict[str, str]:
    """Return the table cells of a lab, also if its state file cannot be read. Raises LabError without root."""
    from xenoovs.lab.lab import UnreadableLab, directory_of, fabric_of, machine_directory, open_lab, read_state
    from xenoovs.lab.target import config_of_lab

    shown = {"lab": name, "state": "incomplete", "nic": "-", "bridge": "-", "config": str(config_of_lab(name))}
    place = directory_of(name, None)
    try:
        state = read_state(place)
    except UnreadableLab:
        return {**shown, "state": "unreadable"}
    shown["nic"] = "emulated" if state is not None and state.nic else "none"
    if state is None or not state.complete:
        pass
    elif state.nic:
        from xenoovs.lab.nic.machine import VirtualMachine

        shown["state"] = "up" if VirtualMachine(machine_directory(place)).pid is not None else "stopped"
    elif fabric := fabric_of(name):
        from xenoovs.lab.fabric.status import fabric_machines, state_of

        shown |= {"state": state_of(fabric_machines(fabric)), "config": "-"}
    else:
        from xenoovs.lab.status import lab_status

        shown["state"] = lab_status(open_lab(name)).state
    return shown if state is None else {**shown, "bridge": state.topology.bridge}
