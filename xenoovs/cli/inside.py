"""Commands that belong into the virtual machine of a lab with an emulated NIC: handed on as they were typed."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from xenoovs.lab.nic.machine import Machine

# Files that a command names go with it, for the machine may have read them before they were changed.
_LARGEST_FILE_BYTES = 16 << 20
_HANDED_ON = ("TERM", "COLUMNS", "LINES", "NO_COLOR", "LANG", "LC_ALL")


def hand_on(context: click.Context, _parameter: click.Parameter, name: str | None) -> str | None:
    """Callback of an option that names a lab: in the machine of that lab the whole command runs; here it ends then."""
    if name is not None and not context.resilient_parsing and (machine := machine_of(name)):
        context.exit(run_inside(machine, ["xenoovs", *context.find_root().obj], name=name))
    return name


def machine_of(name: str) -> Machine | None:
    """The machine of that lab; None: the lab is on this host, or is not there. Raises LabError when it is not ready."""
    from xenoovs.errors import LabError
    from xenoovs.lab.lab import directory_of, machine_directory, read_state
    from xenoovs.lab.nic.machine import Machine

    place = directory_of(name, None)
    state = read_state(place)
    if state is None or not state.nic:
        return None
    if not state.complete:
        raise LabError(f"lab {name} was never completed; remove it with `xenoovs lab down --name {name}`")
    machine = Machine(machine_directory(place))
    if machine.pid is None:
        raise LabError(
            f"the virtual machine of lab {name} does not run any more; {machine.last_words()}\n"
            f"remove it with `xenoovs lab down --name {name}`"
        )
    return machine


def run_inside(machine: Machine, argv: Sequence[str], *, name: str) -> int:
    """Run a command in the machine of lab `name` as if it were here: this terminal, this directory, its exit status."""
    from xenoovs.lab.nic.attach import attach
    from xenoovs.lab.nic.call import new_request

    environment = {key: os.environ[key] for key in _HANDED_ON if key in os.environ}
    # Where the machine has its Open vSwitch: `build` of lab/nic/guest/lab.py runs there without a directory of its own.
    rundir = f"/run/xenoovs/lab/{name}/ovs"
    environment |= {"OVS_RUNDIR": rundir, "OVS_LOGDIR": rundir, "OVS_DBDIR": rundir}
    sys.stdout.flush()
    request = new_request(argv, directory=os.getcwd(), environment=environment, files=_files(argv))  # noqa: PTH109
    return attach(machine, request)


def _files(argv: Sequence[str]) -> dict[str, str]:
    # Whoever writes `--option=FILE` means a file too.
    words = [part for word in argv[1:] for part in (word, word.partition("=")[2]) if part]
    paths = dict.fromkeys(Path(os.path.abspath(word)) for word in words)  # noqa: PTH100 (links stay as they are)
    return {str(path): path.read_bytes().decode(errors="surrogateescape") for path in paths if _travels(path)}


def _travels(path: Path) -> bool:
    # Programs are the same there; the machine has a kernel, devices and a /run of its own.
    try:
        return (
            path.is_file()
            and not path.is_relative_to("/proc")
            and not path.is_relative_to("/sys")
            and not path.is_relative_to("/dev")
            and not os.access(path, os.X_OK)
            and path.stat().st_size <= _LARGEST_FILE_BYTES
        )
    except OSError:
        return False
