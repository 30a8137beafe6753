"""Metrics of services and backends, and of what is known of them by probes and by looks at the datapath."""

from __future__ import annotations

from xenoovs.agent.metrics.metric import Detail, Kind, Metric
from xenoovs.agent.metrics.readers import (
    block_verdicts,
    blocks_by_verdict,
    offload_ratio,
    per_backend,
    per_path,
    per_service,
    states,
    whole,
)
from xenoovs.agent.snapshot import BackendState
from xenoovs.agent.standing import unanswered

_C, _G, _H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM
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
