"""`xenoovs fleet init`, `server`, `relay`, `export`, `restore`: the servers of the store, and its files."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from xenoovs.display import printable
from xenoovs.errors import FileUnusable, StoreError, StoreUnreachable, counted, first_names
from xenoovs.fleet.commands.client import FleetStore, changes_fleet, on_fleet, own_directory, yes_option
from xenoovs.fleet.controller import time_ms
from xenoovs.fleet.plan import next_change, restoring
from xenoovs.store.export import MAX_SIZE_BYTES, export_text, parse_export
from xenoovs.store.rows import DPU_ROLE, OPERATOR_ROLE, READER_ROLE, StoreDatabase
from xenoovs.store.servers import (
    OvsdbServer,
    StorePort,
    create_databases,
    is_running,
    parse_listen,
    parse_server,
    server_of,
    server_state,
    start_server,
    stop_server,
)
from xenoovs.store.view import Changes, FleetView
from xenoovs.switch.certificates import Certificates
from xenoovs.switch.undo_journal import replace_file
from xenoovs.terminal.command import file_behind
from xenoovs.terminal.options import tls_options
from xenoovs.terminal.output import confirm, echo

_RELAY_DIRECTORY = Path("/var/lib/xenoovs/relay")
_READERS, _RELAYED, _STATES = "127.0.0.1:6661", "127.0.0.1:6662", "127.0.0.1:6663"
_OPERATORS, _RELAY = "operators", "relay"
_READ_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command("init")
@click.option("--name", metavar="NAME", default="fleet", show_default=True, help="Name of the fleet.")
@click.option(
    "--servers",
    metavar="A,B,C",
    default="",
    help="Addresses of all servers of the cluster, each with :PORT if that is not 6641.  [default: one server alone]",
)
@click.option("--local", metavar="ADDRESS", default="", help="Which of --servers this host is.")
@tls_options
def init_command(*, name: str, servers: str, local: str, tls: Certificates | None) -> None:
    """Create the two databases of a fleet on this host; start them with `fleet server`.

    Without --servers they stand alone. With it they are a cluster: run the command on each host with the same --servers
    and its own --local. The first server makes the cluster, so start that one first; the other ones join it. A cluster
    of three works without any one of them.

    Servers talk to each other on the ports 6641 and 6651, beyond loopback only with TLS, and the same files
    as `fleet server`. Block these ports for all others: every certificate of the authority is enough to join.

    \b
    Example (with the options of TLS):
      xenoovs fleet init --servers 192.0.2.1,192.0.2.2,192.0.2.3 --local 192.0.2.1
    """
    if not 0 < len(name) <= 128 or not name.isprintable():
        raise click.UsageError(f"--name {name!r}: use 1 to 128 printable characters, such as fleet1.")
    members = [parse_server(part, is_tls=tls is not None) for part in servers.split(",")] if servers else []
    if len(set(members)) < len(members):
        raise click.UsageError(f"--servers {servers}: a server is listed twice.")
    if bool(members) != bool(local):
        raise click.UsageError("--servers and --local belong together: --local is the one of them that this host is.")
    here = parse_server(local, is_tls=tls is not None) if local else None
    if here is not None and here not in members:
        raise click.UsageError(f"--local {local} is none of --servers {servers}.")
    if tls is not None and not members:
        raise click.UsageError(
            "--tls-key, --tls-cert and --tls-ca go with --servers; for ports of `fleet server`, there."
        )
    number = 0 if here is None else members.index(here)
    directory = own_directory()
    create_databases(directory, name=name, servers=members, local=number)
    kind = "stand-alone" if not members else "first of the cluster" if number == 0 else "joins when it is started"
    echo(f"created the databases of fleet {name} in {directory} ({kind}); start them with `xenoovs fleet server`")


@click.command("server")
@click.option(
    "--listen",
    metavar="ADDRESS:PORT",
    help=f"Where relays and agents read the services; read-only.  [default: {_READERS} with TLS, else the unix socket "
    "alone]",
)
@click.option(
    "--listen-states",
    metavar="ADDRESS:PORT",
    help="Where agents report. Each writes the report of the DPU that its certificate names (CN). Without TLS every "
    f"user of the host could report for any DPU.  [default: {_STATES} with TLS, else the unix socket alone]",
)
@click.option(
    "--listen-operators",
    metavar="ADDRESS:PORT",
    help="Where operators read and change the fleet from other hosts (`xenoovs fleet --remote`), by a relay.",
)
@click.option(
    "--operators-ca",
    type=_READ_FILE,
    metavar="FILE",
    help="Certificate authority of operators, PEM: not --tls-ca, which signs the certificates of DPUs.",
)
@click.option(
    "--only",
    type=click.Choice([*(database.value for database in StoreDatabase), _OPERATORS]),
    help="Only the server of this database, or the relay of operators; systemd has a unit for each.",
)
@tls_options
@click.option("--stop", is_flag=True, help="Hand over the leadership, and stop the servers.")
def server_command(
    *,
    listen: str | None,
    listen_states: str | None,
    listen_operators: str | None,
    operators_ca: Path | None,
    only: str | None,
    stop: bool,
    tls: Certificates | None,
) -> int:
    """Start the two servers of this host in the background, and the relay of operators; or stop them with --stop.

    If one of them runs, only the other one is started. Controllers, commands and agents of this host use unix sockets
    in --directory, which only their owner can open. Ports beyond loopback need TLS, and clients with a certificate.

    \b
    Example (with the options of TLS):
      xenoovs fleet server --listen 192.0.2.1:6661 --listen-states 192.0.2.1:6663
    """
    directory = own_directory()
    names, gate = [each for each in StoreDatabase if only in (None, each.value)], OvsdbServer(directory, _OPERATORS)
    if stop:
        is_gate = only == _OPERATORS or (only is None and is_running(gate))
        return _stop(*([gate] if is_gate else []), *(server_of(directory, each) for each in names))
    gate_port = _operators_port(listen_operators, operators_ca, tls, is_required=only == _OPERATORS)
    given = {
        StoreDatabase.FLEET: (listen, _READERS, READER_ROLE),
        StoreDatabase.STATES: (listen_states, _STATES, DPU_ROLE),
    }
    ports = {
        database: [parse_listen(text or default, role, is_tls=tls is not None)]
        for database, (text, default, role) in given.items()
        if text or tls is not None
    }
    asked = [OvsdbServer(directory, each.value, ports.get(each, ()), tls=tls) for each in names]
    if only in (None, _OPERATORS) and gate_port is not None and tls is not None and operators_ca is not None:
        fleet, states = (server_of(directory, database).remote for database in StoreDatabase)
        own = Certificates(tls.key, tls.certificate, operators_ca)
        asked.append(OvsdbServer(directory, _OPERATORS, [gate_port], source=fleet, states=states, tls=own))
    lacking, waiting = [each for each in asked if not is_running(each)], dict[OvsdbServer, str]()
    try:
        # If all of them run, one is refused.
        for found in lacking or [asked[-1 if gate_port else 0]]:
            waiting[found] = start_server(found)
    except StoreError:
        for found in waiting:
            stop_server(found)
        raise
    for found in asked:
        if found in waiting:
            _show(found, waiting[found])
        else:
            echo(f"{found.name} runs already")
    if listen_states is not None and tls is None:
        echo(
            f"{listen_states} has no TLS: every user of this host can report for any DPU, and so take clients from "
            f"backends; agents of this host can use --fleet-state {server_of(directory, StoreDatabase.STATES).remote}",
            err=True,
        )
    return 2 if any(waiting.values()) else 0


def _operators_port(
    listen: str | None, authority: Path | None, tls: Certificates | None, *, is_required: bool
) -> StorePort | None:
    """Return the port of operators; None if there is none. Raises click.UsageError, StoreError."""
    if listen is None and authority is None and not is_required:
        return None
    if listen is None or authority is None or tls is None:
        raise click.UsageError("--listen-operators, --operators-ca and the options of TLS go together.")
    try:
        is_same = authority.read_bytes() == tls.authority.read_bytes()
    except OSError as error:
        raise FileUnusable(file=str(authority), reason=f"it cannot be read: {error.strerror or error}") from None
    if is_same:
        raise click.UsageError("--operators-ca is --tls-ca: every DPU could change the fleet. Make another authority.")
    return parse_listen(listen, OPERATOR_ROLE, is_tls=True)


@click.command("relay")
@click.option(
    "--from",
    "source",
    metavar="REMOTES",
    default="",
    help="Servers to read from, such as ssl:192.0.2.1:6661,ssl:192.0.2.2:6661.",
)
@click.option(
    "--listen", metavar="ADDRESS:PORT", default=_RELAYED, show_default=True, help="Where agents read the services."
)
@tls_options
@click.option("--stop", is_flag=True, help="Stop the relay.")
def relay_command(*, source: str, listen: str, stop: bool, tls: Certificates | None) -> int:
    """Start a relay in the background, or stop it with --stop.

    A relay reads the services from the servers and sends them to agents, so that many agents do not slow the servers
    down. One serves 500 agents; run two at least. Its port is read-only. Beyond loopback it needs TLS.

    \b
    Example (with the options of TLS):
      xenoovs fleet relay --from ssl:192.0.2.1:6661,ssl:192.0.2.2:6661 --listen 192.0.2.9:6662
    """
    directory = own_directory(_RELAY_DIRECTORY)
    if stop:
        return _stop(OvsdbServer(directory, _RELAY))
    if not source:
        raise click.UsageError("--from is missing: name the servers, such as --from ssl:192.0.2.1:6661.")
    port = parse_listen(listen, READER_ROLE, is_tls=tls is not None)
    relay = OvsdbServer(directory, _RELAY, [port], source=source, tls=tls)
    reason = start_server(relay)
    _show(relay, reason)
    return 2 if reason else 0


def _stop(*servers: OvsdbServer) -> int:
    problem: StoreError | None = None
    for each in servers:
        try:
            echo(f"stopped {each.name}" if stop_server(each) else f"{each.name} was not running")
        except StoreError as error:
            # The others are stopped nevertheless.
            problem = problem or error
    if problem is not None:
        raise problem
    return 0


def _show(server: OvsdbServer, waiting: str) -> None:
    if waiting:
        echo(f"{server.name} runs but does not serve yet: {waiting}; see {server.log}")
        return
    role = ""
    try:
        state = server_state(server.remote, server.serves)
        if state["model"] == "clustered":
            role = ", leader" if state["leader"] else ", follower"
    except StoreUnreachable as error:
        role = f", but: {error.reason}"
    ports = "".join(f"{port.remote} and " for port in server.listen)
    echo(f"{server.name} serves at {ports}{server.remote}{role}")


_FILE = click.Path(dir_okay=False, path_type=Path, allow_dash=True)


@click.command("export")
@click.argument("file", type=_FILE)
@on_fleet
def export_command(*, file: Path, store: FleetStore) -> None:
    """Export the store to FILE (-: the output): services with their blocks, DPUs, overrides, configs.

    `fleet restore` reads it. FILE gets mode 0600, and replaces an earlier one as a whole. It has no roll-out in waves
    and no reports of DPUs, which report again anyway.

    \b
    Example:
      xenoovs fleet export /var/backups/fleet.json
    """
    target = None if str(file) == "-" else file_behind(file, option="FILE")
    view = store.view()
    text = export_text(view)
    if target is None:
        echo(text, nl=False)
        return
    try:
        replace_file(target, text.encode())
    except OSError as error:
        raise FileUnusable(file=str(file), reason=f"it cannot be written: {error.strerror or error}") from None
    echo(f"{file} has generation {view.generation} of fleet {printable(view.name)}: {_contents(view)}")


@click.command("restore")
@click.argument("file", type=_FILE)
@yes_option
@changes_fleet
def restore_command(*, file: Path, yes: bool, store: FleetStore) -> None:
    """Restore the fleet in FILE (-: the input), which `fleet export` has written, into the store of new servers.

    The store must have no config yet. DPUs keep what they have until they reach the new store, and refuse older
    generations than theirs. So the fleet gets the time in milliseconds as its generation, or a million above that of
    FILE and of all that DPUs have reported by then, if that is more. No two restores get the same generation.

    \b
    Example:
      xenoovs fleet init
      xenoovs fleet server
      xenoovs fleet restore /var/backups/fleet.json
    """
    exported = parse_export(_read(file), file="<stdin>" if str(file) == "-" else str(file))
    echo(f"{file}: generation {exported.generation} of fleet {printable(exported.name)}, {_contents(exported)}")
    restoring(store.view(), exported, {}, now_ms=time_ms())
    confirm("Restore the fleet?", yes=yes, instead="")

    def compute(view: FleetView) -> Changes:
        statuses = store.statuses()
        if statuses is None:
            reason = "the database of states does not answer, so which generation DPUs have is not known"
            raise StoreUnreachable(remotes=store.remote, reason=reason)
        return restoring(view, exported, statuses, now_ms=time_ms())

    view = store.change("restore", compute, changed=f"generation {exported.generation}, {_contents(exported)}")
    echo(f"restored as generation {view.generation}; `xenoovs fleet status` shows which DPUs have it")
    if moving := {step.name for step in next_change(view).steps}:
        echo(
            f"clients of {first_names(sorted(moving), most=3)} may move: the controller decides about them again",
            err=True,
        )


def _contents(view: FleetView) -> str:
    overrides = counted(len(view.overrides), "override")
    configs = counted(len(view.intents), "config")
    return f"{counted(len(view.service_names), 'service')}, {counted(len(view.dpus), 'DPU')}, {overrides}, {configs}"


def _read(file: Path) -> bytes:
    try:
        if str(file) == "-":
            return sys.stdin.buffer.read(MAX_SIZE_BYTES + 1)
        with file.open("rb") as stream:
            return stream.read(MAX_SIZE_BYTES + 1)
    except OSError as error:
        raise FileUnusable(file=str(file), reason=f"it cannot be read: {error.strerror or error}") from None
