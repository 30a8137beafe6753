"""The servers of a fleet's store: ovsdb-server processes, alone, in a RAFT cluster, or as relays.

A host of the store has two processes, one for each database, so that reports of DPUs never delay changes of the fleet.
All files of a host are in one directory that only its owner may enter.
"""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import socket
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Any

from xenoovs.dataclass import dataclass, replace
from xenoovs.display import duration, quantity
from xenoovs.errors import CommandFailed, StoreError, StoreUnreachable, XenoovsError
from xenoovs.regex import regex
from xenoovs.store.replica import parse_remotes
from xenoovs.store.rows import (
    DPU_ROLE,
    FLEET,
    READER_ROLE,
    STATUSES,
    Row,
    StoreDatabase,
    role_operations,
    role_tables,
    schema_text,
)
from xenoovs.store.view import FORMAT
from xenoovs.switch.certificates import Certificates, certificate_end_s, certificate_problem
from xenoovs.switch.endpoint import is_loopback, parse_host_port
from xenoovs.switch.process import run, try_run

ELECTION_TIMER_MS = 2000
"""With the default of 1 s (ovsdb(7)), a busy server may lose its leadership without need."""
INACTIVITY_PROBE_MS = 60_000
RAFT_PORT = 6641
STATE_RAFT_OFFSET = 10
"""Added to the RAFT port of the fleet's database for that of the database of states."""

_LOCAL_SCHEMA = Path("/usr/share/openvswitch/local-config.ovsschema")
"""The schema of the database `Local_Config`, with the ports of one server (ovsdb.local-config(5))."""
_LOCAL_REMOTES = "db:Local_Config,Config,connections"
_GIVE_TLS = "give --tls-key, --tls-cert and --tls-ca"
_NEW_DATABASES = "create the databases of a new directory with `xenoovs fleet init`"
_STEP_S = 0.05
JOIN_PATIENCE_S = 30.0
"""Longest wait for a server to join its cluster and get the newest rows."""
_MAX_REASON = 200
_CONVERT_S = 60
"""A conversion of a large database takes seconds, and waits for most servers of the cluster."""


@dataclass(frozen=True, slots=True)
class StorePort:
    """A TCP port of a server. `host`: IPv6 in brackets. `role`: of its clients (ovsdb(7), "RBAC"); empty if they may
    change all, as at the unix socket, and for the other servers of a cluster. `is_tls`: whether clients need a
    certificate; if not, other hosts must not reach the address."""

    host: str
    port: int
    role: str
    is_tls: bool = False

    @property
    def target(self) -> str:
        """Return the passive connection method of ovsdb(7)."""
        return f"{'pssl' if self.is_tls else 'ptcp'}:{self.port}:{self.host}"

    @property
    def remote(self) -> str:
        """Return the active connection method of its clients."""
        return f"{'ssl' if self.is_tls else 'tcp'}:{self.host}:{self.port}"


def parse_server(text: str, *, is_tls: bool = False) -> StorePort:
    """Return where a server listens for the others of its cluster (ovsdb-tool(1), create-cluster), for the database of
    the fleet, at `ADDRESS` or `ADDRESS:PORT`. Raises StoreError."""
    return _parse_port(text, "", ports=range(1, 65536 - STATE_RAFT_OFFSET), default=RAFT_PORT, is_tls=is_tls)


def parse_listen(text: str, role: str, *, is_tls: bool) -> StorePort:
    """Return the port at `ADDRESS:PORT`. Raises StoreError, also for a port without TLS that other hosts can reach.
    Without TLS there is no `DPU_ROLE`, as a server identifies a client by the CN of its certificate."""
    found = _parse_port(text, role if is_tls or role != DPU_ROLE else "", ports=range(1, 65536), is_tls=is_tls)
    if not (is_tls or is_loopback(found.host)):
        raise StoreError(f"{text} can be reached from other hosts: {_GIVE_TLS}, or listen at 127.0.0.1")
    return found


