"""Metrics of the agent as a whole, and of its rounds."""

from __future__ import annotations

from xenoovs.agent.metrics.metric import Kind, Metric
from xenoovs.agent.metrics.readers import build_info, config_info, error_info, ports, whole

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
