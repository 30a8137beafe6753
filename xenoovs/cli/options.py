"""Options and output that several commands share."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from xenoovs.errors import XenoovsError

if TYPE_CHECKING:
    from xenoovs.lab.nic.machine import VirtualMachine
    from xenoovs.model.balancer import Balancer
    from xenoovs.switch.live import LiveSwitch


# Commands that belong into the virtual machine of a lab with an emulated NIC: handed on as they were typed.


# Files that a command names go with it, for the machine may have read them before they were changed.
_LARGEST_FILE_BYTES = 16 << 20
_HANDED_ON = ("TERM", "COLUMNS", "LINES", "NO_COLOR", "LANG", "LC_ALL")


def hand_on(context: click.Context, _parameter: click.Parameter, name: str | None) -> str | None:
    """Callback of an option that names a lab: in the machine of that lab the whole command runs; here it ends then."""
    if name is not None and not context.resilient_parsing and (machine := machine_of(name)):
        context.exit(run_inside(machine, ["xenoovs", *context.find_root().obj], name=name))
    return name


def machine_of(name: str) -> VirtualMachine | None:
    """The machine of that lab; None: the lab is on this host, or is not there. Raises LabError when it is not ready."""
    from xenoovs.errors import LabError
    from xenoovs.lab.lab import directory_of, machine_directory, read_state
    from xenoovs.lab.nic.machine import VirtualMachine

    place = directory_of(name, None)
    state = read_state(place)
    if state is None or not state.nic:
        return None
    if not state.complete:
        raise LabError(f"lab {name} was never completed; remove it with `xenoovs lab down --name {name}`")
    machine = VirtualMachine(machine_directory(place))
    if machine.pid is None:
        raise LabError(
            f"the virtual machine of lab {name} does not run any more; {machine.last_words()}\n"
            f"remove it with `xenoovs lab down --name {name}`"
        )
    return machine


def run_inside(machine: VirtualMachine, argv: Sequence[str], *, name: str) -> int:
    """Run a command in the machine of lab `name` as if it were here: this terminal, this directory, its exit status."""
    from xenoovs.lab.nic.call import attach
    from xenoovs.lab.nic.frames import GuestCommand

    environment = {key: os.environ[key] for key in _HANDED_ON if key in os.environ}
    # Where the machine has its Open vSwitch: `build` of lab/nic/guest/lab.py runs there without a directory of its own.
    rundir = f"/run/xenoovs/lab/{name}/ovs"
    environment |= {"OVS_RUNDIR": rundir, "OVS_LOGDIR": rundir, "OVS_DBDIR": rundir}
    sys.stdout.flush()
    command = GuestCommand(tuple(argv), os.getcwd(), environment, _files(argv))  # noqa: PTH109
    return attach(machine, command)


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


Command = TypeVar("Command", bound=Callable[..., object])


class Output(Enum):
    """How a command prints its answer."""

    TEXT = "text"
    JSON = "json"


def config_argument(command: Command) -> Command:
    """FILE, the config; `-` reads standard input."""
    path = click.Path(dir_okay=True, allow_dash=True, path_type=Path)
    return click.argument("config", metavar="FILE", type=path)(command)


def configs_argument(command: Command) -> Command:
    """FILE..., the configs of one or several bridges."""
    path = click.Path(dir_okay=True, allow_dash=True, path_type=Path)
    return click.argument("configs", metavar="FILE...", type=path, nargs=-1, required=True)(command)


def output_option(command: Command) -> Command:
    """-o text|json."""
    option = click.option(
        "-o",
        "--output",
        type=click.Choice([output.value for output in Output]),
        default=Output.TEXT.value,
        show_default=True,
        callback=lambda _context, _parameter, value: Output(value),
        help="For people or for programs.",
    )
    return option(command)


def switch_options(command: Command) -> Command:
    """--db and --lab. Commands that an error tells to type reach the Open vSwitch that they name."""
    db = click.option(
        "--db",
        metavar="TARGET",
        help="Database of the Open vSwitch to use, such as unix:/run/openvswitch/db.sock. Default: where the OVS tools "
        "look (OVS_RUNDIR).",
    )
    lab = click.option(
        "--lab",
        metavar="NAME",
        is_eager=True,
        callback=hand_on,
        help="Use the Open vSwitch of this lab (see `xenoovs lab`).",
    )
    return db(lab(_leading(command)))


def _leading(command: Command) -> Command:
    @functools.wraps(command)
    def led(*arguments: Any, **options: Any) -> object:
        try:
            return command(*arguments, **options)
        except XenoovsError as error:
            if error.commands:
                from xenoovs.cli.where import lead

                lead(error, config=options.get("config"), db=options.get("db"), lab=options.get("lab"))
            raise

    return cast(Command, led)


def control_option(command: Command) -> Command:
    """--control PATH."""
    option = click.option(
        "--control",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="PATH",
        help="Unix socket of the agent. Default: /run/xenoovs/BRIDGE.sock; without root, $XDG_RUNTIME_DIR/xenoovs/...",
    )
    return option(command)


def bridge_command(name: str) -> Callable[[Callable[..., object]], click.Command]:
    """A command about the bridge of a config: `NAME FILE [--db TARGET | --lab NAME] [-o text|json]`."""

    def decorate(function: Callable[..., object]) -> click.Command:
        return click.command(name)(config_argument(switch_options(output_option(function))))

    return decorate


def rebalance_option(command: Command) -> Command:
    """--rebalance."""
    option = click.option(
        "--rebalance",
        is_flag=True,
        help="Lay all blocks out anew: fewest hardware entries, but many clients get another backend.",
    )
    return option(command)


def partial_option(command: Command) -> Command:
    """--partial."""
    option = click.option(
        "--partial",
        is_flag=True,
        help="Go on without what cannot be made right: backends behind missing ports, flows that others block.",
    )
    return option(command)


@contextmanager
def hinting_partial() -> Iterator[None]:
    """Add to errors that `--partial` passes over that it does."""
    from xenoovs.errors import FlowTaken, PortsMissing, UnusablePorts

    try:
        yield
    except (FlowTaken, PortsMissing, UnusablePorts) as error:
        error.hint = "To go on without it: add --partial."
        raise


def load(config: Path) -> Balancer:
    """The balancer of a config file, or of standard input. Raises ConfigError."""
    from xenoovs.config.load import MAX_SIZE_BYTES, load_config, parse_config

    if str(config) == "-":
        return parse_config(sys.stdin.buffer.read(MAX_SIZE_BYTES + 1), file="<stdin>")
    return load_config(config)


def load_resolved(config: Path) -> Balancer:
    """As `load`, with the MACs of backends that are given by their address alone. Raises ConfigError, MacUnknown."""
    from xenoovs.model.balancer import sought

    balancer = load(config)
    if not sought(balancer):
        return balancer
    from xenoovs.agent.neighbour import resolve_now

    return resolve_now(balancer)


def load_recorded(config: Path) -> Balancer:
    """As `load`, for a recorded dump: no network is asked for MACs. Raises ConfigError, MacUnknown."""
    from xenoovs.errors import MacUnknown
    from xenoovs.model.balancer import sought

    balancer = load(config)
    if unknown := sought(balancer):
        raise MacUnknown(unknown={str(one.address): names for one, names in unknown.items()}, is_recorded=True)
    return balancer


def connect(db: str | None, lab: str | None) -> LiveSwitch:
    """The Open vSwitch that the options name. Raises click.UsageError, LabError, SwitchError."""
    from xenoovs.switch.endpoint import Endpoint, find_endpoint
    from xenoovs.switch.live import LiveSwitch

    if db and lab:
        raise click.UsageError("--db and --lab exclude each other.")
    if lab:
        from xenoovs.lab.lab import open_lab

        ovs = open_lab(lab).ovs
        return LiveSwitch(Endpoint(ovs.db, ovs.directory))
    return LiveSwitch(find_endpoint(db=db, env=os.environ))


def reach(db: str | None, lab: str | None) -> LiveSwitch:
    """As `connect`, of an Open vSwitch that answers. Raises SwitchSilent after some seconds for one that hangs."""
    from xenoovs.switch.endpoint import require_answers

    switch = connect(db, lab)
    require_answers(switch.endpoint)
    return switch


_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def duration(text: str) -> float:
    """`10s`, `500ms`, `2m`, `1h`: a time above 0, in seconds; for `type=` of an option. Raises click.BadParameter."""
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m|h)", text.strip(), re.ASCII)
    seconds = float(found[1]) * _SECONDS[found[2]] if found else 0.0
    if not seconds:
        raise click.BadParameter(f"{text!r} is not a time such as 10s, 500ms or 2m.")
    return seconds


def share(text: str) -> float:
    """`95%`: a share, 0..1; for `type=` of an option. Raises click.BadParameter."""
    found = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]{1,9})?) ?%", text.strip(), re.ASCII)
    if found is None or float(found[1]) > 100:
        raise click.BadParameter(f"{text!r} is not a share such as 95% or 99.9%.")
    return float(found[1]) / 100
