"""The servers of a fleet's store as one host sees them: who leads, who lags, and how much room the disk has."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum
from pathlib import Path

from xenoovs.dataclass import dataclass
from xenoovs.display import duration, quantity
from xenoovs.errors import StoreError, StoreUnreachable, XenoovsError
from xenoovs.store.rows import StoreDatabase
from xenoovs.store.servers import ServerFiles, files_of, server_state
from xenoovs.switch.certificates import certificate_end_s, certificate_problem
from xenoovs.switch.process import try_run

ROOM = 10
"""Times the size of the database that its disk should have free: a compaction writes the database again beside it."""
_READINGS = 5
_SILENT_TIMERS = 3
"""A leader hears from each server several times in an election timer (raft_run in ovsdb/raft.c)."""


class ServerRole(Enum):
    """What a server is for its database. The first three are words of `cluster/status`."""

    LEADER = "leader"
    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    ALONE = "alone"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class ClusterMember:
    """A server in the list of `cluster/status`. `id`: its first four digits. `silent_s`: since its last message; None:
    there was none. `match_index`: the newest log entry that it has; None where the server that was asked does not
    lead."""

    id: str
    address: str
    is_self: bool
    silent_s: float | None = None
    match_index: int | None = None


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """The answer to `cluster/status` (ovsdb-server(1), raft_unixctl_status in ovsdb/raft.c). `status`: `cluster
    member`, or why it is none. `leader`: `self`, the first digits of an id, or `unknown`. `index`: of its newest log
    entry. `uncommitted`: entries that most servers lack. `unapplied`: entries that clients do not see yet."""

    status: str
    role: ServerRole
    term: int
    leader: str
    election_timer_s: float
    index: int
    uncommitted: int
    unapplied: int
    members: tuple[ClusterMember, ...]

    def lag(self, member: ClusterMember) -> int | None:
        """Return how many entries a member lacks; None: only the leader knows."""
        return None if member.match_index is None else max(0, self.index - member.match_index)

    def silent(self) -> tuple[ClusterMember, ...]:
        """Return the servers that have not answered the leader for three election timers. At a follower: none."""
        patience_s = _SILENT_TIMERS * self.election_timer_s
        return tuple(
            member
            for member in self.members
            if self.role is ServerRole.LEADER
            and not member.is_self
            and (member.silent_s is None or member.silent_s > patience_s)
        )


_FIELDS = re.compile(
    r"Status: (?P<status>[^\n]+)\n"
    r"(?:[^\n]*\n)*?Role: (?P<role>leader|follower|candidate)\n"
    r"Term: (?P<term>\d+)\n"
    r"Leader: (?P<leader>\w+)\n"
    r"(?:[^\n]*\n)*?Election timer: (?P<timer>\d+)[^\n]*\n"
    r"Log: \[\d+, (?P<end>\d+)\]\n"
    r"Entries not yet committed: (?P<uncommitted>\d+)\n"
    r"Entries not yet applied: (?P<unapplied>\d+)\n"
    r"(?:[^\n]*\n)*?Servers:\n(?P<servers>(?:    [^\n]+\n)*)"
)
_MEMBER = re.compile(r" {4}(?P<id>\w+) \(\w+ at (?P<address>\S+)\)(?P<rest>.*)")


def parse_cluster_status(text: str) -> ClusterStatus:
    """Return the values of `cluster/status`. Raises StoreError for a text of another form."""
    found = _FIELDS.search(text)
    members = [] if found is None else [_MEMBER.fullmatch(line) for line in found["servers"].splitlines()]
    if found is None or None in members:
        raise StoreError(
            f"ovsdb-server answers to cluster/status in a form that is not known, which begins {text[:80]!r}; "
            "tell us the version of Open vSwitch"
        )
    return ClusterStatus(
        status=found["status"],
        role=ServerRole(found["role"]),
        term=int(found["term"]),
        leader=found["leader"],
        election_timer_s=int(found["timer"]) / 1000,
        # The log is a half-open range of indexes.
        index=int(found["end"]) - 1,
        uncommitted=int(found["uncommitted"]),
        unapplied=int(found["unapplied"]),
        members=tuple(_member(each) for each in members if each is not None),
    )


def _member(found: re.Match[str]) -> ClusterMember:
    rest = found["rest"]
    silent, match = re.search(r" last msg (\d+) ms ago", rest), re.search(r" match_index=(\d+)", rest)
    return ClusterMember(
        found["id"],
        found["address"],
        is_self=" (self)" in rest,
        silent_s=None if silent is None else int(silent[1]) / 1000,
        match_index=None if match is None else int(match[1]),
    )


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The server of one database on this host.

    `is_connected`: it stands alone, or is in contact with most of its cluster. `cluster`: None: it stands alone, or
    does not answer. `size_bytes`: of the file with its log; None: there is none. `gap`: why no server can start with
    the file of a cluster; empty: it can, or was not read. `certificate_left_s`: until that of the server ends; None: it
    has none, or was not read.
    """

    database: StoreDatabase
    file: Path
    role: ServerRole
    is_connected: bool
    cluster: ClusterStatus | None = None
    size_bytes: int | None = None
    free_bytes: int | None = None
    gap: str = ""
    certificate_left_s: float | None = None

    @property
    def has_room(self) -> bool:
        """Whether the disk has ten times the size of the database free, as far as known."""
        return self.size_bytes is None or self.free_bytes is None or self.free_bytes >= ROOM * self.size_bytes

    def problems(self) -> Iterator[str]:
        """Yield what an operator should look after, in words."""
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
            control = ServerFiles(self.file.parent, name).control
            yield (
                f"{self.file} has a gap, as after a full disk ({self.gap}): after a crash this server does not start. "
                f"Make room, then run `ovs-appctl -t {control} ovsdb-server/compact {name}`: it writes the file again"
            )
        if problem := certificate_problem(self.certificate_left_s, whose=f"the server of {name}"):
            yield problem
        for member in () if self.cluster is None else self.cluster.silent():
            since = "" if member.silent_s is None else f" for {duration(member.silent_s)}"
            yield f"server {member.address} of {name} has not answered{since}; look whether it runs"


