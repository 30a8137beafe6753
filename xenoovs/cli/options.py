"""Options and output that several commands share."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from xenoovs.errors import XenoovsError

if TYPE_CHECKING:
    from xenoovs.lab.nic.machine import Machine
    from xenoovs.model.balancer import Balancer
    from xenoovs.switch.live import LiveSwitch


# Tables, percentages and JSON: coloured on a terminal, plain when piped.


_LEAST_ROOM = 24
"""For the text of a last column, however narrow the terminal is."""
_MOST = 1 << 30
_WHOLE_WORDS: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}


def print_json(document: object) -> None:
    """Indented JSON, keys in the order in which they were made."""
    click.echo(json.dumps(document, indent=2))


def print_table(
    headers: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[int] = (), spare: Iterable[int] = ()
) -> None:
    """A table; columns whose index is in `right` hold numbers. Cells may carry colours (click.style).

    On a terminal that is too narrow the columns in `spare` are left out, in their order, as far as that helps; a last
    column of text goes on below itself. What is piped has every column and one line a row.
    """
    table = _Table([[*headers], *([*row] for row in rows)], frozenset(right))
    width = terminal_width()
    left_out: list[str] = []
    kept = list(range(len(headers)))
    for column in spare:
        if width is None or table.width(kept) <= width:
            break
        kept.remove(column)
        left_out.append(headers[column])
    for index, line in enumerate(table.lines(kept, width)):
        click.echo(click.style(line, bold=True) if index == 0 else line)
    if left_out:
        click.echo(f"(for want of room without {', '.join(left_out)})")


@dataclass(frozen=True, slots=True)
class _Table:
    """Cells with the headers first; `numbers`: columns that are aligned to the right."""

    cells: list[list[str]]
    numbers: frozenset[int]

    def widths(self, kept: Sequence[int]) -> list[int]:
        return [max(len(click.unstyle(row[column])) for row in self.cells) for column in kept]

    def width(self, kept: Sequence[int]) -> int:
        """The least: a last column of text can go on below itself."""
        *others, last = self.widths(kept)
        return sum(others) + (last if kept[-1] in self.numbers else min(last, _LEAST_ROOM)) + 2 * (len(kept) - 1)

    def lines(self, kept: Sequence[int], width: int | None) -> Iterator[str]:
        widths = self.widths(kept)
        indent = sum(widths[:-1]) + 2 * (len(kept) - 1)
        room = _MOST if width is None or kept[-1] in self.numbers else max(_LEAST_ROOM, width - indent)
        for row in self.cells:
            *cells, last = [row[column] for column in kept]
            is_number = [column in self.numbers for column in kept]
            padded = [_pad(cell, size, right=n) for cell, size, n in zip(cells, widths, is_number, strict=False)]
            parts = _wrap(last, room)
            text = _pad(parts[0], widths[-1], right=True) if is_number[-1] else parts[0]
            yield "  ".join([*padded, text]).rstrip()
            yield from (f"{' ' * indent}{part}" for part in parts[1:])


def say(text: str, *, indent: str = "", **style: Any) -> None:
    """Sentences; on a terminal wrapped between words, further lines after `indent`. `style`: as click.style."""
    width = terminal_width()
    lines = [text] if width is None else textwrap.wrap(text, width, subsequent_indent=indent, **_WHOLE_WORDS)
    click.echo(click.style("\n".join(lines), **style) if style else "\n".join(lines))


def terminal_width() -> int | None:
    """Columns of the terminal; None where no person is looking."""
    return shutil.get_terminal_size().columns if is_terminal() else None


def _wrap(cell: str, room: int) -> list[str]:
    # Colours would be cut through; cells that have some are short.
    if len(cell) <= room or "\x1b" in cell:
        return [cell]
    return textwrap.wrap(cell, room, **_WHOLE_WORDS) or [cell]


_ALMOST, _ALL = 0.9999, 1 - 1e-12
"""The largest share below all that is shown, and what counts as all: a sum of parts may be off by so much."""


def percent(share: Fraction | float | None) -> str:
    """A share 0..1 with two decimals at most; `-` for none. What is not all is never 100 %."""
    if share is None:
        return "-"
    if _ALMOST < share < _ALL:
        share = _ALMOST
    text = f"{float(share) * 100:.2f}".rstrip("0").rstrip(".")
    return f"{text} %"


def quantity(value: float) -> str:
    """A count or rate with an SI prefix: 1234567 is 1.23 M."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}"
    return f"{value:.3g}"


def is_terminal() -> bool:
    """Whether a person is looking at the output."""
    return sys.stdout.isatty()


def _pad(cell: str, width: int, *, right: bool) -> str:
    blanks = " " * (width - len(click.unstyle(cell)))
    return blanks + cell if right else cell + blanks


# Commands that belong into the virtual machine of a lab with an emulated NIC: handed on as they were typed.


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
    from xenoovs.lab.nic.call import attach, new_request

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