def _parse_port(text: str, role: str, *, ports: range, default: int = -1, is_tls: bool) -> StorePort:
    try:
        host, port = parse_host_port(text, ports=ports, default=default)
    except ValueError as error:
        raise StoreError(str(error)) from None
    return StorePort(f"[{host}]" if ":" in host else host, port, role, is_tls)


class OvsdbServer:
    """An ovsdb-server of a store, and its files, in a directory that only its owner may enter. `serves`: its database.

    `local`: the database `Local_Config`, made at each start. `socket`: for clients that may change everything;
    `remote`: its active connection method. `control`: the socket of ovs-appctl(8).
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        listen: Sequence[StorePort] = (),
        *,
        source: str = "",
        states: str = "",
        tls: Certificates | None = None,
    ) -> None:
        """`name`: of the files, without suffix. `listen`: its TCP ports, besides the unix socket. Ports with a role
        need another process than those without. `source`: the servers that a relay reads, as active connection methods
        separated by commas. `states`: likewise for the database of states, if it relays that too. `tls`: its
        certificates. Its clients and the other servers need a certificate of the authority."""
        directory = directory.absolute()
        self.directory, self.name = directory, name
        self.listen, self.source, self.states, self.tls = listen, source, states, tls
        self.database, self.local = directory / f"{name}.db", directory / f"{name}.local"
        self.socket, self.control = directory / f"{name}.sock", directory / f"{name}.ctl"
        self.pid, self.log = directory / f"{name}.pid", directory / f"{name}.log"
        self.remote = f"unix:{self.socket}"
        self.serves = StoreDatabase.STATES if name == StoreDatabase.STATES.value else StoreDatabase.FLEET


def server_of(directory: Path, database: StoreDatabase) -> OvsdbServer:
    return OvsdbServer(directory, database.value)


# Databases: stand-alone, the first of a cluster, or one that joins.


def create_databases(directory: Path, *, name: str, servers: Sequence[StorePort] = (), local: int = 0) -> None:
    """Create the files of both databases on one host, or none.

    `servers`: those of the cluster, by `parse_server`; empty for stand-alone databases. The first server creates the
    cluster and the row of the fleet; the others join when they run. `local`: the index of this host in `servers`.
    Raises StoreError if a file exists already or cannot be created, or if other hosts can reach a server without TLS.
    """
    for server in servers:
        if not (server.is_tls or is_loopback(server.host)):
            raise StoreError(f"server {server.host} can be reached from other hosts: {_GIVE_TLS}")
    wanted = [server_of(directory, database).database for database in StoreDatabase]
    for file in wanted:
        if file.exists():
            raise StoreError(f"{file} exists already and stays as it is; remove it, or name another directory")
    is_new = not directory.exists()
    if not is_new:
        _check_private(directory)
    made = list[Path]()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".init-", dir=directory) as work:
            for database in StoreDatabase:
                offset = STATE_RAFT_OFFSET if database is StoreDatabase.STATES else 0
                addresses = [replace(each, port=each.port + offset).remote for each in servers]
                _create(Path(work), database, name=name, addresses=addresses, local=local)
            for file in wanted:
                # A link, unlike a rename, does not replace a file that another process has made by now.
                os.link(Path(work) / file.name, file)
                made.append(file)
    except BaseException as error:
        for file in made:
            file.unlink(missing_ok=True)
        with suppress(OSError):
            if is_new:
                directory.rmdir()
        if isinstance(error, (CommandFailed, StoreError, OSError)):
            reason = (error.strerror if isinstance(error, OSError) else None) or error
            raise StoreError(f"the databases in {directory} cannot be created: {reason}") from None
        raise


def _check_private(directory: Path) -> None:
    """Raise StoreError for a directory in which other users may replace the databases and the sockets."""
    found = directory.stat()
    if found.st_mode & 0o022 or found.st_uid not in (0, os.geteuid()):
        mode = stat.filemode(found.st_mode)
        raise StoreError(
            f"others may write in {directory} ({mode}, user {found.st_uid}), which makes them operators of the "
            f"fleet; run `chown {os.geteuid()} {directory}; chmod 700 {directory}`, or name another directory"
        )


def _create(work: Path, database: StoreDatabase, *, name: str, addresses: Sequence[str], local: int) -> None:
    file, alone = work / f"{database.value}.db", work / f"{database.value}.alone"
    if local:
        others = [address for address in addresses if address != addresses[local]]
        run(["ovsdb-tool", "join-cluster", str(file), database.value, addresses[local], *others])
        return
    target = alone if addresses else file
    schema = work / f"{database.value}.ovsschema"
    schema.write_text(schema_text(database))
    run(["ovsdb-tool", "create", str(target), str(schema)])
    rows = role_operations(database)
    if database is StoreDatabase.FLEET:
        rows.append({"op": "insert", "table": FLEET, "row": {"name": name, "format": FORMAT}})
    _transact(target, database.value, *rows)
    if addresses:
        timer = f"--election-timer={ELECTION_TIMER_MS}"
        run(["ovsdb-tool", timer, "create-cluster", str(file), str(alone), addresses[0]])


def _transact(file: Path, database: str, *operations: dict[str, Any]) -> None:
    """Change a database that no server has open. Raises CommandFailed, StoreError."""
    _require_done(run(["ovsdb-tool", "transact", str(file), json.dumps([database, *operations])]).stdout)


def transact(server: OvsdbServer, *operations: dict[str, Any]) -> None:
    """Change a database through its server (RFC 7047, 4.1.3). Raises CommandFailed without an answer; StoreError."""
    request = json.dumps([server.serves.value, *operations])
    _require_done(run(["ovsdb-client", "--timeout=5", "transact", server.remote, request]).stdout)


def _require_done(output: str) -> None:
    """Raise StoreError for a refusal, which neither program reports by its exit status."""
    answer = json.loads(output)
    # An error of the whole request is no list.
    results = answer if isinstance(answer, list) else [answer]
    for error in (each for each in results if each is not None and "error" in each):
        raise StoreError(error.get("details") or error["error"])


# Processes.


def server_command(server: OvsdbServer) -> list[str]:
    """Create the database of the ports, and return the command of a server in the foreground. Raises StoreError."""
    remotes = [f"--remote=p{server.remote}"]
    databases = [f"relay:{StoreDatabase.FLEET.value}:{server.source}" if server.source else str(server.database)]
    # A server serves all its databases at all its ports. A client that can write `Local_Config` can make a server of
    # root listen anywhere, and delete any file (`punix:`). So a server with a port without a role does not have it.
    databases += [f"relay:{StoreDatabase.STATES.value}:{server.states}"] if server.states else []
    remotes += [f"--remote={port.target}" for port in server.listen if not port.role]
    if bound := [port for port in server.listen if port.role]:
        _make_local(server, bound)
        remotes.append(f"--remote={_LOCAL_REMOTES}")
        databases.append(str(server.local))
    own = list[str]()
    if server.tls is not None:
        tls = server.tls.absolute
        own = [f"--private-key={tls.key}", f"--certificate={tls.certificate}", f"--ca-cert={tls.authority}"]
        own.append("--ssl-protocols=TLSv1.2")
    return [
        "ovsdb-server",
        *databases,
        *remotes,
        *own,
        f"--unixctl={server.control}",
        f"--pidfile={server.pid}",
        f"--log-file={server.log}",
        "-vconsole:off",
        "--no-chdir",
    ]


def _make_local(server: OvsdbServer, listen: Sequence[StorePort]) -> None:
    """Create the database with the ports, as roles, read-only ports and probes can be set only there (ovsdb-server(1)).
    A server serves all its databases at all its ports, and a role counts only in a database with the tables of roles.
    So this one has them too; otherwise a client with a role could add a port without one."""
    with tempfile.TemporaryDirectory(prefix=".local-", dir=server.directory) as work:
        made, schema_file = Path(work) / "local", Path(work) / "schema"
        if not _LOCAL_SCHEMA.exists():
            raise StoreError(f"{_LOCAL_SCHEMA} is missing: a server with ports needs Open vSwitch 3.0 or newer")
        schema = json.loads(_LOCAL_SCHEMA.read_text())
        schema["tables"] |= role_tables()
        schema_file.write_text(json.dumps(schema))
        run(["ovsdb-tool", "create", str(made), str(schema_file)])
        connections = [
            {
                "op": "insert",
                "table": "Connection",
                "uuid-name": f"port{number}",
                "row": {
                    "target": port.target,
                    "read_only": port.role == READER_ROLE,
                    "role": port.role,
                    "inactivity_probe": INACTIVITY_PROBE_MS,
                },
            }
            for number, port in enumerate(listen)
        ]
        ids = ["set", [["named-uuid", f"port{number}"] for number in range(len(listen))]]
        config = {"op": "insert", "table": "Config", "row": {"connections": ids}}
        _transact(made, "Local_Config", *connections, config)
        made.replace(server.local)


def start_server(server: OvsdbServer) -> str:
    """Start a server or relay in the background. Return why it does not serve yet; empty if it does. Raises StoreError
    if it runs already, there is no database, its schema cannot be upgraded, its cluster lacks TLS, or ovsdb-server
    refuses to start; CertificateUnusable, as ovsdb-server would only log it, and refuse all clients."""
    if server.tls is not None:
        server.tls.context()
    if is_running(server):
        raise StoreError(f"{server.name} runs already (see {server.pid}); stop it with --stop")
    if server.source:
        parse_remotes(server.source, server.tls)
        server.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    elif not server.database.exists():
        raise StoreError(f"{server.database} does not exist; create it with `xenoovs fleet init`")
    else:
        _check_cluster(server)
    for port in server.listen:
        _check_free(port)
    _check_private(server.directory)
    # A socket of a server that was killed stays; the new one replaces it, but clients must not wait for the old.
    server.socket.unlink(missing_ok=True)
    # Sockets have the permissions that the umask leaves (bind_unix_socket in lib/socket-util-unix.c).
    try:
        run([*server_command(server), "--detach"], umask=0o077)
    except CommandFailed as error:
        reason = error.stderr.strip()
        if "reading record" in reason:
            reason += f"; {server.database} is damaged, as by a full disk: replace it (docs/how-to/fleet-store.md)"
        raise StoreError(f"ovsdb-server does not start: {reason}; see {server.log}") from None
    end_s = time.monotonic() + JOIN_PATIENCE_S
    while True:
        try:
            if server_state(server.remote, server.serves)["connected"]:
                if not server.source:
                    _upgrade(server)
                return ""
            reason = (
                "its source does not answer" if server.source else "it has not joined its cluster yet, or has lost it"
            )
        except StoreUnreachable as error:
            reason = error.reason
        if time.monotonic() > end_s or not is_running(server):
            return reason
        time.sleep(_STEP_S)


def _check_cluster(server: OvsdbServer) -> None:
    """Raise StoreError for a server that talks to other hosts without TLS, or has no certificate for it."""
    output = try_run(["ovsdb-tool", "db-local-address", str(server.database)])
    if output.exit_code != 0:
        # The database is stand-alone.
        return
    address = output.stdout.strip()
    method, _, rest = address.partition(":")
    if method == "ssl" and server.tls is None:
        raise StoreError(f"{server.name} talks to its cluster at {address}: {_GIVE_TLS}")
    if method == "tcp" and not is_loopback(rest.rpartition(":")[0]):
        raise StoreError(f"{address} of {server.name} can be reached from other hosts; {_NEW_DATABASES} with TLS")


def _upgrade(server: OvsdbServer) -> None:
    """Upgrade the schema of a database to this version, and stop a server whose database cannot be used. The first
    server of a cluster with this version converts for all; the others follow through the RAFT log. A newer schema is
    used as it is: another host was upgraded first."""
    try:
        _convert(server)
    except (CommandFailed, StoreError) as error:
        stop_server(server)
        reason = error.stderr.strip() if isinstance(error, CommandFailed) else error
        raise StoreError(f"{server.database} cannot be used: {reason}; {_NEW_DATABASES}") from None


def _convert(server: OvsdbServer) -> None:
    """Convert an older schema. Raises CommandFailed; StoreError if it lacks roles or columns, or would lose columns."""
    database = server.serves
    asked = ["ovsdb-client", "--timeout=5", "get-schema", server.remote, database.value]
    found, wanted = json.loads(run(asked).stdout), json.loads(schema_text(database))
    versions = f"it has schema {found['version']}, and this version needs {wanted['version']}"
    if not role_tables().keys() <= found["tables"].keys():
        # Without roles the server would not check the name in a certificate.
        raise StoreError(versions)
    missing, dropped = _columns(wanted) - _columns(found), _columns(found) - _columns(wanted)
    if _version(found) >= _version(wanted):
        if missing:
            raise StoreError(f"{versions}, but it lacks {min(missing)}")
        return
    if dropped:
        raise StoreError(f"{versions}, in which there is no {min(dropped)}")
    with tempfile.TemporaryDirectory(prefix=".convert-", dir=server.directory) as work:
        schema = Path(work) / "schema"
        schema.write_text(schema_text(database))
        refusal = _refusal(server, schema)
        if refusal and database is StoreDatabase.STATES:
            # A report may be too large for the new schema. DPUs report again when they connect, as all do after this.
            transact(server, {"op": "delete", "table": STATUSES.name, "where": []})
            refusal = _refusal(server, schema)
        if refusal:
            raise StoreError(f"{versions}, but {refusal}")
        convert = ["ovsdb-client", f"--timeout={_CONVERT_S}", "convert", server.remote, str(schema)]
        run(convert, timeout_s=2 * _CONVERT_S)
    # Permissions list columns, and the new schema may have others.
    transact(server, *role_operations(database))


def _refusal(server: OvsdbServer, schema: Path) -> str:
    """Return why the rows of a database do not fit a schema; empty if they do. Raises CommandFailed. It converts a
    copy: ovsdb-server 3.1 crashes with SIGSEGV if a row does not fit, and so would each server that tries."""
    asked = ["ovsdb-client", f"--timeout={_CONVERT_S}", "backup", server.remote, server.serves.value]
    copy = schema.with_suffix(".copy")
    copy.write_text(run(asked, timeout_s=2 * _CONVERT_S).stdout)
    done = try_run(["ovsdb-tool", "convert", str(copy), str(schema)], timeout_s=2 * _CONVERT_S)
    reason = done.stderr.strip().removeprefix("ovsdb-tool: ")
    # The message has the whole value that does not fit.
    if len(reason) > _MAX_REASON:
        reason = f"{reason[: _MAX_REASON // 2]} ... {reason[-_MAX_REASON // 2 :]}"
    return "" if done.exit_code == 0 else reason or "ovsdb-tool cannot convert a copy"


def _version(schema: dict[str, Any]) -> tuple[int, ...]:
    return tuple(map(int, schema["version"].split(".")))


def _columns(schema: dict[str, Any]) -> set[str]:
    return {f"{table}.{column}" for table, found in schema["tables"].items() for column in found["columns"]}


def _check_free(port: StorePort) -> None:
    """Raise StoreError for a port that cannot be used: ovsdb-server would only log it, and serve without the port."""
    family = socket.AF_INET6 if port.host.startswith("[") else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind((port.host.strip("[]"), port.port))
            trial.listen()
    except OSError as error:
        reason = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used: {error.strerror or error}"
        raise StoreError(f"{port.remote} {reason}; choose another address or port") from None


_HANGS = -signal.SIGALRM
"""Exit code of ovs-appctl(8) after the timeout of -T: the server accepted the connection, and does not answer."""


def is_running(server: OvsdbServer) -> bool:
    """Return whether a server has its control socket open, even if it does not answer."""
    return try_run(["ovs-appctl", "-T", "5", "-t", str(server.control), "version"]).exit_code in (0, _HANGS)


def stop_server(server: OvsdbServer, *, patience_s: float = 30) -> bool:
    """Make a server hand over its leadership and exit. Return whether one ran.

    After `exit` of ovs-appctl(8) another server leads within 0.06 s; after SIGTERM the others wait for an election.
    Before, a server of a cluster compacts its file: after a full disk its log may have a gap, with which it does not
    start. Raises StoreError if it does not answer, or does not exit in time.
    """
    pid = _pid(server)
    if try_run(["ovsdb-tool", "db-is-clustered", str(server.database)]).exit_code == 0:
        try_run(["ovs-appctl", "-T", "30", "-t", str(server.control), "ovsdb-server/compact"])
    done = try_run(["ovs-appctl", "-T", "10", "-t", str(server.control), "exit"])
    if done.exit_code == _HANGS:
        raise StoreError(
            f"{server.name} (process {pid}) does not answer, as with a disk that hangs; it ends as soon as it can, or "
            f"with `kill -9 {pid}`"
        )
    if done.exit_code != 0:
        return False
    end_s = time.monotonic() + patience_s
    while pid is not None and Path(f"/proc/{pid}").exists():
        if time.monotonic() > end_s:
            raise StoreError(f"{server.name} (process {pid}) does not end; see {server.log}")
        time.sleep(_STEP_S)
    server.local.unlink(missing_ok=True)
    return True


def _pid(server: OvsdbServer) -> int | None:
    with suppress(OSError, ValueError):
        return int(server.pid.read_text())
    return None


# The state of a server, by its own report.


def server_state(remote: str, database: StoreDatabase = StoreDatabase.FLEET) -> Row:
    """Return the row of a database in `_Server` of its server (ovsdb-server(5), "Database"): `model` (`standalone`,
    `clustered` or `relay`), `connected` (to most of its cluster, or its source) and `leader`. Raises StoreUnreachable
    if the server does not answer, or does not have the database."""
    asked = ["_Server", {"op": "select", "table": "Database", "where": [["name", "==", database.value]]}]
    done = try_run(["ovsdb-client", "--timeout=5", "query", remote, json.dumps(asked)])
    if done.exit_code != 0:
        raise StoreUnreachable(remotes=remote, reason=done.stderr.strip().rpartition("|")[2] or "no answer")
    rows = json.loads(done.stdout)[0]["rows"]
    if not rows:
        raise StoreUnreachable(remotes=remote, reason=f"the server has no database {database.value}")
    row: Row = rows[0]
    return row


# The servers of one host: which leads, which lags, and how much room the disk has.


ROOM = 10
"""Free space that the disk should have, in sizes of the database: a compaction writes the database again beside it."""
_READINGS = 5
_SILENT_TIMERS = 3
"""A leader gets several messages from each server in an election timer (raft_run in ovsdb/raft.c)."""


class ServerRole(Enum):
    """The role of a server for its database. The first three are words of `cluster/status`. SILENT: the leader gets no
    messages from it."""

    LEADER = "leader"
    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    ALONE = "alone"
    DOWN = "down"
    SILENT = "silent"


@dataclass(frozen=True, slots=True)
class ClusterMember:
    """A server in the list of `cluster/status`. `id`: its first four digits. `silent_s`: since its last message; None
    if there was none. Of a leader alone: `match_index`, the newest log entry that it has; `lag`, how many it lacks;
    `is_silent`, whether it has not answered for three election timers."""

    id: str
    address: str
    is_self: bool
    silent_s: float | None
    match_index: int | None
    lag: int | None
    is_silent: bool | None


_FIELDS = regex(
    r"Role: (?P<role>leader|follower|candidate)\n"
    r"Term: (?P<term>\d+)\n"
    r"(?:[^\n]*\n)*?Election timer: (?P<timer>\d+)[^\n]*\n"
    r"Log: \[\d+, (?P<end>\d+)\]\n"
    r"(?:[^\n]*\n)*?Servers:\n(?P<servers>(?:    [^\n]+\n)*)"
)
_MEMBER = regex(r" {4}(?P<id>\w+) \(\w+ at (?P<address>\S+)\)(?P<rest>.*)")


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The server of one database on this host; or another `member` of its cluster, as far as this host knows.

    `is_connected`: whether it stands alone, or is in contact with most of its cluster. `term`, `election_timer_s`,
    `members`: of its cluster, and `index`: of its newest log entry; none if it stands alone, or does not answer.
    `size_bytes`: that of the database file; None if there is none. `gap`: why no server can
    start with the file of a cluster; empty if one can, or it was not read. `certificate_left_s`: until the server's
    certificate expires; None if it has none, or it was not read."""

    database: StoreDatabase
    file: Path
    role: ServerRole
    is_connected: bool
    term: int | None = None
    election_timer_s: float | None = None
    index: int | None = None
    members: tuple[ClusterMember, ...] = ()
    size_bytes: int | None = None
    free_bytes: int | None = None
    gap: str = ""
    certificate_left_s: float | None = None
    member: ClusterMember | None = None

    @property
    def is_behind(self) -> bool:
        """Return whether it lacks entries, does not answer, or has lost most of its cluster."""
        return not self.is_connected or bool(self.member and self.member.lag)

    @property
    def has_room(self) -> bool:
        """Return whether the disk has `ROOM` times the size of the database free, or that is not known."""
        return self.size_bytes is None or self.free_bytes is None or self.free_bytes >= ROOM * self.size_bytes

    def problems(self) -> Iterator[str]:
        """Yield messages about what an operator should do."""
        name = self.database.value
        if self.role is ServerRole.DOWN:
            yield f"the server of {name} does not answer on this host; start it with `xenoovs fleet server`"
        elif not self.is_connected:
            yield f"the server of {name} has lost most of its cluster: nothing can be written until they are back"
        if not self.has_room:
            yield (
                f"the disk of {self.file} has {quantity(self.free_bytes)}B free, less than {ROOM} times the database "
                f"({quantity(self.size_bytes)}B): make room. With a full disk a server goes on in memory; then stop it "
                "with `xenoovs fleet server --stop`, which writes its file again, and start it"
            )
        if self.gap:
            control = OvsdbServer(self.file.parent, name).control
            yield (
                f"{self.file} has a gap, as after a full disk ({self.gap}): after a crash this server does not start. "
                f"Make room, then run `ovs-appctl -t {control} ovsdb-server/compact {name}`: it writes the file again"
            )
        if problem := certificate_problem(self.certificate_left_s, whose=f"the server of {name}"):
            yield problem
        for member in self.members:
            if member.is_silent:
                since = "" if member.silent_s is None else f" for {duration(member.silent_s)}"
                yield f"server {member.address} of {name} has not answered{since}; look whether it runs"