def host_facts(directory: Path | None, *, reads_files: bool = False) -> tuple[ServerFacts, ...]:
    """Return what is known of the two servers in the directory of a host. None: it is another host. `reads_files`: look
    for a gap in their files, 0.02 s of processor time for each MB. Raises StoreError: A server answers in an unknown
    form."""
    if directory is None:
        return ()
    return tuple(_facts(files_of(directory, database), database, reads_file=reads_files) for database in StoreDatabase)


def _facts(files: ServerFiles, database: StoreDatabase, *, reads_file: bool) -> ServerFacts:
    size = free = None
    with suppress(OSError):
        room = os.statvfs(files.database)
        size, free = files.database.stat().st_size, room.f_bavail * room.f_frsize
    role, is_connected, cluster = ServerRole.DOWN, False, None
    with suppress(StoreUnreachable):
        state = server_state(files.remote, database)
        role, is_connected = ServerRole.ALONE, state.is_connected
        if state.model == "clustered":
            cluster = _cluster_status(files, database)
            role = ServerRole.DOWN if cluster is None else cluster.role
    gap = _gap(files) if reads_file and cluster is not None else ""
    left_s = _certificate_left_s(files) if reads_file and role is not ServerRole.DOWN else None
    return ServerFacts(database, files.database, role, is_connected, cluster, size, free, gap, left_s)


def _certificate_left_s(files: ServerFiles) -> float | None:
    """Return until when the certificate of a running server is valid, from its command line."""
    with suppress(OSError, ValueError):
        words = Path(f"/proc/{int(files.pid.read_text())}/cmdline").read_bytes().decode(errors="replace").split("\0")
        for word in words:
            if word.startswith("--certificate=") and (
                ends_s := certificate_end_s(Path(word.removeprefix("--certificate=")))
            ):
                return ends_s - time.time()
    return None


def _gap(files: ServerFiles) -> str:
    """Return why a server cannot read its file; an empty text: it can, or this is unknown on this host. A server that
    could not write an entry goes on in memory, and writes the later ones (ovsdb/raft.c). Only its log shows this."""
    output = ""
    # What is written meanwhile may be read in part.
    for _ in range(_READINGS):
        try:
            done = try_run(["ovsdb-tool", "check-cluster", str(files.database)])
        except XenoovsError:
            return ""
        before, output = output, done.stderr.strip().removeprefix(f"ovsdb-tool: {files.database}: ")
        if done.exit_code == 0:
            return ""
        if output == before:
            break
    return output


def _cluster_status(files: ServerFiles, database: StoreDatabase) -> ClusterStatus | None:
    output = try_run(["ovs-appctl", "-T", "5", "-t", str(files.control), "cluster/status", database.value])
    return parse_cluster_status(output.stdout) if output.exit_code == 0 else None
