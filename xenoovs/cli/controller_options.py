"""Options of `agent` and `controller` that say how a bridge is reached."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., object])

_SHARED = ("tls_key", "tls_cert")
"""Options that the API and the status page have too."""


_OPTIONS = (
    click.option(
        "--via",
        type=click.Choice(["mgmt", "controller"]),
        default="mgmt",
        show_default=True,
        help="Reach the bridge at its management socket (BRIDGE.mgmt), or be its controller.",
    ),
    click.option(
        "--listen",
        metavar="ADDRESS:PORT|punix:PATH",
        help="Controller: where bridges connect. Beyond this host TLS is needed.  [default: punix: socket "
        "xenoovs.controller in the run directory of Open vSwitch]",
    ),
    click.option(
        "--datapath-id",
        metavar="ID",
        callback=lambda _context, _parameter, value: None if value is None else parse_datapath_id(value),
        help="Controller: admit only the bridge with this datapath id (16 hexadecimal digits). The same as "
        "switch.datapath_id in the config.",
    ),
    click.option(
        "--tls-ca",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Certificate authority of the switches of a controller, or of the store of --fleet (PEM).",
    ),
    click.option(
        "--attach",
        is_flag=True,
        help="Controller: configure the bridge on this host to connect here, and to keep its flows when the controller "
        "ends (fail_mode=secure). Open vSwitch drops all flows once when a bridge gets its first controller.",
    ),
    click.option(
        "--redundant",
        is_flag=True,
        help="Controller: share the bridge with others; one is master, the rest stand by.",
    ),
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


def via_options(command: Command) -> Command:
    """--via, and what concerns `--via controller`: --listen, --datapath-id, --tls-ca, --attach, --redundant.

    `control_of` reads their values and those of --tls-key and --tls-cert.
    """
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def control_of(options: dict[str, object]) -> Control | None:
    """From the values of `via_options`; None: at the management socket. Raises click.UsageError."""
    values = {name: options[name] for name in Control.__dataclass_fields__}
    if options["via"] == "controller":
        if options["fleet"] and str(options["listen"] or "punix:").startswith("punix:"):
            # It is that of the store: bridges connect at a unix socket without TLS.
            values["tls_ca"] = None
        return Control(**values)  # type: ignore[arg-type]
    shared = (*_SHARED, "tls_ca") if options["fleet"] else _SHARED
    given = [name for name, value in values.items() if value and name not in shared]
    if given:
        or_fleet = " or --fleet" if given[0] == "tls_ca" else ""
        raise click.UsageError(f"--{given[0].replace('_', '-')} needs --via controller{or_fleet}.")
    return None


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
