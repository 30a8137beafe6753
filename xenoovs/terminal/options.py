"""Options and arguments that several commands share, and the units of their values."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
from click.core import ParameterSource

from xenoovs.errors import FlowConflict, PortsMissing, UnusablePorts, XenoovsError
from xenoovs.terminal.completion import complete_lab, complete_server, complete_service
from xenoovs.terminal.defaults import (
    ANY_LAB,
    ContextOption,
    announce,
    find_config,
    find_configs,
    find_lab,
    labs,
    option,
)
from xenoovs.terminal.reach import address_commands, replay, replayed

if TYPE_CHECKING:
    from xenoovs.compile.offloadable.table import Version
    from xenoovs.model.address import IPAddress
    from xenoovs.switch.certificates import Certificates


Command = TypeVar("Command", bound=Callable[..., object])


FILE = click.Path(readable=False, allow_dash=True, path_type=Path)
"""A file to read, which the command itself tries; `-` is standard input."""


def _needed_config(context: click.Context, _parameter: click.Parameter, given: Path | None) -> Path | None:
    is_needless = context.resilient_parsing or option("rollback") is not None
    return given if given is not None or is_needless else find_config()


def _needed_configs(context: click.Context, _parameter: click.Parameter, given: tuple[Path, ...]) -> tuple[Path, ...]:
    return given if given or context.resilient_parsing else find_configs()


config_argument = click.argument("config", metavar="[FILE]", required=False, type=FILE, callback=_needed_config)
"""The config; without FILE that of the environment, of the lab, or of the service."""
configs_argument = click.argument("configs", metavar="[FILE]...", type=FILE, nargs=-1, callback=_needed_configs)
optional_config_argument = click.argument("config", metavar="[FILE]", required=False, type=FILE)
"""The config of a command that does something else without one; see terminal/defaults.py."""
yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")


def given_option(*parameters: str) -> str | None:
    """Return the option of the first of these parameters that the user gave, as one types it; None if none was."""
    context = click.get_current_context()
    names = {each.name: each.opts[0] for each in context.command.params}
    sources = {name: context.get_parameter_source(name) for name in parameters}
    return next((names[name] for name, source in sources.items() if source is ParameterSource.COMMANDLINE), None)


def require_no_live_option(*parameters: str) -> None:
    """Refuse options about a switch beside a recorded dump. Raises click.UsageError."""
    if option("from_dump") is not None and (given := given_option("db", "lab", *parameters)):
        raise click.UsageError(f"--from-dump reads no switch, so {given} has no use.")


def enum_option(*names: str, default: Enum, help: str) -> Callable[[Command], Command]:  # noqa: A002
    """Declare an option whose value is a member of the enum of `default`."""
    kind = type(default)
    values = click.Choice([each.value for each in kind])
    convert = lambda _context, _parameter, value: kind(value)  # noqa: E731
    return click.option(*names, type=values, default=default.value, show_default=True, callback=convert, help=help)


def _format_option(*formats: str) -> Callable[[Command], Command]:
    more: dict[str, Any] = {"type": click.Choice(formats), "default": "text", "show_default": True}
    return click.option("-o", "--output", cls=ContextOption, help="Format of the output.", **more)


output_option, findings_option = _format_option("text", "json"), _format_option("text", "json", "sarif")
"""The format option of a command with findings, which a code host can show."""
control_option = click.option(
    "--control",
    cls=ContextOption,
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
    help="Leave out what cannot be installed: backends behind missing ports, flows that foreign flows block.",
)
from_dump_option = click.option(
    "--from-dump",
    type=FILE,
    metavar="DUMP",
    is_eager=True,
    help="Judge the output of `ovs-appctl dpctl/dump-flows -m` in a file, - for standard input, and read no switch. A "
    "dump with type= or filter= may lack megaflows that are not offloaded.",
)
from_flows_option = click.option(
    "--from-flows",
    type=FILE,
    metavar="FLOWS",
    help="With --from-dump: the output of `ovs-ofctl --names dump-flows`, which shows the blocks as they were, and "
    "foreign flows.",
)
service_option = click.option(
    "--service", metavar="NAME", shell_complete=complete_service, help="Only this service of the config."
)
no_drain_option = click.option(
    "--no-drain", is_flag=True, help="Move all clients at once, whatever `drain` in the config says."
)
_db_option = click.option(
    "--db",
    cls=ContextOption,
    metavar="TARGET",
    is_eager=True,
    help="Database of the Open vSwitch to use, such as unix:/run/openvswitch/db.sock. Default: the one that the OVS "
    "tools use (OVS_RUNDIR).",
)

_record_option = click.option(
    "--record",
    type=FILE,
    metavar="FILE",
    is_eager=True,
    expose_value=False,
    callback=replay,
    help="Judge what `xenoovs record` has recorded, and read nothing of this host.",
)
_INSTEAD_OF_LAB = ("db", "from_dump")
"""Options that override the environment; they are eager, so that they are known in time."""


def _choose_lab(context: click.Context, parameter: click.Parameter, given: str | None) -> str | None:
    is_without = replayed() is not None or any(map(option, _INSTEAD_OF_LAB))
    if context.resilient_parsing or (given is None and is_without):
        return given
    lab, origin = find_lab(given)
    if lab is not None:
        labs().forward_to_vm(context, parameter, lab)
    announce(f"lab {lab}", origin)
    return lab


def lab_option(*names: str, **more: Any) -> Callable[[Command], Command]:
    """Declare --lab NAME. The name may be left out if there is only one lab."""
    more |= {"metavar": "[NAME]", "is_flag": False, "flag_value": ANY_LAB, "shell_complete": complete_lab}
    return click.option("--lab", *names, **more)


_lab_option = lab_option(
    help="Use the Open vSwitch of this lab (see `xenoovs lab`); without NAME, of the only one.  [env var: XENOOVS_LAB]",
    is_eager=True,
    cls=ContextOption,
    callback=_choose_lab,
)


def switch_options(command: Command) -> Command:
    """Add --db and --lab, which name the Open vSwitch of the command (terminal/reach.py), also for commands that an
    error suggests."""

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> object:
        try:
            return command(*arguments, **options)
        except XenoovsError as error:
            address_commands(error, options.get("config"))
            raise

    return _db_option(_lab_option(cast(Command, run)))


def record_option(*unused: str) -> Callable[[Command], Command]:
    """Declare `--record FILE`: a record answers in place of the host. `unused`: parameters that need the switch
    itself."""

    def declare(command: Command) -> Command:
        @functools.wraps(command)
        def run(*arguments: Any, **options: Any) -> object:
            if replayed() and (given := given_option("db", "lab", *unused)):
                raise click.UsageError(f"--record reads no switch, so {given} has no use.")
            return command(*arguments, **options)

        return _record_option(cast(Command, run))

    return declare


def bridge_command(name: str) -> Callable[[Callable[..., object]], click.Command]:
    """Declare a command about the bridge of a config: `NAME FILE [--db TARGET | --lab NAME] ...`."""
    return lambda function: click.command(name)(config_argument(switch_options(output_option(function))))


@contextmanager
def hinting_partial() -> Iterator[None]:
    """Add a hint to the errors that `--partial` avoids."""
    try:
        yield
    except (FlowConflict, PortsMissing, UnusablePorts) as error:
        error.hint = "To go on without it: add --partial."
        raise


_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def duration(text: str) -> float:
    """Return the seconds of `10s`, `500ms`, `2m` or `1h`, for `type=` of an option. Raises click.BadParameter."""
    if seconds := duration_or_zero(text):
        return seconds
    raise click.BadParameter(f"{text!r} is no time at all: it has to be above 0, such as 10s, 500ms or 2m.")


def duration_or_zero(text: str) -> float:
    """Return what `duration` returns, and 0 for `0`. Raises click.BadParameter."""
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m|h)?", text.strip(), re.ASCII)
    if found and (found[2] or not float(found[1])):
        return float(found[1]) * _SECONDS[found[2] or "s"]
    guess = f" Did you mean {found[0]}s?" if found else ""
    raise click.BadParameter(f"{text!r} is not a time such as 10s, 500ms or 2m.{guess}")


def up_to(most: str) -> Callable[[str], float]:
    """Return what reads the seconds of a time from 0 to `most`, for `type=` of an option. It raises
    click.BadParameter."""

    def limited(text: str) -> float:
        if (seconds := duration_or_zero(text)) > duration(most):
            raise click.BadParameter(f"{text!r} is more than {most}.")
        return seconds

    return limited


some_minutes = up_to("5m")


def time_option(
    name: str,
    default: str | None = None,
    *,
    type: Callable[[str], float] = duration,  # noqa: A002
    help: str,  # noqa: A002
) -> Callable[[Command], Command]:
    """Declare the option `--NAME TIME`, whose value is the parameter NAME_s: seconds."""
    words = name, f"{name[2:].replace('-', '_')}_s"
    return click.option(*words, type=type, metavar="TIME", default=default, show_default=default is not None, help=help)


live_interval_option = time_option("--interval", "2s", help="Time between two refreshes.")
once_option = click.option("--once", is_flag=True, help="Print one frame and end, as without a terminal.")

_FACTORS = {"": 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000}


def data_rate(text: str) -> int:
    """Return the bits a second of `40mbit`, for `type=` of an option. Raises click.BadParameter."""
    return _scaled(text, "bit", "a rate such as 40mbit or 1gbit")


def data_size(text: str) -> int:
    """Return the bytes of `100kb`, for `type=` of an option. Raises click.BadParameter."""
    return _scaled(text, "b", "a size such as 100kb or 4mb")


def _scaled(text: str, unit: str, what: str) -> int:
    found = re.fullmatch(rf"([0-9]{{1,9}}(?:\.[0-9]{{1,9}})?)([kmg]?){unit}", text.strip().lower(), re.ASCII)
    if not found or not (value := int(Decimal(found[1]) * _FACTORS[found[2]])):
        raise click.BadParameter(f"{text!r} is not {what}.")
    return value


def version_of_option(text: str) -> Version:
    """Return a version of Open vSwitch, for `callback=` of an option. Raises click.BadParameter."""
    from xenoovs.compile.offloadable.table import parse_version

    try:
        return parse_version(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


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


_PREVIOUS = "the last change"


class EntryNumber(click.IntRange):
    """The type of an entry's number in a history. An option without one becomes 0."""

    name = "number of an entry"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        return 0 if value == _PREVIOUS else int(super().convert(value, param, ctx))


