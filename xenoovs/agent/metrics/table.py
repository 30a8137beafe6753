"""Every metric, in the order in which they are shown. docs/reference/metrics.md is made from this."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from xenoovs import __version__
from xenoovs.agent.conditions import unanswered
from xenoovs.agent.metrics.metric import Detail, Kind, Metric, Reader, Sample
from xenoovs.agent.snapshot import (
    BackendState,
    BackendView,
    BlockView,
    Counted,
    ServiceView,
    Snapshot,
    Traffic,
    nic_share,
)

# Samples of the metrics, read off a snapshot. Each function is the reader of the metrics that name it in `table`.


def whole(number: Callable[[Snapshot], float | None]) -> Reader:
    """One number of the agent as a whole; none is no sample."""

    def read(snapshot: Snapshot) -> Iterator[Sample]:
        value = number(snapshot)
        if value is not None:
            yield (), float(value)

    return read


def per_service(number: Callable[[ServiceView], float | None]) -> Reader:
    """One number of each service."""

    def read(snapshot: Snapshot) -> Iterator[Sample]:
        for service in snapshot.services:
            value = number(service)
            if value is not None:
                yield (service.name,), float(value)

    return read


def per_backend(number: Callable[[BackendView], float | None]) -> Reader:
    """One number of each backend of each service."""

    def read(snapshot: Snapshot) -> Iterator[Sample]:
        for service in snapshot.services:
            for backend in service.backends:
                value = number(backend)
                if value is not None:
                    yield (service.name, backend.name), float(value)

    return read


def per_path(
    hardware: Callable[[Traffic], int], software: Callable[[Traffic], int], *, unknown: Callable[[Counted], int]
) -> Reader:
    """Two numbers of each backend, what the NIC forwarded and what software did; or one, where nobody can tell."""

    def read(snapshot: Snapshot) -> Iterator[Sample]:
        for service in snapshot.services:
            for backend in service.backends:
                if backend.traffic is not None:
                    yield (service.name, backend.name, "hardware"), hardware(backend.traffic)
                    yield (service.name, backend.name, "software"), software(backend.traffic)
                if backend.counted is not None:
                    yield (service.name, backend.name, "unknown"), unknown(backend.counted)

    return read


def build_info(_: Snapshot) -> Iterator[Sample]:
    yield (__version__,), 1.0


def config_info(snapshot: Snapshot) -> Iterator[Sample]:
    yield (snapshot.config_digest, snapshot.config_path, snapshot.bridge), 1.0


def error_info(snapshot: Snapshot) -> Iterator[Sample]:
    if snapshot.last_error:
        yield (snapshot.last_error,), 1.0
    for problem in dict.fromkeys(snapshot.problems):
        yield (problem,), 1.0


def ports(snapshot: Snapshot) -> Iterator[Sample]:
    for port in snapshot.ports or ():
        yield (port.name,), float(port.ofport is not None and port.link_up is not False)


def states(snapshot: Snapshot) -> Iterator[Sample]:
    for service in snapshot.services:
        for backend in service.backends:
            yield (service.name, backend.name, backend.state.value), 1.0


def blocks_by_verdict(snapshot: Snapshot) -> Iterator[Sample]:
    if snapshot.verified_s is None:
        return
    for service in snapshot.services:
        for backend in service.backends:
            for verdict, count in backend.blocks.items():
                yield (service.name, backend.name, verdict.value), count


def offload_ratio(service: ServiceView) -> float | None:
    """Of the packets between the last two looks, 0..1, those that the NIC forwarded."""
    return nic_share(backend.rate for backend in service.backends if backend.rate is not None)


def block_verdicts(snapshot: Snapshot, blocks: Callable[[str], tuple[BlockView, ...]]) -> Iterator[Sample]:
    for service in snapshot.services:
        for block in blocks(service.name):
            if block.verdict is not None:
                labels = (service.name, block.backend, f"{block.value:#x}", f"{block.mask:#x}", block.verdict.value)
                yield labels, 1.0


# Metrics of the agent as a whole, and of its rounds.


_C, _G, _H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM

_WORK_BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)

ABOUT = (
    Metric("xenoovs_build_info", _G, "The version that runs; always 1.", "the package", ("version",), read=build_info),
    Metric(
        "xenoovs_config_info",
        _G,
        "The config in use by the start of its SHA-256; always 1.",
        "the config file",
        ("digest", "path", "bridge"),
        read=config_info,
    ),
    Metric(
        "xenoovs_config_bad",
        _G,
        "1 while the config file has a newer text that cannot be used; the last good one stays.",
        "the config file",
        read=whole(lambda s: bool(s.config_problem)),
    ),
    Metric(
        "xenoovs_config_reloads_total",
        _C,
        "Good new texts of the config.",
        "the config file",
        read=whole(lambda s: s.reloads),
    ),
    Metric(
        "xenoovs_start_time_seconds",
        _G,
        "When the agent began, since 1970.",
        "the agent",
        unit="s",
        read=whole(lambda s: s.started_s),
    ),
    Metric(
        "xenoovs_probe_delay_seconds",
        _G,
        "How late health checks are sent; 0 while they are on time.",
        "the agent",
        unit="s",
        read=whole(lambda s: s.probes_late_s),
    ),
    Metric(
        "xenoovs_paused", _G, "1 while the agent makes no rounds.", "`xenoovs pause`", read=whole(lambda s: s.is_paused)
    ),
    Metric(
        "xenoovs_overrides",
        _G,
        "Weights and drains set at run time.",
        "`xenoovs drain`, `weight`",
        read=whole(lambda s: len(s.overrides)),
    ),
    Metric(
        "xenoovs_confirm_deadline_timestamp_seconds",
        _G,
        "When the last change is taken back unless it is confirmed; not there while nothing waits.",
        "`xenoovs apply --confirm`",
        unit="s",
        read=whole(lambda s: s.confirm_by_s),
    ),
)

ROUNDS = (
    Metric("xenoovs_rounds_total", _C, "Rounds that changed flows.", "the rounds", read=whole(lambda s: s.rounds)),
    Metric(
        "xenoovs_flow_mods_total",
        _C,
        "Flows added, changed or removed.",
        "the rounds",
        read=whole(lambda s: s.flow_mods),
    ),
    Metric(
        "xenoovs_foreign_changes_total",
        _C,
        "Our flows that somebody else had changed, put right.",
        "the rounds",
        read=whole(lambda s: s.foreign),
    ),
    Metric(
        "xenoovs_last_round_timestamp_seconds",
        _G,
        "When the bridge was last found or made right, since 1970.",
        "the rounds",
        unit="s",
        read=whole(lambda s: s.last_round_s),
    ),
    Metric(
        "xenoovs_round_failed",
        _G,
        "1 while the bridge cannot be made right.",
        "the rounds",
        read=whole(lambda s: bool(s.last_error)),
    ),
    Metric(
        "xenoovs_problems",
        _G,
        "Parts of the bridge that cannot be made right now, while all else is.",
        "the rounds",
        read=whole(lambda s: len(s.problems)),
    ),
    Metric(
        "xenoovs_error_info",
        _G,
        "Why the bridge is not right, or a part of it; not there while it is.",
        "the rounds",
        ("reason",),
        read=error_info,
    ),
    Metric(
        "xenoovs_port_up",
        _G,
        "1 while a port of the config works and has its link.",
        "the database of Open vSwitch",
        ("port",),
        read=ports,
    ),
    Metric("xenoovs_flows", _G, "Flows of xenoovs on the bridge.", "the rounds", read=whole(lambda s: s.flows)),
    Metric(
        "xenoovs_plan_duration_seconds",
        _H,
        "Time to read the bridge and find what differs.",
        "the rounds",
        unit="s",
        buckets=_WORK_BUCKETS,
    ),
    Metric(
        "xenoovs_apply_duration_seconds",
        _H,
        "Time to change the bridge and read it back.",
        "rounds that changed something",
        unit="s",
        buckets=_WORK_BUCKETS,
    ),
)


# Metrics of services and backends, and of what is known of them by probes and by looks at the datapath.


_BACKEND = ("service", "backend")

_LATENCY_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

SERVICES = (
    Metric(
        "xenoovs_service_megaflows",
        _G,
        "Megaflows of the service.",
        "the last look at the datapath",
        ("service",),
        read=per_service(lambda v: v.megaflows_seen),
    ),
    Metric(
        "xenoovs_service_megaflows_predicted",
        _G,
        "Megaflows once all blocks have had traffic, from one client-side MAC.",
        "the flows",
        ("service",),
        read=per_service(lambda v: v.megaflows_predicted),
    ),
    Metric(
        "xenoovs_service_offload_ratio",
        _G,
        "Of the packets between the last two looks, those that the NIC forwarded, 0..1; not there without packets.",
        "the last two looks at the datapath",
        ("service",),
        read=per_service(offload_ratio),
    ),
    Metric(
        "xenoovs_service_clients_moved_total",
        _C,
        "Share of clients that got another backend, summed over all changes: 1 is every client once.",
        "the rounds",
        ("service",),
        read=per_service(lambda v: v.clients_moved),
    ),
    Metric(
        "xenoovs_service_unanswered_ratio",
        _G,
        "Share of its clients, 0..1, that lead to no backend, or to one that is down.",
        "the flows, probes",
        ("service",),
        read=per_service(unanswered),
    ),
    Metric(
        "xenoovs_service_draining_blocks",
        _G,
        "Blocks whose open connections a drain keeps where they are.",
        "the flows",
        ("service",),
        read=per_service(lambda v: v.draining),
    ),
)

BACKENDS = (
    Metric(
        "xenoovs_backend_state",
        _G,
        "1 for the state that the backend is in; the other states are not there.",
        "probes, `xenoovs drain`",
        (*_BACKEND, "state"),
        read=states,
    ),
    Metric(
        "xenoovs_backend_up",
        _G,
        "0 when its probes say that it is down, else 1.",
        "probes",
        _BACKEND,
        read=per_backend(lambda v: v.state is not BackendState.DOWN),
    ),
    Metric(
        "xenoovs_backend_out",
        _G,
        "1 when it gets no clients because of its health.",
        "probes, `max_down`",
        _BACKEND,
        read=per_backend(lambda v: v.is_out),
    ),
    Metric(
        "xenoovs_backend_transitions_total",
        _C,
        "Times that it came up or went down.",
        "probes",
        _BACKEND,
        read=per_backend(lambda v: v.transitions),
    ),
    Metric(
        "xenoovs_backend_probe_latency_seconds",
        _G,
        "How long its last probe took.",
        "probes",
        _BACKEND,
        unit="s",
        read=per_backend(lambda v: v.probe_latency_s),
    ),
    Metric(
        "xenoovs_backend_weight",
        _G,
        "Weight in the config.",
        "the config file",
        _BACKEND,
        read=per_backend(lambda v: v.weight),
    ),
    Metric(
        "xenoovs_backend_weight_in_use",
        _G,
        "Weight after overrides and slow starts.",
        "config, overrides, ramps",
        _BACKEND,
        read=per_backend(lambda v: v.weight_in_use),
    ),
    Metric(
        "xenoovs_backend_share_wanted_ratio",
        _G,
        "Share of clients by weight in use, 0..1.",
        "the weights",
        _BACKEND,
        read=per_backend(lambda v: v.share_wanted),
    ),
    Metric(
        "xenoovs_backend_share_installed_ratio",
        _G,
        "Share of the clients on the bridge, 0..1.",
        "the flows",
        _BACKEND,
        read=per_backend(lambda v: v.share_installed),
    ),
    Metric(
        "xenoovs_backend_flows",
        _G,
        "Blocks that lead to it.",
        "the flows",
        _BACKEND,
        read=per_backend(lambda v: v.flows),
    ),
    Metric(
        "xenoovs_backend_ramp_ratio",
        _G,
        "How far its slow start has come, 0..1; not there without one.",
        "ramps",
        _BACKEND,
        read=per_backend(lambda v: v.ramp),
    ),
    Metric(
        "xenoovs_backend_blocks",
        _G,
        "Its blocks by the verdict on their megaflows; verdicts without any are not there.",
        "the last look at the datapath",
        (*_BACKEND, "verdict"),
        read=blocks_by_verdict,
    ),
    Metric(
        "xenoovs_backend_packets_total",
        _C,
        "Packets sent to it; `path` is hardware or software, or unknown where the switch is on another host.",
        "looks at the datapath; there the counters of the flows",
        (*_BACKEND, "path"),
        read=per_path(lambda t: t.hw_packets, lambda t: t.sw_packets, unknown=lambda c: c.packets),
    ),
    Metric(
        "xenoovs_backend_bytes_total",
        _C,
        "Bytes sent to it; traffic control in software leaves 14 bytes of each frame out.",
        "looks at the datapath; there the counters of the flows",
        (*_BACKEND, "path"),
        unit="B",
        read=per_path(lambda t: t.hw_bytes, lambda t: t.sw_bytes, unknown=lambda c: c.bytes),
    ),
)

LOOKS = (
    Metric(
        "xenoovs_probe_duration_seconds",
        _H,
        "How long probes take; `result` is ok or failed.",
        "every probe",
        ("probe", "result"),
        unit="s",
        buckets=_LATENCY_BUCKETS,
    ),
    Metric(
        "xenoovs_last_look_timestamp_seconds",
        _G,
        "When the datapath, or the counters of flows instead, was last looked at, since 1970.",
        "looks at the datapath",
        unit="s",
        read=whole(lambda s: s.verified_s),
    ),
    Metric(
        "xenoovs_block_verdict",
        _G,
        "1 for each block; its clients have `value` under `mask` in their address.",
        "the last look at the datapath",
        (*_BACKEND, "value", "mask", "verdict"),
        read_blocks=block_verdicts,
        detail=Detail.BLOCKS,
    ),
)


METRICS = (*ABOUT, *ROUNDS, *SERVICES, *BACKENDS, *LOOKS)
