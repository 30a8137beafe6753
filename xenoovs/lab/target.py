"""Labs for the commands of other rooms (terminal/defaults.py), and commands in a lab's virtual machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from xenoovs.errors import LabError
from xenoovs.lab.lab import (
    CONFIG,
    CONFIG_SOURCE,
    check_built,
    directory_of,
    lab_names,
    machine_directory,
    open_lab,
    read_state,
)
from xenoovs.terminal.defaults import CONFIG_VARIABLE, FORWARDED, LAB_VARIABLE

if TYPE_CHECKING:
    from xenoovs.lab.nic.machine import VirtualMachine
    from xenoovs.lab.servers import FollowedConfig

__all__ = ["config_of_lab", "config_parser_of", "forward_to_vm", "lab_names", "open_lab", "run_in_vm", "vm_of"]

# Files that a command names are sent with it, as the machine may have cached an older content.
_LARGEST_FILE_BYTES = 16 << 20
_FORWARDED = ("TERM", "COLUMNS", "LINES", "NO_COLOR", "LANG", "LC_ALL")


def config_of_lab(lab: str) -> Path:
    """Return the config file that the lab was built for; if it no longer exists, the copy in the lab's directory."""
    directory = directory_of(lab, None)
    source = directory / CONFIG_SOURCE
    return source.resolve() if os.path.exists(source) else directory / CONFIG  # noqa: PTH110 (it raises nothing)


def config_parser_of(lab: str) -> FollowedConfig:
    from xenoovs.lab.servers import FollowedConfig

    return FollowedConfig(open_lab(lab))


def forward_to_vm(context: click.Context, _parameter: click.Parameter, name: str | None) -> str | None:
    """Run the whole command in the virtual machine of lab `name`, if it has one: the callback of an option."""
    if name is not None and not context.resilient_parsing and (machine := vm_of(name)):
        context.exit(run_in_vm(machine, ["xenoovs", *context.find_root().obj], name=name, environment=FORWARDED))
    return name


def vm_of(name: str) -> VirtualMachine | None:
    """Return the machine of a lab; None if the lab is on this host or does not exist. Raises LabError if it is down."""
    place = directory_of(name, None)
    state = read_state(place)
    if state is None or not state.nic:
        return None
    check_built(name, state)
    from xenoovs.lab.nic.machine import VirtualMachine

    machine = VirtualMachine(machine_directory(place))
    if machine.pid is None:
        raise LabError(
            f"the virtual machine of lab {name} has stopped; {machine.last_words()}\n"
            f"remove it with `xenoovs lab down --lab {name}`"
        )
    return machine


def run_in_vm(
    machine: VirtualMachine, argv: Sequence[str], *, name: str, environment: Mapping[str, str] | None = None
) -> int:
    """Run a command in the machine of lab `name` with this terminal and directory; return its exit status."""
    from xenoovs.lab.nic.call import attach

    environment = {key: os.environ[key] for key in _FORWARDED if key in os.environ} | dict(environment or {})
    # The Open vSwitch directory in the machine, where lab/nic/guest/lab.py builds the lab in the default directory.
    rundir = f"/run/xenoovs/lab/{name}/ovs"
    environment |= {"OVS_RUNDIR": rundir, "OVS_LOGDIR": rundir, "OVS_DBDIR": rundir, LAB_VARIABLE: name}
    source = directory_of(name, None) / CONFIG_SOURCE
    config = os.environ.get(CONFIG_VARIABLE) or (str(source.resolve()) if source.exists() else "")
    if config:
        # The lab in the machine has only a copy.
        environment[CONFIG_VARIABLE] = config
    sys.stdout.flush()
    files = _files((*argv[1:], *config.split(os.pathsep)))
    return attach(machine, argv, directory=os.getcwd(), environment=environment, files=files)  # noqa: PTH109


def _files(words: Sequence[str]) -> dict[str, str]:
    # `--option=FILE` names a file too.
    words = [part for word in words for part in (word, word.partition("=")[2]) if part]
    paths = dict.fromkeys(Path(os.path.abspath(word)) for word in words)  # noqa: PTH100 (links stay as they are)
    return {str(path): path.read_bytes().decode(errors="surrogateescape") for path in paths if _is_sent(path)}


def _is_sent(path: Path) -> bool:
    # The machine has the same programs, but its own kernel and devices.
    try:
        return (
            path.is_file()
            and not any(map(path.is_relative_to, ("/proc", "/sys", "/dev")))
            and not os.access(path, os.X_OK)
            and path.stat().st_size <= _LARGEST_FILE_BYTES
        )
    except OSError:
        return False