def with_cluster_status(facts: ServerFacts, text: str) -> ServerFacts:
    """Return facts with the values in the answer to `cluster/status` (ovsdb-server(1), raft_unixctl_status in
    ovsdb/raft.c). Raises StoreError if it has another form."""
    found = _FIELDS.search(text)
    members = [] if found is None else [_MEMBER.fullmatch(line) for line in found["servers"].splitlines()]
    if found is None or None in members:
        raise StoreError(
            f"ovsdb-server answers to cluster/status in a form that is not known, which begins {text[:80]!r}; "
            "tell us the version of Open vSwitch"
        )
    # The log is a half-open range of indexes.
    timer_s, index = int(found["timer"]) / 1000, int(found["end"]) - 1
    listed = list[ClusterMember]()
    for each in filter(None, members):
        rest, is_self = each["rest"], " (self)" in each["rest"]
        said, match = re.search(r" last msg (\d+) ms ago", rest), re.search(r" match_index=(\d+)", rest)
        silent_s = None if said is None else int(said[1]) / 1000
        of_leader: tuple[int | None, int | None, bool | None] = None, None, None
        if match is not None:
            is_silent = not is_self and (silent_s is None or silent_s > _SILENT_TIMERS * timer_s)
            of_leader = int(match[1]), max(0, index - int(match[1])), is_silent
        listed.append(ClusterMember(each["id"], each["address"], is_self, silent_s, *of_leader))
    of_cluster = replace(facts, term=int(found["term"]), election_timer_s=timer_s, index=index, members=tuple(listed))
    return replace(of_cluster, role=ServerRole(found["role"]))


