"""The tables of a fleet: its DPUs, the targets of its health checks, and the servers of its store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from xenoovs.display import duration, moment, percent, quantity
from xenoovs.fleet.dpus import DpuRow, DpuState
from xenoovs.fleet.snapshot import FleetSnapshot
from xenoovs.fleet.targets import TargetRow, TargetState
from xenoovs.show.column import Column, Measure, Row, Table, computed, counter, gauge
from xenoovs.store.cluster import ClusterMember, ClusterStatus, ServerFacts

_STORE, _REPORTS, _SERVERS = "the store", "reports of agents", "`cluster/status` of ovsdb-server"


# DPUs.


def _rounded(seconds: float | None, digits: int = 3) -> float | None:
    return None if seconds is None else round(float(seconds), digits)


def state_style(row: Row[DpuRow]) -> str:
    """Return the style of the state of a DPU."""
    return {DpuState.APPLIED: "good", DpuState.BEHIND: "warn"}.get(row.value.state, "bad")


DPUS = Table(
    lambda snapshot: (((row.name,), row) for row in snapshot.rows),
    (
        Column("Its name.", lambda row: row.value.name, header="DPU", live=5, name="name"),
        computed(
            "Names of its groups.",
            lambda row: sorted(row.value.groups),
            gauge(
                "xenoovs_fleet_dpu_group",
                "`xenoovs fleet set-dpu`",
                "A group of a DPU; always 1.",
                lambda dpu: dict.fromkeys(sorted(dpu.groups), 1),
                ("group",),
            ),
            header="GROUPS",
            cell=lambda groups: ",".join(groups) or "-",
            only_if=lambda row: bool(row.value.groups),
            keep=1,
            live=8,
            live_from=100,
            name="groups",
        ),
        computed(
            "How it stands to the newest generation.",
            lambda row: row.value.state.name.lower(),
            gauge(
                "xenoovs_fleet_dpu_state",
                _REPORTS,
                "State of a DPU; always 1.",
                lambda dpu: {dpu.state.name.lower(): 1},
                ("state",),
            ),
            name="state",
        ),
        Column(of=lambda row: row.value.state.value, header="STATE", style=state_style, live=8),
        computed(
            "Newest generation that the bridge of a DPU has had.",
            lambda row: row.value.status.applied,
            gauge("xenoovs_fleet_dpu_generation", _REPORTS),
            header="GENERATION",
            cell=lambda applied: str(applied or "-"),
            is_number=True,
            live=11,
            name="applied",
        ),
        Column(of=lambda row: row.value.hw_share, header="HW", cell=percent, is_number=True, live=8),
        Column("Generation that it was ready for.", lambda row: row.value.status.prepared, name="prepared"),
        computed(
            "1 if a DPU was not ready when the DPUs switched to its generation; it followed later.",
            lambda row: row.value.is_late,
            gauge("xenoovs_fleet_dpu_late", _REPORTS),
            name="is_late",
        ),
        computed(
            "Time since its last report.",
            lambda row: _rounded(row.value.seen_s),
            gauge("xenoovs_fleet_dpu_seen_seconds", _REPORTS, "Time since the last report.", lambda dpu: dpu.seen_s),
            name="seen_s",
        ),
        Column(of=lambda row: row.value.seen_s, header="SEEN", cell=duration, is_number=True, live=9),
        computed(
            "Estimated error of its clock, in microseconds; null: unknown.",
            lambda row: None if row.value.status.clock_us < 0 else row.value.status.clock_us,
            gauge(
                "xenoovs_fleet_dpu_clock_error_seconds",
                _REPORTS,
                "Estimated error of a DPU's clock, as of its last report; absent if it is not known.",
                lambda dpu: None if dpu.status.clock_us < 0 else dpu.status.clock_us / 1e6,
            ),
            name="clock_us",
        ),
        Column(
            of=lambda row: row.value.clock,
            header="CLOCK",
            is_number=True,
            live=9,
            style=lambda row: "plain" if row.value.is_clock_good else "warn",
        ),
        Column(
            "Of its agent.",
            lambda row: row.value.status.version,
            header="VERSION",
            cell=lambda v: v or "-",
            keep=2,
            name="version",
        ),
        Column(
            "Time until its certificate ends; null: not known.",
            lambda row: _rounded(row.value.certificate_left_s, 0),
            name="certificate_left_s",
            metrics=(
                gauge(
                    "xenoovs_fleet_dpu_certificate_seconds",
                    _REPORTS,
                    "Time until the certificate of a DPU ends; absent without TLS.",
                    lambda dpu: dpu.certificate_left_s,
                ),
            ),
        ),
        Column(of=lambda row: row.value.note, header="NOTE", live=10),
        Column("Why it does not follow the store.", lambda row: row.value.status.error, name="error"),
        computed(
            "Services whose flows differ from the store, with what was read.",
            lambda row: dict(row.value.status.drift),
            gauge(
                "xenoovs_fleet_dpu_drift_services",
                _REPORTS,
                "Services whose flows differ from the store.",
                lambda dpu: len(dpu.status.drift),
            ),
            name="drift",
        ),
        computed(
            "Whether an operator took it out of service.",
            lambda row: row.value.is_out,
            gauge(
                "xenoovs_fleet_dpu_unready",
                _REPORTS,
                "1 while routers should send no clients to a DPU for this reason: `operator`, or `unfit`.",
                lambda dpu: {"operator": dpu.is_out, "unfit": dpu.is_unfit},
                ("reason",),
            ),
            name="is_out",
        ),
        Column("Whether it should get no clients.", lambda row: row.value.is_unfit, name="is_unfit"),
        Column("Its megaflows by verdict.", lambda row: dict(row.value.status.verdicts), name="verdicts"),
        computed(
            "Share of its megaflows in hardware; null without traffic.",
            lambda row: _rounded(row.value.hw_share, 4),
            gauge(
                "xenoovs_fleet_dpu_offload_ratio",
                _REPORTS,
                "Share of a DPU's megaflows in hardware (0-1), as of its last report; absent without traffic.",
                lambda dpu: dpu.hw_share,
            ),
            name="hw_share",
        ),
    ),
    ("dpu",),
)


# Targets of health checks.


def _votes(row: TargetRow) -> dict[tuple[str, ...], float]:
    if row.state is TargetState.UP:
        return {}
    votes = (("down", row.votes.down), ("up", row.votes.up), ("silent", row.votes.silent))
    return {(row.state.name.lower(), vote): len(names) for vote, names in votes}


TARGETS = Table(
    lambda snapshot: (((row.target,), row) for row in snapshot.targets),
    (
        Column("What is probed.", lambda row: row.value.target, name="target"),
        Column("The backends behind it.", lambda row: list(row.value.backends), name="backends"),
        Column("By the votes of its witnesses.", lambda row: row.value.state.name.lower(), name="state"),
        Column("Since when.", lambda row: _rounded(row.value.since_s), name="since_s"),
        Column("Whether it is down and keeps its clients.", lambda row: row.value.is_held, name="is_held"),
        computed(
            "Names of the DPUs by vote.",
            lambda row: {
                vote: sorted(names)
                for vote, names in (
                    ("down", row.value.votes.down),
                    ("up", row.value.votes.up),
                    ("silent", row.value.votes.silent),
                )
            },
            gauge(
                "xenoovs_fleet_target_votes",
                _REPORTS,
                "Witnesses by vote, of a target that is down or has no quorum; others are left out.",
                _votes,
                ("state", "vote"),
            ),
            name="votes",
        ),
    ),
    ("target",),
)


# Servers of the store.


def _of_cluster(number: Callable[[ClusterStatus], Any]) -> Callable[[ServerFacts], Any]:
    return lambda server: None if server.cluster is None else number(server.cluster)


def _members(server: ServerFacts) -> list[dict[str, object]]:
    return [
        {
            "id": member.id,
            "address": member.address,
            "is_self": member.is_self,
            "silent_s": member.silent_s,
            "lag": None if server.cluster is None else server.cluster.lag(member),
        }
        for member in (() if server.cluster is None else server.cluster.members)
    ]


SERVERS = Table(
    lambda snapshot: (((server.database.value,), server) for server in snapshot.servers),
    (
        Column("Its database.", lambda row: row.value.database.value, name="database"),
        computed(
            "What it is in its cluster.",
            lambda row: row.value.role.value,
            gauge(
                "xenoovs_store_role",
                _SERVERS,
                "Role of the server of a database on this host; always 1.",
                lambda server: {server.role.value: 1},
                ("role",),
            ),
            name="role",
        ),
        computed(
            "1 while the server stands alone or is in contact with most of its cluster.",
            lambda row: row.value.is_connected,
            gauge("xenoovs_store_connected", "`_Server` of ovsdb-server"),
            name="is_connected",
        ),
        computed(
            "Size of the database with its log.",
            lambda row: row.value.size_bytes,
            gauge("xenoovs_store_size_bytes", "stat"),
            name="size_bytes",
        ),
        computed(
            "Room on the disk of the database.",
            lambda row: row.value.free_bytes,
            gauge("xenoovs_store_free_bytes", "statvfs"),
            name="free_bytes",
        ),
        computed(
            "Elections since the cluster was made: its term.",
            lambda row: _of_cluster(lambda cluster: cluster.term)(row.value),
            counter("xenoovs_store_elections_total", _SERVERS),
            name="term",
        ),
        computed(
            "Newest log entry of the server.",
            lambda row: _of_cluster(lambda cluster: cluster.index)(row.value),
            gauge("xenoovs_store_log_index", _SERVERS),
            name="index",
        ),
        Column(
            "Of its cluster.",
            lambda row: _of_cluster(lambda cluster: cluster.election_timer_s)(row.value),
            name="election_timer_s",
        ),
        computed(
            "",
            None,
            gauge(
                "xenoovs_store_gap",
                "`ovsdb-tool check-cluster`",
                "1 while the file of a server in a cluster has a gap, as after a full disk; read once a minute.",
                lambda server: None if server.cluster is None else bool(server.gap),
            ),
        ),
        Column(
            "Time until its certificate ends; null: it has none.",
            lambda row: _rounded(row.value.certificate_left_s, 0),
            name="certificate_left_s",
            metrics=(
                gauge(
                    "xenoovs_store_certificate_seconds",
                    "`openssl x509`",
                    "Time until the certificate of a server of the store ends; absent without TLS.",
                    lambda server: server.certificate_left_s,
                ),
            ),
        ),
        Column("The servers of its cluster.", lambda row: _members(row.value), name="members"),
    ),
    ("database",),
)


Member = tuple[ServerFacts, ClusterStatus, ClusterMember]


def _others(snapshot: FleetSnapshot) -> Iterator[tuple[tuple[str, ...], Member]]:
    for server in snapshot.servers:
        for member in () if server.cluster is None else server.cluster.members:
            if server.cluster is not None and not member.is_self:
                yield (server.database.value, member.address), (server, server.cluster, member)


def _silent(found: Member) -> bool | None:
    _, cluster, member = found
    return None if cluster.lag(member) is None else member in cluster.silent()


MEMBERS = Table(
    _others,
    (
        computed(
            "",
            None,
            gauge(
                "xenoovs_store_member_lag",
                _SERVERS,
                "Log entries that another server lacks; only the leader knows.",
                lambda found: found[1].lag(found[2]),
            ),
            gauge(
                "xenoovs_store_member_silent",
                _SERVERS,
                "1 while the leader has not heard another server for three election timers.",
                _silent,
            ),
        ),
    ),
    ("database", "member"),
)


def _text(of_server: Callable[[ServerFacts], Any], of_member: Callable[[Any, Any], Any]) -> Callable[[Row[Any]], str]:
    def text(row: Row[Any]) -> str:
        server, cluster, member = row.value
        found = of_server(server) if member is None else of_member(cluster, member)
        return "-" if found is None else str(found)

    return text


def _bytes(number: int | None) -> str | None:
    return None if number is None else f"{quantity(number)}B"


def _role_style(row: Row[Any]) -> str:
    server, cluster, member = row.value
    return "plain" if (server.is_connected if member is None else member not in cluster.silent()) else "bad"


def _servers_and_others(snapshot: FleetSnapshot) -> Iterator[tuple[tuple[str, ...], Any]]:
    for server in snapshot.servers:
        yield (), (server, server.cluster, None)
        for member in () if server.cluster is None else server.cluster.members:
            if server.cluster is not None and server.cluster.lag(member) is not None and not member.is_self:
                yield (), (server, server.cluster, member)


SERVER_LIST = Table(
    _servers_and_others,
    (
        Column(of=lambda row: row.value[0].database.value, header="DATABASE"),
        Column(of=_text(lambda _: "this host", lambda _, member: member.address), header="SERVER"),
        Column(
            of=_text(
                lambda server: server.role.value,
                lambda cluster, member: "silent" if member in cluster.silent() else "follower",
            ),
            header="ROLE",
            style=_role_style,
        ),
        Column(
            of=_text(_of_cluster(lambda cluster: cluster.term), lambda *_: None), header="TERM", is_number=True, keep=2
        ),
        Column(
            of=_text(_of_cluster(lambda cluster: cluster.index), lambda _, member: member.match_index),
            header="INDEX",
            is_number=True,
            keep=3,
        ),
        Column(of=_text(lambda _: None, lambda cluster, member: cluster.lag(member)), header="LAG", is_number=True),
        Column(
            of=_text(lambda server: _bytes(server.size_bytes), lambda *_: None), header="SIZE", is_number=True, keep=1
        ),
        Column(
            of=_text(lambda server: _bytes(server.free_bytes), lambda *_: None),
            header="FREE",
            is_number=True,
            style=lambda row: "plain" if row.value[2] is not None or row.value[0].has_room else "bad",
        ),
    ),
)


# What operators and agents wrote.


INTENTS = Table(
    lambda view: (((), each) for each in sorted(view.intents.values(), key=lambda each: -each.number)),
    (
        Column(
            "In the order of the history.", lambda row: row.value.number, name="number", header="NUMBER", is_number=True
        ),
        Column("What became of it.", lambda row: row.value.state.value, name="state", header="STATE"),
        Column(
            "When it was given, in milliseconds since 1970.",
            lambda row: row.value.created_ms,
            name="created_ms",
            header="WHEN",
            cell=moment,
        ),
        Column("Who gave it.", lambda row: row.value.author, name="author", header="WHO"),
        Column("Of its author, or of the controller.", lambda row: row.value.comment, name="comment", header="COMMENT"),
        Column("Of its text.", lambda row: row.value.digest, name="digest"),
    ),
)


ACTIONS = Table(
    lambda view: (((), each) for each in sorted(view.actions.values(), key=lambda each: -each.number)),
    (
        Column(
            "When, in milliseconds since 1970.", lambda row: row.value.at_ms, name="at_ms", header="WHEN", cell=moment
        ),
        Column("Who did it.", lambda row: row.value.author, name="author", header="WHO"),
        Column("In the words of the command.", lambda row: row.value.text, name="action", header="ACTION"),
    ),
)

OVERRIDES = Table(
    lambda view: (((), one) for _, one in sorted(view.overrides.items())),
    (
        Column("Name of the service.", lambda row: row.value.service, name="service"),
        Column("Name of the backend.", lambda row: row.value.backend, name="backend"),
        Column("In place of that of the config; 0 is a drain.", lambda row: float(row.value.weight), name="weight"),
        Column("Who set it.", lambda row: row.value.author, name="author"),
    ),
)

DRIFTS = Table(
    lambda rows: (((), (row, *drift)) for row in rows for drift in sorted(row.status.drift.items())),
    (
        Column("The DPU.", lambda row: row.value[0].name, name="dpu", header="DPU"),
        Column("The service.", lambda row: row.value[1], name="service", header="SERVICE"),
        Column("Of the blocks on the bridge; empty: there are none.", lambda row: row.value[2], name="digest"),
        Column(of=lambda row: "other blocks" if row.value[2] else "no blocks", header="BRIDGE HAS"),
        Column(
            "Newest generation that the bridge had.",
            lambda row: row.value[0].status.applied,
            name="applied",
            header="GENERATION",
            cell=lambda applied: str(applied or "-"),
            is_number=True,
        ),
        Column("Since the report.", lambda row: _rounded(row.value[0].seen_s), name="seen_s"),
        Column(of=lambda row: row.value[0].seen_s, header="REPORTED", cell=duration, is_number=True),
    ),
)


# The fleet.


def _of_view(number: Callable[[Any], Any]) -> Measure:
    return lambda snapshot: None if snapshot.view is None else number(snapshot)


def _dpus(snapshot: FleetSnapshot) -> dict[str, float]:
    counts = snapshot.counts()
    return {state.name.lower(): counts[state] for state in DpuState}


def _targets(snapshot: FleetSnapshot) -> dict[str, float]:
    counts = Counter(row.state for row in snapshot.targets)
    return {state.name.lower(): counts[state] for state in TargetState}


FLEET = Table(
    lambda snapshot: [((), snapshot)],
    (
        computed(
            "",
            None,
            gauge(
                "xenoovs_fleet_active",
                "the controller",
                "1 while the controller of this host decides: its server leads.",
                lambda snapshot: snapshot.is_active,
            ),
            gauge(
                "xenoovs_fleet_generation",
                _STORE,
                "Newest generation of the fleet.",
                _of_view(lambda snapshot: snapshot.view.generation),
            ),
            gauge(
                "xenoovs_fleet_services", _STORE, "Services.", _of_view(lambda snapshot: len(snapshot.view.services))
            ),
            gauge(
                "xenoovs_fleet_overrides",
                "`xenoovs fleet drain`, `weight`",
                "Weights and drains set at run time.",
                _of_view(lambda snapshot: len(snapshot.view.overrides)),
            ),
            gauge(
                "xenoovs_fleet_config_refused",
                _STORE,
                "1 while the newest config is one that the controller refused; the previous one stays in use.",
                _of_view(lambda snapshot: snapshot.is_refused),
            ),
            gauge(
                "xenoovs_fleet_wave",
                _STORE,
                "Wave of the roll-out; 0: there is none.",
                _of_view(lambda snapshot: snapshot.view.wave),
            ),
            gauge(
                "xenoovs_fleet_stalled",
                _STORE,
                "1 while no controller writes what is due: the newest change, or a step of a roll-out.",
                _of_view(lambda snapshot: snapshot.is_stalled),
            ),
            gauge(
                "xenoovs_fleet_problems",
                "the controller",
                "Problems of the fleet and of the servers on this host; `xenoovs fleet status` has their texts.",
                lambda snapshot: len(snapshot.problems),
            ),
            gauge("xenoovs_fleet_dpus", _REPORTS, "DPUs by state.", _dpus, ("state",)),
            gauge("xenoovs_fleet_targets", _REPORTS, "Targets of health checks by state.", _targets, ("state",)),
        ),
    ),
)

FLEET_TABLES = (FLEET, DPUS, TARGETS, SERVERS, MEMBERS)
"""Of a `FleetSnapshot`."""
