"""Options and arguments that several commands share, and what they name: a config, an Open vSwitch, a time."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from xenoovs.cli.lab_vm import forward_to_vm
from xenoovs.datapath.host import Unknown
from xenoovs.errors import (
    FlowConflict,
    LabError,
    MacUnknown,
    PortsMissing,
    SwitchError,
    UnusablePorts,
    XenoovsError,
)
from xenoovs.lab.lab import open_lab
from xenoovs.model.address import IPAddress
from xenoovs.model.balancer import Balancer, sought
from xenoovs.switch.endpoint import DEFAULT_RUNDIR, Endpoint, find_endpoint, require_answers
from xenoovs.switch.host_facts import netns_of
from xenoovs.switch.management import ManagementSwitch
from xenoovs.verify.commands import CommandTarget

Command = TypeVar("Command", bound=Callable[..., object])


class OutputFormat(Enum):
    """How a command prints its answer."""

    TEXT = "text"
    JSON = "json"


FILE = click.Path(allow_dash=True, path_type=Path)
"""A file to read; `-` is standard input."""

config_argument = click.argument("config", metavar="FILE", type=FILE)
optional_config_argument = click.argument("config", metavar="[FILE]", required=False, type=FILE)
yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
output_option = click.option(
    "-o",
    "--output",
    type=click.Choice([output.value for output in OutputFormat]),
    default=OutputFormat.TEXT.value,
    show_default=True,
    callback=lambda _context, _parameter, value: OutputFormat(value),
    help="Format of the output.",
)
control_option = click.option(
    "--control",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="PATH",
    help="Unix socket of the agent. Default: /run/xenoovs/BRIDGE.sock; without root, $XDG_RUNTIME_DIR/xenoovs/...",
)
rebalance_option = click.option(
    "--rebalance",
    is_flag=True,
    help="Compute all blocks from scratch: fewest hardware entries, but many clients get another backend.",
)
partial_option = click.option(
    "--partial",
    is_flag=True,
    help="Leave out what cannot be installed: backends behind missing ports, flows that foreign ones block.",
)
_db_option = click.option(
    "--db",
    metavar="TARGET",
    help="Database of the Open vSwitch to use, such as unix:/run/openvswitch/db.sock. Default: the one that the OVS "
    "tools use (OVS_RUNDIR).",
)
_lab_option = click.option(
    "--lab",
    metavar="NAME",
    is_eager=True,
    callback=forward_to_vm,
    help="Use the Open vSwitch of this lab (see `xenoovs lab`).",
)


def switch_options(command: Command) -> Command:
    """Add --db and --lab. Commands in the text of an error are completed for the Open vSwitch that they name."""

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> object:
        try:
            return command(*arguments, **options)
        except XenoovsError as error:
            if error.commands:
                address_commands(error, config=options.get("config"), db=options.get("db"), lab=options.get("lab"))
            raise

    return _db_option(_lab_option(cast(Command, run)))


def bridge_command(name: str) -> Callable[[Callable[..., object]], click.Command]:
    """Declare a command about the bridge of a config: `NAME FILE [--db TARGET | --lab NAME] [-o text|json]`."""
    return lambda function: click.command(name)(config_argument(switch_options(output_option(function))))


@contextmanager
def hinting_partial() -> Iterator[None]:
    """Add a hint to the errors that `--partial` avoids."""
    try:
        yield
    except (FlowConflict, PortsMissing, UnusablePorts) as error:
        error.hint = "To go on without it: add --partial."
        raise


def load(config: Path) -> Balancer:
    """Return the balancer of a config file, or of standard input. Raises ConfigError."""
    from xenoovs.config.load import MAX_SIZE_BYTES, load_config, parse_config

    if str(config) == "-":
        return parse_config(sys.stdin.buffer.read(MAX_SIZE_BYTES + 1), file="<stdin>")
    return load_config(config)


def load_resolved(config: Path) -> Balancer:
    """Load a config, and resolve the MACs of backends that have only an address. Raises ConfigError, MacUnknown."""
    balancer = load(config)
    if not sought(balancer):
        return balancer
    from xenoovs.agent.neighbour import resolve_now

    return resolve_now(balancer)


def load_recorded(config: Path) -> Balancer:
    """Load a config for a recorded dump: no MACs are resolved. Raises ConfigError, MacUnknown."""
    balancer = load(config)
    if unknown := sought(balancer):
        raise MacUnknown(unknown={str(one.address): names for one, names in unknown.items()}, is_recorded=True)
    return balancer


def connect(db: str | None, lab: str | None) -> ManagementSwitch:
    """Return the Open vSwitch that the options name. Raises click.UsageError, LabError, SwitchError."""
    if db and lab:
        raise click.UsageError("--db and --lab exclude each other.")
    if lab:
        ovs = open_lab(lab).ovs
        return ManagementSwitch(Endpoint(ovs.db, ovs.directory))
    return ManagementSwitch(find_endpoint(db=db, env=os.environ))


def reach(db: str | None, lab: str | None) -> ManagementSwitch:
    """Connect to an Open vSwitch that answers. Raises as `connect`, and SwitchUnresponsive after some seconds."""
    switch = connect(db, lab)
    require_answers(switch.endpoint)
    return switch


def where_of(endpoint: Endpoint, *, config: Path | None, lab: str | None) -> CommandTarget:
    """Return how a suggested command has to name this Open vSwitch and the config, so that it can be copied."""
    file = None if config is None or str(config) == "-" else str(config)
    rundir, place = endpoint.rundir, netns_of(endpoint)
    enter = () if isinstance(place, Unknown) else tuple(place.argv())
    if rundir is not None and rundir.resolve() == DEFAULT_RUNDIR.resolve() and not endpoint.is_split:
        return CommandTarget(config=file, enter=enter)
    return CommandTarget(
        db=endpoint.db,
        rundir=None if rundir is None else str(rundir),
        options=("--lab", lab) if lab else ("--db", endpoint.db),
        enter=enter,
        config=file,
    )


def address_commands(error: XenoovsError, *, config: Path | None, db: str | None, lab: str | None) -> None:
    """Complete the commands in the text of an error, so that they reach the Open vSwitch that the options name."""
    try:
        endpoint = connect(db, lab).endpoint
    except (SwitchError, LabError):
        # The error is about the same problem.
        return
    error.args = (where_of(endpoint, config=config, lab=lab).message(str(error), error.commands),)


_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def duration(text: str) -> float:
    """Return the seconds of `10s`, `500ms`, `2m` or `1h`, for `type=` of an option. Raises click.BadParameter."""
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m|h)", text.strip(), re.ASCII)
    seconds = float(found[1]) * _SECONDS[found[2]] if found else 0.0
    if not seconds:
        raise click.BadParameter(f"{text!r} is not a time such as 10s, 500ms or 2m.")
    return seconds


def address(text: str) -> IPAddress:
    """Return an IPv4 or IPv6 address, for `type=` of an option. Raises click.BadParameter."""
    try:
        return ip_address(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not an IPv4 or IPv6 address.") from None


def share(text: str) -> float:
    """Return the share 0..1 of `95%`, for `type=` of an option. Raises click.BadParameter."""
    found = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]{1,9})?) ?%", text.strip(), re.ASCII)
    if found is None or float(found[1]) > 100:
        raise click.BadParameter(f"{text!r} is not a share such as 95% or 99.9%.")
    return float(found[1]) / 100