def host_facts(directory: Path | None, *, reads_files: bool = False) -> tuple[ServerFacts, ...]:
    """Return the facts about the two servers in the directory of this host; empty without a directory. `reads_files`:
    whether to look for gaps in their files, at 0.02 s of processor time per MB. Raises StoreError if a server answers
    in an unknown form."""
    if directory is None:
        return ()
    return tuple(_facts(server_of(directory, database), reads_file=reads_files) for database in StoreDatabase)


def _facts(server: OvsdbServer, *, reads_file: bool) -> ServerFacts:
    facts = ServerFacts(server.serves, server.database, ServerRole.DOWN, is_connected=False)
    with suppress(OSError):
        room = os.statvfs(server.database)
        size_bytes, free_bytes = server.database.stat().st_size, room.f_bavail * room.f_frsize
        facts = replace(facts, size_bytes=size_bytes, free_bytes=free_bytes)
    with suppress(StoreUnreachable):
        state = server_state(server.remote, server.serves)
        facts = replace(facts, is_connected=state["connected"])
        if state["model"] == "clustered":
            asked = ["ovs-appctl", "-T", "5", "-t", str(server.control), "cluster/status", server.serves.value]
            output = try_run(asked)
            facts = with_cluster_status(facts, output.stdout) if output.exit_code == 0 else facts
        else:
            facts = replace(facts, role=ServerRole.ALONE)
    if not reads_file or facts.role is ServerRole.DOWN:
        return facts
    return replace(facts, gap=_gap(server) if facts.members else "", certificate_left_s=_certificate_left_s(server))


def _certificate_left_s(server: OvsdbServer) -> float | None:
    """Return for how long the certificate on the command line of a running server is valid; None if not known."""
    with suppress(OSError):
        words = Path(f"/proc/{_pid(server)}/cmdline").read_bytes().decode(errors="replace").split("\0")
        for word in words:
            option, _, file = word.partition("=")
            if option == "--certificate" and (ends_s := certificate_end_s(Path(file))):
                return ends_s - time.time()
    return None


def _gap(server: OvsdbServer) -> str:
    """Return why a server cannot read its file; empty if it can, or this host cannot check it. A server that could not
    write an entry goes on in memory, and writes the later ones (ovsdb/raft.c). Only its file shows the gap."""
    output = ""
    # A read during a write may get a part of an entry.
    for _ in range(_READINGS):
        try:
            done = try_run(["ovsdb-tool", "check-cluster", str(server.database)])
        except XenoovsError:
            return ""
        before, output = output, done.stderr.strip().removeprefix(f"ovsdb-tool: {server.database}: ")
        if done.exit_code == 0:
            return ""
        if output == before:
            break
    return output
