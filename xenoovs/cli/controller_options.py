"""Options of `controller` that say how its bridge is reached."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from xenoovs.dataclass import dataclass

Command = TypeVar("Command", bound=Callable[..., object])

_OPTIONS = (
    click.option(
        "--listen",
        metavar="ADDRESS:PORT|punix:PATH",
        help="Where bridges connect. Beyond this host TLS is needed.  [default: punix: socket "
        "xenoovs.controller in the run directory of Open vSwitch]",
    ),
    click.option(
        "--datapath-id",
        metavar="ID",
        callback=lambda _context, _parameter, value: None if value is None else parse_datapath_id(value),
        help="Admit only the bridge with this datapath id (16 hexadecimal digits). The same as "
        "switch.datapath_id in the config.",
    ),
    click.option(
        "--attach",
        is_flag=True,
        help="Configure the bridge on this host to connect here, and to keep its flows when the controller "
        "ends (fail_mode=secure). Open vSwitch drops all flows once when a bridge gets its first controller.",
    ),
    click.option("--redundant", is_flag=True, help="Share the bridge with others; one is master, the rest stand by."),
)


@dataclass(frozen=True, slots=True)
class Control:
    """The options of a controller."""

    listen: str | None
    datapath_id: int | None
    tls_key: Path | None
    tls_cert: Path | None
    tls_ca: Path | None
    attach: bool
    redundant: bool


def controller_options(command: Command) -> Command:
    """Add --listen, --datapath-id, --attach and --redundant; `control_of` reads them and those of TLS."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def control_of(options: dict[str, object]) -> Control:
    """Return the options of a controller, from the values of `controller_options`."""
    values = {name: options[name] for name in Control.__dataclass_fields__}
    if options["fleet"] and str(options["listen"] or "punix:").startswith("punix:"):
        # It is that of the store: bridges connect at a unix socket without TLS.
        values["tls_ca"] = None
    return Control(**values)  # type: ignore[arg-type]


def parse_datapath_id(text: str) -> int:
    """16 hexadecimal digits, as `ovs-vsctl get bridge BR datapath_id` prints them. Raises click.BadParameter."""
    digits = text.strip('"').removeprefix("0x")
    try:
        number = int(digits, 16)
    except ValueError:
        number = 0
    if not 0 < number < 1 << 64:
        raise click.BadParameter(f"{text!r} is not a datapath id such as 0000c470bda056ac.")
    return number
