"""`xenoovs fleet init`, `server` and `relay`: the servers of a fleet's store."""

from __future__ import annotations

from pathlib import Path

import click

from xenoovs.errors import StoreError, StoreUnreachable
from xenoovs.fleet.commands.client import directory_option
from xenoovs.store.rows import StoreDatabase
from xenoovs.store.servers import (
    ServerFiles,
    StorePort,
    create_databases,
    files_of,
    is_running,
    parse_listen,
    parse_server,
    server_state,
    start_server,
    stop_server,
)
from xenoovs.switch.certificates import Certificates
from xenoovs.terminal.output import echo
from xenoovs.terminal.tls import tls_options

_RELAY_DIRECTORY = Path("/var/lib/xenoovs/relay")
_READERS, _RELAYED, _STATES = "127.0.0.1:6661", "127.0.0.1:6662", "127.0.0.1:6663"
_FILES = "Directory of the files on this host."


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
@directory_option(text=_FILES)
def init_command(*, directory: Path, name: str, servers: str, local: str, tls: Certificates | None) -> None:
    """Create the two databases of a fleet on this host; start them with `fleet server`.

    Without --servers they stand alone. With it they are a cluster: run the command on each host with the same --servers
    and its own --local. The first server makes the cluster, so start that one first; the other ones join it. A cluster
    of three goes on without any one of them.

    Servers talk to each other on the ports 6641 and 6651, beyond loopback with TLS only: the files are those that
    `fleet server` gets. Block these ports for all others: every certificate of the authority is enough to join.

    \b
    Example (with the options of TLS):
      xenoovs fleet init --servers 192.0.2.1,192.0.2.2,192.0.2.3 --local 192.0.2.1
    """
    if not 0 < len(name) <= 128 or not name.isprintable():
        raise click.UsageError(f"--name {name!r}: use 1 to 128 printable characters, such as fleet1.")
    members = [parse_server(part) for part in servers.split(",")] if servers else []
    if len({(member.host, member.port) for member in members}) < len(members):
        raise click.UsageError(f"--servers {servers}: a server is listed twice.")
    if bool(members) != bool(local):
        raise click.UsageError("--servers and --local belong together: --local is the one of them that this host is.")
    here = parse_server(local) if local else None
    if here is not None and here not in members:
        raise click.UsageError(f"--local {local} is none of --servers {servers}.")
    if tls is not None and not members:
        raise click.UsageError(
            "--tls-key, --tls-cert and --tls-ca go with --servers; for ports of `fleet server`, there."
        )
    number = 0 if here is None else members.index(here)
    create_databases(directory, name=name, servers=members, local=number, is_tls=tls is not None)
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
    "--only",
    type=click.Choice([database.value for database in StoreDatabase]),
    help="Only the server of this database; systemd has a unit for each.",
)
@tls_options
@click.option("--stop", is_flag=True, help="Hand over the leadership, and stop the servers.")
@directory_option(text=_FILES)
def server_command(
    *,
    directory: Path,
    listen: str | None,
    listen_states: str | None,
    only: str | None,
    stop: bool,
    tls: Certificates | None,
) -> int:
    """Start the two servers of this host in the background, or stop them with --stop.

    If one of them runs, only the other one is started. Controllers, commands and agents of this host use unix sockets
    in --directory, which only their owner can open. Ports beyond loopback need TLS, and clients with a certificate.

    \b
    Example (with the options of TLS):
      xenoovs fleet server --listen 192.0.2.1:6661 --listen-states 192.0.2.1:6663
    """
    files = {database: files_of(directory, database) for database in StoreDatabase if only in (None, database.value)}
    if stop:
        return _stop(*files.values())
    given = {
        StoreDatabase.FLEET: listen or (None if tls is None else _READERS),
        StoreDatabase.STATES: listen_states or (None if tls is None else _STATES),
    }
    ports = {
        database: parse_listen(text, is_read_only=database is StoreDatabase.FLEET, is_tls=tls is not None)
        for database, text in given.items()
        if text is not None
    }
    lacking = {database: found for database, found in files.items() if not is_running(found)}
    started = list[ServerFiles]()
    try:
        waiting = dict[StoreDatabase, str]()
        # If all of them run, the first one is refused.
        for database, found in (lacking or files).items():
            reason = start_server(found, [ports[database]] if database in ports else [], tls=tls)
            started.append(found)
            if reason:
                waiting[database] = reason
    except StoreError:
        for found in started:
            stop_server(found)
        raise
    for database, found in files.items():
        if database in lacking:
            _show(found, database, ports.get(database), waiting.get(database, ""))
        else:
            echo(f"{found.name} runs already")
    if listen_states is not None and tls is None:
        echo(
            f"{listen_states} has no TLS: every user of this host can report for any DPU, and so take clients from "
            f"backends; agents of this host can use --fleet-state {files_of(directory, StoreDatabase.STATES).remote}",
            err=True,
        )
    return 2 if waiting else 0


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
@directory_option(_RELAY_DIRECTORY, text=_FILES)
def relay_command(*, directory: Path, source: str, listen: str, stop: bool, tls: Certificates | None) -> int:
    """Start a relay in the background, or stop it with --stop.

    A relay reads the services from the servers and sends them to agents, so that many agents do not slow the servers
    down. One serves 500 agents; run two at least. Its port is read-only. Beyond loopback it needs TLS.

    \b
    Example (with the options of TLS):
      xenoovs fleet relay --from ssl:192.0.2.1:6661,ssl:192.0.2.2:6661 --listen 192.0.2.9:6662
    """
    files = ServerFiles(directory.absolute(), "relay")
    if stop:
        return _stop(files)
    if not source:
        raise click.UsageError("--from is missing: name the servers, such as --from ssl:192.0.2.1:6661.")
    port = parse_listen(listen, is_read_only=True, is_tls=tls is not None)
    reason = start_server(files, [port], source=source, tls=tls)
    _show(files, StoreDatabase.FLEET, port, reason)
    return 2 if reason else 0


def _stop(*files: ServerFiles) -> int:
    problem: StoreError | None = None
    for each in files:
        try:
            echo(f"stopped {each.name}" if stop_server(each) else f"{each.name} was not running")
        except StoreError as error:
            # The other one is stopped all the same.
            problem = problem or error
    if problem is not None:
        raise problem
    return 0


def _show(files: ServerFiles, database: StoreDatabase, port: StorePort | None, waiting: str) -> None:
    if waiting:
        echo(f"{files.name} runs but does not serve yet: {waiting}; see {files.log}")
        return
    role = ""
    try:
        state = server_state(files.remote, database)
        role = {"standalone": "", "relay": ""}.get(state.model, ", leader" if state.is_leader else ", follower")
    except StoreUnreachable as error:
        role = f", but: {error.reason}"
    echo(f"{files.name} serves at {f'{port.remote} and ' if port else ''}{files.remote}{role}")