def rollback_option(help: str, **more: Any) -> Callable[[Command], Command]:  # noqa: A002
    """Declare `--rollback [NUMBER]`, whose value is 0 without NUMBER."""
    more |= {"type": EntryNumber(min=1), "is_flag": False, "flag_value": _PREVIOUS, "is_eager": True}
    return click.option("--rollback", metavar="[NUMBER]", help=help, **more)


backend_argument = click.argument(
    "words", nargs=-1, required=True, metavar="[SERVICE] BACKEND", shell_complete=complete_server
)
"""The argument for a backend: `fips2`, `dns/fips2` or `dns fips2`."""


def backend_words(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return SERVICE and BACKEND, or only a server: its name, MAC or address. Raises click.UsageError."""
    parts = tuple(words[0].split("/")) if len(words) == 1 else words
    if len(parts) > 2 or not all(parts) or any("/" in part for part in parts):
        raise click.UsageError("Write SERVICE BACKEND, SERVICE/BACKEND, or the name, MAC or address of one server.")
    return parts


def backend_and_weight(words: tuple[str, ...]) -> tuple[str, str, Fraction | None]:
    """Return SERVICE, BACKEND and WEIGHT; None without a WEIGHT. Raises click.UsageError."""
    parts = (*words[0].split("/"), *words[1:])
    if not 2 <= len(parts) <= 3 or not all(parts):
        raise click.UsageError("Write SERVICE BACKEND WEIGHT or SERVICE/BACKEND WEIGHT; without WEIGHT it is shown.")
    return parts[0], parts[1], parse_weight(parts[2]) if len(parts) > 2 else None


def parse_weight(text: str) -> Fraction:
    from xenoovs.model import values
    from xenoovs.model.values import parse_plain_scalar

    try:
        return values.weight(parse_plain_scalar(text))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="WEIGHT") from None


def config_value(name: str) -> Callable[[str], Any]:
    """Return what reads a value as the config does, by the function of this name in model/values.py, for `type=`."""

    def text(value: str) -> Any:
        # Imported here: completion and help need no config.
        from xenoovs.model import values

        try:
            return getattr(values, name)(value)
        except ValueError as error:
            raise click.BadParameter(f"{error}.") from None

    return text


INTERVAL_S = 2.0
"""Interval in which Open vSwitch reads the counters of hardware (offloaded-stats-delay)."""

interval_option = time_option(
    "--interval",
    type=duration_or_zero,
    help="Time between the two samples whose growth proves that the NIC forwards (default: 2s). 0s: make one sample.",
)


def listen_address(option: str, where: str) -> tuple[str, int]:
    """Return address and port of `ADDRESS:PORT`, given with an option. Raises click.UsageError."""
    from xenoovs.switch.endpoint import parse_host_port

    try:
        return parse_host_port(where)
    except ValueError as error:
        raise click.UsageError(f"{option}: {error}") from None


_FILE = click.Path(dir_okay=False, path_type=Path)


def tls_options(command: Command) -> Command:
    """Add --tls-key, --tls-cert and --tls-ca, and call a command with `tls`."""

    @click.option("--tls-key", type=_FILE, metavar="FILE", help="Private key of this host, PEM, for TLS.")
    @click.option("--tls-cert", type=_FILE, metavar="FILE", help="Certificate of this host, PEM.")
    @click.option(
        "--tls-ca",
        type=_FILE,
        metavar="FILE",
        help="Certificate authority of the fleet, PEM: clients without a certificate of it are refused.",
    )
    @functools.wraps(command)
    def run(
        *arguments: Any, tls_key: Path | None, tls_cert: Path | None, tls_ca: Path | None, **options: Any
    ) -> object:
        return command(*arguments, tls=certificates(tls_key, tls_cert, tls_ca), **options)

    return cast(Command, run)


def certificates(key: Path | None, certificate: Path | None, authority: Path | None) -> Certificates | None:
    """Return the files of TLS; None if none is given. Raises click.UsageError, CertificateUnusable."""
    if key is None and certificate is None and authority is None:
        return None
    if key is None or certificate is None or authority is None:
        raise click.UsageError("TLS needs all of --tls-key, --tls-cert and --tls-ca.")
    # Imported here: it imports ssl, which few commands need.
    from xenoovs.switch.certificates import Certificates

    found = Certificates(key, certificate, authority)
    found.context()
    return found
