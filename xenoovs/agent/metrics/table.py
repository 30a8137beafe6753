"""Every metric, in the order in which they are shown. docs/reference/metrics.md is made from this."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from xenoovs import __version__
from xenoovs.agent.conditions import unanswered
from xenoovs.agent.metrics.metric import Detail, Kind, Metric, Sample
from xenoovs.agent.rows import hw_share
from xenoovs.agent.snapshot import (
    MOVE_REASONS,
    BackendState,
    BackendView,
    BlockView,
    Counted,
    PathView,
    RemoteView,
    ServiceView,
    Snapshot,
    Traffic,
)

_C, _G, _H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM
_SERVICE, _BACKEND, _PATH = ("service",), ("service", "backend"), ("remote", "path")
_WORK_BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_LATENCY_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


# Metrics with one number each. None is no sample.


def _of_agent(
    name: str, kind: Kind, text: str, origin: str, number: Callable[[Snapshot], float | None], *, unit: str = ""
) -> Metric:
    def read(snapshot: Snapshot) -> Iterator[Sample]:
        value = number(snapshot)
        if value is not None:
            yield (), float(value)

    return Metric(name, kind, text, origin, unit=unit, read=read)


def _of_service(name: str, kind: Kind, text: str, origin: str, number: Callable[[ServiceView], float | None]) -> Metric:
    def read(snapshot: Snapshot) -> Iterator[Sample]:
        for service in snapshot.services:
            value = number(service)
            if value is not None:
                yield (service.name,), float(value)

    return Metric(name, kind, text, origin, _SERVICE, read=read)


def _of_backend(
    name: str, kind: Kind, text: str, origin: str, number: Callable[[BackendView], float | None], *, unit: str = ""
) -> Metric:
    def read(snapshot: Snapshot) -> Iterator[Sample]:
        for service in snapshot.services:
            for backend in service.backends:
                value = number(backend)
                if value is not None:
                    yield (service.name, backend.name), float(value)

    return Metric(name, kind, text, origin, _BACKEND, unit, read)


# Metrics with further labels.


def _by_path(
    name: str,
    text: str,
    numbers: Callable[[Traffic], tuple[int, int]],
    unknown: Callable[[Counted], int],
    *,
    unit: str = "",
) -> Metric:
    """Return a counter in hardware and in software; or of an unknown path, where megaflows cannot be read."""

    def read(snapshot: Snapshot) -> Iterator[Sample]:
        for service in snapshot.services:
            for backend in service.backends:
                if backend.traffic is not None:
                    for path, value in zip(("hardware", "software"), numbers(backend.traffic), strict=True):
                        yield (service.name, backend.name, path), value
                if backend.counted is not None:
                    yield (service.name, backend.name, "unknown"), unknown(backend.counted)

    return Metric(name, _C, text, "offload samples, else flow counters", (*_BACKEND, "path"), unit, read)


def _of_path(
    name: str, kind: Kind, text: str, origin: str, number: Callable[[PathView], float | None], *, unit: str = ""
) -> Metric:
    def read(snapshot: Snapshot) -> Iterator[Sample]:
        for remote in snapshot.remotes:
            for path in remote.paths:
                value = number(path)
                if value is not None:
                    yield (remote.name, path.name), float(value)

    return Metric(name, kind, text, origin, _PATH, unit, read)


def _of_remote(
    name: str, kind: Kind, text: str, origin: str, number: Callable[[RemoteView], float | None], *, unit: str = ""
) -> Metric:
    def read(snapshot: Snapshot) -> Iterator[Sample]:
        for remote in snapshot.remotes:
            value = number(remote)
            if value is not None:
                yield (remote.name,), float(value)

    return Metric(name, kind, text, origin, ("remote",), unit, read)


def _excesses(snapshot: Snapshot) -> Iterator[Sample]:
    for remote in snapshot.remotes:
        for path in remote.paths:
            for quantile, value in (("0.5", path.excess_s), ("1", path.worst_excess_s)):
                if value is not None:
                    yield (remote.name, path.name, quantile), value


def _path_states(snapshot: Snapshot) -> Iterator[Sample]:
    for remote in snapshot.remotes:
        for path in remote.paths:
            yield (remote.name, path.name, path.state.value), 1.0


def _moves(snapshot: Snapshot) -> Iterator[Sample]:
    for remote in snapshot.remotes:
        for reason in MOVE_REASONS:
            yield (remote.name, reason), float(remote.moves.get(reason, 0))


def _build_info(_: Snapshot) -> Iterator[Sample]:
    yield (__version__,), 1.0


def _config_info(snapshot: Snapshot) -> Iterator[Sample]:
    yield (snapshot.config_digest, snapshot.config_path, snapshot.bridge), 1.0


def _error_info(snapshot: Snapshot) -> Iterator[Sample]:
    for reason in dict.fromkeys((snapshot.last_error, *snapshot.problems)):
        if reason:
            yield (reason,), 1.0


def _ports(snapshot: Snapshot) -> Iterator[Sample]:
    for port in snapshot.ports or ():
        yield (port.name,), float(port.ofport is not None and port.link_up is not False)


def _vips(snapshot: Snapshot) -> Iterator[Sample]:
    for view in snapshot.announcements:
        yield (view.vip,), float(view.is_announced)


def _vip_peers(snapshot: Snapshot) -> Iterator[Sample]:
    for view in snapshot.announcements:
        if view.peers is not None:
            yield (view.vip,), float(view.peers)


def _states(snapshot: Snapshot) -> Iterator[Sample]:
    for service in snapshot.services:
        for backend in service.backends:
            yield (service.name, backend.name, backend.state.value), 1.0


def _blocks_by_verdict(snapshot: Snapshot) -> Iterator[Sample]:
    if snapshot.sampled_s is None:
        return
    for service in snapshot.services:
        for backend in service.backends:
            for verdict, count in backend.blocks.items():
                yield (service.name, backend.name, verdict.value), count


def _offload_ratio(service: ServiceView) -> float | None:
    return hw_share(backend.rate for backend in service.backends if backend.rate is not None)


def _block_verdicts(snapshot: Snapshot, blocks: Callable[[str], tuple[BlockView, ...]]) -> Iterator[Sample]:
    for service in snapshot.services:
        for block in blocks(service.name):
            if block.verdict is not None:
                labels = (service.name, block.backend, f"{block.value:#x}", f"{block.mask:#x}", block.verdict.value)
                yield labels, 1.0


METRICS = (
    Metric("xenoovs_build_info", _G, "Version of the agent; always 1.", "the package", ("version",), read=_build_info),
    Metric(
        "xenoovs_config_info",
        _G,
        "Config in use, with the start of its SHA-256; always 1.",
        "the config file",
        ("digest", "path", "bridge"),
        read=_config_info,
    ),
    _of_agent(
        "xenoovs_config_bad",
        _G,
        "1 while the config file has a newer text that is rejected; the previous config stays in use.",
        "the config file",
        lambda s: bool(s.config_problem),
    ),
    _of_agent(
        "xenoovs_config_reloads_total",
        _C,
        "Configs that came into use since the start.",
        "the config file",
        lambda s: s.reloads,
    ),
    _of_agent(
        "xenoovs_start_time_seconds",
        _G,
        "When the agent started, in seconds since 1970.",
        "the agent",
        lambda s: s.started_s,
        unit="s",
    ),
    _of_agent("xenoovs_paused", _G, "1 while reconciliation is paused.", "`xenoovs pause`", lambda s: s.is_paused),
    _of_agent(
        "xenoovs_overrides",
        _G,
        "Weights and drains set at run time.",
        "`xenoovs drain`, `weight`",
        lambda s: len(s.overrides),
    ),
    _of_agent(
        "xenoovs_confirm_deadline_timestamp_seconds",
        _G,
        "When the last change is rolled back unless it is confirmed; absent while no change waits.",
        "`xenoovs agent --confirm`",
        lambda s: s.confirm_by_s,
        unit="s",
    ),
    _of_agent("xenoovs_rounds_total", _C, "Reconciliations that changed flows.", "reconciliation", lambda s: s.rounds),
    _of_agent(
        "xenoovs_flow_mods_total", _C, "Flows added, changed and deleted.", "reconciliation", lambda s: s.flow_mods
    ),
    _of_agent(
        "xenoovs_foreign_changes_total",
        _C,
        "External changes of flows of xenoovs that were reverted.",
        "reconciliation",
        lambda s: s.reverted,
    ),
    _of_agent(
        "xenoovs_last_round_timestamp_seconds",
        _G,
        "When the bridge was last found as configured, or changed to be so, in seconds since 1970.",
        "reconciliation",
        lambda s: s.last_round_s,
        unit="s",
    ),
    _of_agent(
        "xenoovs_round_failed", _G, "1 while reconciliation fails.", "reconciliation", lambda s: bool(s.last_error)
    ),
    _of_agent(
        "xenoovs_problems",
        _G,
        "Parts of the config that cannot be installed now, while all others are.",
        "reconciliation",
        lambda s: len(s.problems),
    ),
    Metric(
        "xenoovs_error_info",
        _G,
        "Why reconciliation fails, or a part of the config is not installed; absent without errors.",
        "reconciliation",
        ("reason",),
        read=_error_info,
    ),
    Metric(
        "xenoovs_port_up",
        _G,
        "1 while a port of the config works and has a link.",
        "the database of Open vSwitch",
        ("port",),
        read=_ports,
    ),
    Metric(
        "xenoovs_vip_announced",
        _G,
        "1 while the host has a route for a VIP of `announce`, from which the BGP speaker takes it.",
        "the routing table",
        ("vip",),
        read=_vips,
    ),
    Metric(
        "xenoovs_vip_bgp_neighbors",
        _G,
        "BGP neighbors that the VIP is advertised to; absent while unknown.",
        "vtysh",
        ("vip",),
        read=_vip_peers,
    ),
    _of_agent("xenoovs_flows", _G, "Flows of xenoovs on the bridge.", "reconciliation", lambda s: s.flows),
    Metric(
        "xenoovs_plan_duration_seconds",
        _H,
        "Time to read the bridge and to compute the difference.",
        "reconciliation",
        unit="s",
        buckets=_WORK_BUCKETS,
    ),
    Metric(
        "xenoovs_apply_duration_seconds",
        _H,
        "Time to change the bridge and to read it back.",
        "reconciliations that changed flows",
        unit="s",
        buckets=_WORK_BUCKETS,
    ),
    _of_service(
        "xenoovs_service_megaflows",
        _G,
        "Megaflows of the service.",
        "the last offload sample",
        lambda v: v.megaflows_seen,
    ),
    _of_service(
        "xenoovs_service_megaflows_predicted",
        _G,
        "Megaflows once every block has had traffic, from one client-side MAC.",
        "the flows",
        lambda v: v.megaflows_predicted,
    ),
    _of_service(
        "xenoovs_service_offload_ratio",
        _G,
        "Fraction of packets forwarded in hardware since the previous sample (0-1); absent if there were none.",
        "the last two offload samples",
        _offload_ratio,
    ),
    _of_service(
        "xenoovs_service_clients_moved_total",
        _C,
        "Share of clients that changed their backend, summed over all changes: 1 is every client once.",
        "reconciliation",
        lambda v: v.clients_moved,
    ),
    _of_service(
        "xenoovs_service_unanswered_ratio",
        _G,
        "Share of clients (0-1) that have no backend, or one that is down.",
        "the flows, health checks",
        unanswered,
    ),
    _of_service(
        "xenoovs_service_draining_blocks",
        _G,
        "Blocks whose open connections stay with their old backends for now.",
        "the flows",
        lambda v: v.draining,
    ),
    Metric(
        "xenoovs_backend_state",
        _G,
        "1 for the state of the backend; the other states are absent.",
        "health checks, `xenoovs drain`",
        (*_BACKEND, "state"),
        read=_states,
    ),
    _of_backend(
        "xenoovs_backend_up",
        _G,
        "0 while its health check says that it is down, else 1.",
        "health checks",
        lambda v: v.state is not BackendState.DOWN,
    ),
    _of_backend(
        "xenoovs_backend_ejected",
        _G,
        "1 while it has no clients because of its health.",
        "health checks, `max_down`",
        lambda v: v.is_ejected,
    ),
    _of_backend(
        "xenoovs_backend_backup",
        _G,
        "1 if it is a backup, which gets clients only while no other backend of the service serves.",
        "the config file",
        lambda v: v.is_backup,
    ),
    _of_backend(
        "xenoovs_backend_transitions_total",
        _C,
        "How often it came up or went down.",
        "health checks",
        lambda v: v.transitions,
    ),
    _of_backend(
        "xenoovs_backend_changes_total",
        _C,
        "How often its state, its weight or the link of its port has changed.",
        "health checks, operators, the config, ports",
        lambda v: v.changes,
    ),
    _of_backend(
        "xenoovs_backend_last_change_timestamp_seconds",
        _G,
        "When it last changed so, in seconds since 1970; absent before the first change.",
        "health checks, operators, the config, ports",
        lambda v: v.last_change_s,
        unit="s",
    ),
    _of_backend(
        "xenoovs_backend_agent_up",
        _G,
        "1 while the agent of its server replies, else 0; absent without `agent_check`.",
        "`agent_check`",
        lambda v: None if v.agent is None else not v.agent.problem,
    ),
    _of_backend(
        "xenoovs_backend_agent_weight_ratio",
        _G,
        "Part of its weight that the agent of its server advertises, as in effect; absent without `agent_check`.",
        "`agent_check`",
        lambda v: None if v.agent is None else v.agent.weight,
    ),
    _of_backend(
        "xenoovs_backend_probe_latency_seconds",
        _G,
        "Duration of its last probe.",
        "health checks",
        lambda v: v.probe_latency_s,
        unit="s",
    ),
    _of_backend("xenoovs_backend_weight", _G, "Weight in the config.", "the config file", lambda v: v.weight),
    _of_backend(
        "xenoovs_backend_weight_in_use",
        _G,
        "Weight after overrides and slow starts.",
        "config, overrides, ramps",
        lambda v: v.weight_in_use,
    ),
    _of_backend(
        "xenoovs_backend_target_share_ratio",
        _G,
        "Share of the clients by weight in use (0-1).",
        "the weights",
        lambda v: v.target_share,
    ),
    _of_backend(
        "xenoovs_backend_share_ratio", _G, "Share of the clients on the bridge (0-1).", "the flows", lambda v: v.share
    ),
    _of_backend("xenoovs_backend_flows", _G, "Blocks of the backend.", "the flows", lambda v: v.flows),
    _of_backend(
        "xenoovs_backend_ramp_ratio",
        _G,
        "Progress of its slow start (0-1); absent without one.",
        "ramps",
        lambda v: v.ramp,
    ),
    Metric(
        "xenoovs_backend_blocks",
        _G,
        "Its blocks by the verdict on their megaflows; verdicts without blocks are absent.",
        "the last offload sample",
        (*_BACKEND, "verdict"),
        read=_blocks_by_verdict,
    ),
    _by_path(
        "xenoovs_backend_packets_total",
        "Packets sent to it; `path` is hardware or software, or unknown where the switch is on another host.",
        lambda t: (t.hw_packets, t.sw_packets),
        lambda c: c.packets,
    ),
    _by_path(
        "xenoovs_backend_bytes_total",
        "Bytes sent to it; traffic control in software omits 14 bytes of each frame.",
        lambda t: (t.hw_bytes, t.sw_bytes),
        lambda c: c.bytes,
        unit="B",
    ),
    Metric(
        "xenoovs_probe_duration_seconds",
        _H,
        "Duration of probes; `result` is ok or failed.",
        "health checks",
        ("probe", "result"),
        unit="s",
        buckets=_LATENCY_BUCKETS,
    ),
    _of_agent(
        "xenoovs_probe_delay_seconds",
        _G,
        "How late health checks are sent; 0 while they are on time.",
        "the agent",
        lambda s: s.probes_late_s,
        unit="s",
    ),
    _of_agent(
        "xenoovs_offload_sample_timestamp_seconds",
        _G,
        "When megaflows, or flow counters in their place, were last read, in seconds since 1970.",
        "offload samples",
        lambda s: s.sampled_s,
        unit="s",
    ),
    Metric(
        "xenoovs_path_state",
        _G,
        "1 for the state of the path to a remote (good, bad, failed, unknown); the other states are absent.",
        "probes of paths",
        (*_PATH, "state"),
        read=_path_states,
    ),
    Metric(
        "xenoovs_path_excess_seconds",
        _G,
        "How much later than the fastest path it answers, in the last nine rounds: median (0.5) and largest (1).",
        "probes of paths",
        (*_PATH, "quantile"),
        unit="s",
        read=_excesses,
    ),
    _of_path(
        "xenoovs_path_answer_seconds",
        _G,
        "Its last answer time, there and back; only the differences between paths say something of a path.",
        "probes of paths",
        lambda v: v.answer_s,
        unit="s",
    ),
    _of_path(
        "xenoovs_path_lost_ratio",
        _G,
        "Fraction of its probes (0-1) without an answer in time since the agent started.",
        "probes of paths",
        lambda v: v.lost,
    ),
    _of_path("xenoovs_path_blocks", _G, "Blocks of the host's packets on it.", "the flows", lambda v: v.blocks),
    _of_path(
        "xenoovs_path_bytes_total",
        _C,
        "Bytes of the host sent on it; absent before the first offload sample.",
        "offload samples, else flow counters",
        lambda v: v.bytes,
        unit="B",
    ),
    Metric(
        "xenoovs_path_moves_total",
        _C,
        "Blocks that moved between the paths to a remote, by reason: failed, congested, restored, operator.",
        "decisions about paths",
        ("remote", "reason"),
        read=_moves,
    ),
    _of_remote(
        "xenoovs_remote_unknown",
        _G,
        "1 while no path to the remote answers: its blocks stay.",
        "probes of paths",
        lambda v: v.is_unknown or bool(v.problem),
    ),
    _of_remote(
        "xenoovs_remote_forged_answers_total",
        _C,
        "Answers that do not carry what was sent, or come from another address.",
        "probes of paths",
        lambda v: v.forged,
    ),
    _of_remote(
        "xenoovs_remote_returned_packets_total",
        _C,
        "Packets of the host that came back, because they have the TOS of probes.",
        "probes of paths",
        lambda v: v.returned,
    ),
    _of_remote(
        "xenoovs_probe_rounds_total",
        _C,
        "Rounds of probes to the remote, one probe on each path.",
        "probes of paths",
        lambda v: v.rounds,
    ),
    _of_remote(
        "xenoovs_probe_interval_seconds",
        _G,
        "Time between two rounds of probes; longer than configured where the budget of probes is used up.",
        "probes of paths",
        lambda v: v.interval_s,
        unit="s",
    ),
    _of_agent(
        "xenoovs_path_moves_paused",
        _G,
        "1 while moves of blocks between paths are paused.",
        "`xenoovs paths pause`",
        lambda s: s.are_moves_paused,
    ),
    Metric(
        "xenoovs_block_verdict",
        _G,
        "1 for each block: the clients whose address under `mask` is `value`.",
        "the last offload sample",
        (*_BACKEND, "value", "mask", "verdict"),
        read_blocks=_block_verdicts,
        detail=Detail.BLOCKS,
    ),
)
