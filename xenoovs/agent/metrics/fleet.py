"""The metrics of a fleet. docs/reference/metrics.md is made from this too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from aiohttp import web

from xenoovs.agent.control.limits import run_beside
from xenoovs.agent.metrics.exposition import CONTENT_TYPE, lines_of
from xenoovs.agent.metrics.metric import Kind, Metric, Sample
from xenoovs.fleet.dpus import DpuRow, DpuState
from xenoovs.fleet.schedule import waiting_intent
from xenoovs.fleet.snapshot import FleetSnapshot
from xenoovs.fleet.targets import TargetState
from xenoovs.store.cluster import ClusterMember, ClusterStatus, ServerFacts

FleetReader = Callable[[FleetSnapshot], Iterable[Sample]]
_C, _G = Kind.COUNTER, Kind.GAUGE
_STORE, _REPORTS, _SERVERS = "the store", "reports of agents", "`cluster/status` of ovsdb-server"


def _of_fleet(
    name: str, text: str, origin: str, number: Callable[[FleetSnapshot], float | None]
) -> tuple[Metric, FleetReader]:
    def read(snapshot: FleetSnapshot) -> Iterator[Sample]:
        value = number(snapshot)
        if value is not None:
            yield (), float(value)

    return Metric(name, _G, text, origin), read


def _of_dpu(
    name: str, text: str, number: Callable[[DpuRow], float | None], *, unit: str = ""
) -> tuple[Metric, FleetReader]:
    def read(snapshot: FleetSnapshot) -> Iterator[Sample]:
        for row in snapshot.rows:
            value = number(row)
            if value is not None:
                yield (row.name,), float(value)

    return Metric(name, _G, text, _REPORTS, ("dpu",), unit), read


def _of_server(
    name: str, kind: Kind, text: str, origin: str, number: Callable[[ServerFacts], float | None], *, unit: str = ""
) -> tuple[Metric, FleetReader]:
    def read(snapshot: FleetSnapshot) -> Iterator[Sample]:
        for server in snapshot.servers:
            value = number(server)
            if value is not None:
                yield (server.database.value,), float(value)

    return Metric(name, kind, text, origin, ("database",), unit), read


def _of_member(
    name: str, text: str, number: Callable[[ClusterStatus, ClusterMember], float | None], *, unit: str = ""
) -> tuple[Metric, FleetReader]:
    def read(snapshot: FleetSnapshot) -> Iterator[Sample]:
        for server in snapshot.servers:
            for member in () if server.cluster is None else server.cluster.members:
                value = None if server.cluster is None or member.is_self else number(server.cluster, member)
                if value is not None:
                    yield (server.database.value, member.address), float(value)

    return Metric(name, _G, text, _SERVERS, ("database", "member"), unit), read


def _dpus(snapshot: FleetSnapshot) -> Iterator[Sample]:
    counts = snapshot.counts()
    for state in DpuState:
        yield (state.name.lower(),), float(counts[state])


def _dpu_states(snapshot: FleetSnapshot) -> Iterator[Sample]:
    for row in snapshot.rows:
        yield (row.name, row.state.name.lower()), 1.0


def _dpu_unready(snapshot: FleetSnapshot) -> Iterator[Sample]:
    for row in snapshot.rows:
        yield (row.name, "operator"), float(row.is_out)
        yield (row.name, "unfit"), float(row.is_unfit)


def _dpu_groups(snapshot: FleetSnapshot) -> Iterator[Sample]:
    for row in snapshot.rows:
        for group in sorted(row.groups):
            yield (row.name, group), 1.0


def _targets(snapshot: FleetSnapshot) -> Iterator[Sample]:
    counts = Counter(row.state for row in snapshot.targets)
    for state in TargetState:
        yield (state.name.lower(),), float(counts[state])


def _target_votes(snapshot: FleetSnapshot) -> Iterator[Sample]:
    for row in snapshot.targets:
        if row.state is not TargetState.UP:
            for vote, names in (("down", row.votes.down), ("up", row.votes.up), ("silent", row.votes.silent)):
                yield (row.target, row.state.name.lower(), vote), float(len(names))


def _waits_until_s(snapshot: FleetSnapshot) -> float | None:
    intent = None if snapshot.view is None else waiting_intent(snapshot.view)
    return None if intent is None else intent.at_ms / 1000


def _roles(snapshot: FleetSnapshot) -> Iterator[Sample]:
    for server in snapshot.servers:
        yield (server.database.value, server.role.value), 1.0


FLEET_METRICS: tuple[tuple[Metric, FleetReader], ...] = (
    _of_fleet(
        "xenoovs_fleet_active",
        "1 while the controller of this host decides: its server leads.",
        "the controller",
        lambda s: s.is_active,
    ),
    _of_fleet(
        "xenoovs_fleet_generation",
        "Newest generation of the fleet.",
        _STORE,
        lambda s: None if s.view is None else s.view.generation,
    ),
    _of_fleet(
        "xenoovs_fleet_services", "Services.", _STORE, lambda s: None if s.view is None else len(s.view.services)
    ),
    _of_fleet(
        "xenoovs_fleet_overrides",
        "Weights and drains set at run time.",
        "`xenoovs fleet drain`, `weight`",
        lambda s: None if s.view is None else len(s.view.overrides),
    ),
    _of_fleet(
        "xenoovs_fleet_config_refused",
        "1 while the newest config is one that the controller refused; the previous one stays in use.",
        _STORE,
        lambda s: None if s.view is None else s.is_refused,
    ),
    _of_fleet(
        "xenoovs_fleet_wave",
        "Wave of the roll-out; 0: there is none.",
        _STORE,
        lambda s: None if s.view is None else s.view.wave,
    ),
    _of_fleet(
        "xenoovs_fleet_stalled",
        "1 while no controller writes what is due: the newest change, a step of a roll-out, or a config that waited.",
        _STORE,
        lambda s: None if s.view is None else s.is_stalled,
    ),
    _of_fleet(
        "xenoovs_fleet_config_waits_until_seconds",
        "When the waiting config takes effect, in seconds since 1970; absent if none waits.",
        "`xenoovs fleet apply --at`",
        _waits_until_s,
    ),
    _of_fleet(
        "xenoovs_fleet_problems",
        "Problems of the fleet and of the servers on this host; `xenoovs fleet status` has their texts.",
        "the controller",
        lambda s: len(s.problems),
    ),
    (Metric("xenoovs_fleet_dpus", _G, "DPUs by state.", _REPORTS, ("state",)), _dpus),
    (
        Metric("xenoovs_fleet_dpu_state", _G, "State of a DPU; always 1.", _REPORTS, ("dpu", "state")),
        _dpu_states,
    ),
    (Metric("xenoovs_fleet_targets", _G, "Targets of health checks by state.", _REPORTS, ("state",)), _targets),
    (
        Metric(
            "xenoovs_fleet_target_votes",
            _G,
            "Witnesses by vote, of a target that is down or has no quorum; others are left out.",
            _REPORTS,
            ("target", "state", "vote"),
        ),
        _target_votes,
    ),
    (
        Metric(
            "xenoovs_fleet_dpu_unready",
            _G,
            "1 while routers should send no clients to a DPU for this reason: `operator`, or `unfit`.",
            _REPORTS,
            ("dpu", "reason"),
        ),
        _dpu_unready,
    ),
    _of_dpu(
        "xenoovs_fleet_dpu_generation",
        "Newest generation that the bridge of a DPU has had.",
        lambda row: row.status.applied,
    ),
    _of_dpu(
        "xenoovs_fleet_dpu_drift_services",
        "Services whose flows differ from the store.",
        lambda row: len(row.status.drift),
    ),
    _of_dpu(
        "xenoovs_fleet_dpu_offload_ratio",
        "Share of a DPU's megaflows in hardware (0-1), as of its last report; absent without traffic.",
        lambda row: None if row.hw_share is None else float(row.hw_share),
    ),
    _of_dpu(
        "xenoovs_fleet_dpu_clock_error_seconds",
        "Estimated error of a DPU's clock, as of its last report; absent if it is not known.",
        lambda row: None if row.status.clock_us < 0 else row.status.clock_us / 1e6,
        unit="s",
    ),
    _of_dpu(
        "xenoovs_fleet_dpu_late",
        "1 if a DPU was not ready when the DPUs switched to its generation; it followed later.",
        lambda row: row.is_late,
    ),
    (
        Metric(
            "xenoovs_fleet_dpu_group", _G, "A group of a DPU; always 1.", "`xenoovs fleet set-dpu`", ("dpu", "group")
        ),
        _dpu_groups,
    ),
    _of_dpu("xenoovs_fleet_dpu_seen_seconds", "Time since the last report.", lambda row: row.seen_s, unit="s"),
    (
        Metric(
            "xenoovs_store_role",
            _G,
            "Role of the server of a database on this host; always 1.",
            _SERVERS,
            ("database", "role"),
        ),
        _roles,
    ),
    _of_server(
        "xenoovs_store_connected",
        _G,
        "1 while the server stands alone or is in contact with most of its cluster.",
        "`_Server` of ovsdb-server",
        lambda server: server.is_connected,
    ),
    _of_server(
        "xenoovs_store_elections_total",
        _C,
        "Elections since the cluster was made: its term.",
        _SERVERS,
        lambda server: None if server.cluster is None else server.cluster.term,
    ),
    _of_server(
        "xenoovs_store_log_index",
        _G,
        "Newest log entry of the server.",
        _SERVERS,
        lambda server: None if server.cluster is None else server.cluster.index,
    ),
    _of_server(
        "xenoovs_store_size_bytes",
        _G,
        "Size of the database with its log.",
        "stat",
        lambda server: server.size_bytes,
        unit="B",
    ),
    _of_server(
        "xenoovs_store_free_bytes",
        _G,
        "Room on the disk of the database.",
        "statvfs",
        lambda server: server.free_bytes,
        unit="B",
    ),
    _of_server(
        "xenoovs_store_gap",
        _G,
        "1 while the file of a server in a cluster has a gap, as after a full disk; read once a minute.",
        "`ovsdb-tool check-cluster`",
        lambda server: None if server.cluster is None else bool(server.gap),
    ),
    _of_member(
        "xenoovs_store_member_lag",
        "Log entries that another server lacks; only the leader knows.",
        lambda cluster, member: cluster.lag(member),
    ),
    _of_member(
        "xenoovs_store_member_silent",
        "1 while the leader has not heard another server for three election timers.",
        lambda cluster, member: None if cluster.lag(member) is None else member in cluster.silent(),
    ),
)


def fleet_exposition(snapshot: FleetSnapshot) -> bytes:
    """Return all metrics in version 0.0.4 of the text format."""
    return "".join(line for metric, read in FLEET_METRICS for line in lines_of(metric, read(snapshot))).encode()


def mount_fleet_metrics(snapshot: Callable[[], FleetSnapshot]) -> Callable[[web.Application], None]:
    """Return what adds `/metrics`; `snapshot` is called in a thread."""

    async def answer(request: web.Request) -> web.StreamResponse:
        text = await run_beside(request.app, lambda: fleet_exposition(snapshot()))
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"})

    def mount(app: web.Application) -> None:
        app.router.add_get("/metrics", answer)

    return mount
