"""The metrics of a fleet, from a snapshot."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from tests.unit.store.test_cluster import LEADER, facts
from xenoovs.fleet.dpus import DpuRow, DpuState
from xenoovs.fleet.snapshot import FleetSnapshot
from xenoovs.fleet.tables import FLEET_TABLES
from xenoovs.fleet.targets import TargetRow, TargetState
from xenoovs.fleet.votes import Votes
from xenoovs.show.metrics import exposition
from xenoovs.store.view import DpuStatus, FleetView, Intent, IntentState

INTENT = Intent(7, "", "", "operator", "refused: no such thing", 0, IntentState.REFUSED)
WAITS = Intent(5, "", "", "operator", "", 0, IntentState.WAITING, at_ms=1_800_000_000_500)
VOTES = Votes(frozenset({"dpu1", "dpu2"}), frozenset({"dpu3"}), frozenset())
SNAPSHOT = FleetSnapshot(
    FleetView("production", 1, 41, 6, 0, intents={5: WAITS, 7: INTENT}),
    (
        DpuRow(
            "dpu1",
            DpuState.APPLIED,
            DpuStatus("dpu1", applied=41, prepared=40, clock_us=80_000, verdicts={"HW": 3, "SW": 1}),
            3.0,
            groups=frozenset({"edge"}),
        ),
        DpuRow('dpu"2', DpuState.UNKNOWN, DpuStatus('dpu"2'), None, is_unfit=True),
    ),
    (facts(LEADER, gap="record 3 is missing"),),
    is_active=True,
    is_stalled=True,
    problems=("one",),
    now_s=0.0,
    targets=(
        TargetRow("192.0.2.1/tcp/80", ("web/one",), TargetState.DOWN, 3.0, VOTES),
        TargetRow("192.0.2.2/tcp/80", ("web/two",), TargetState.UP, 3.0, VOTES),
    ),
)


def samples(snapshot: FleetSnapshot) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(exposition(FLEET_TABLES, snapshot).decode())
        for sample in family.samples
    }


def test_a_fleet_has_numbers_of_all_kinds() -> None:
    found = samples(SNAPSHOT)
    assert found[("xenoovs_fleet_generation",)] == 41
    assert found[("xenoovs_fleet_config_refused",)] == found[("xenoovs_fleet_stalled",)] == 1
    assert found[("xenoovs_fleet_config_waits_until_seconds",)] == 1_800_000_000.5
    assert found[("xenoovs_fleet_dpus", "unknown")] == 1
    assert found[("xenoovs_fleet_dpu_state", 'dpu"2', "unknown")] == 1
    assert found[("xenoovs_fleet_dpu_seen_seconds", "dpu1")] == 3
    assert ("xenoovs_fleet_dpu_seen_seconds", 'dpu"2') not in found
    assert found[("xenoovs_fleet_dpu_offload_ratio", "dpu1")] == 0.75
    assert ("xenoovs_fleet_dpu_offload_ratio", 'dpu"2') not in found
    assert found[("xenoovs_fleet_dpu_clock_error_seconds", "dpu1")] == 0.08
    assert ("xenoovs_fleet_dpu_clock_error_seconds", 'dpu"2') not in found
    assert (found[("xenoovs_fleet_dpu_late", "dpu1")], found[("xenoovs_fleet_dpu_late", 'dpu"2')]) == (1, 0)
    assert found[("xenoovs_fleet_dpu_unready", 'dpu"2', "unfit")] == 1
    assert found[("xenoovs_fleet_dpu_unready", 'dpu"2', "operator")] == 0
    assert found[("xenoovs_fleet_dpu_unready", "dpu1", "unfit")] == 0
    assert found[("xenoovs_store_gap", "xenoovs")] == 1
    assert found[("xenoovs_fleet_dpu_group", "dpu1", "edge")] == 1
    assert found[("xenoovs_fleet_targets", "down")] == found[("xenoovs_fleet_targets", "up")] == 1
    assert found[("xenoovs_fleet_target_votes", "192.0.2.1/tcp/80", "down", "down")] == 2
    assert ("xenoovs_fleet_target_votes", "192.0.2.2/tcp/80", "up", "down") not in found
    assert found[("xenoovs_store_elections_total", "xenoovs")] == 2
    assert found[("xenoovs_store_member_lag", "xenoovs", "tcp:127.0.0.1:26642")] == 2
    assert found[("xenoovs_store_member_silent", "xenoovs", "tcp:127.0.0.1:26643")] == 1
    assert {name for name, *_ in found} == {metric.name for table in FLEET_TABLES for metric in table.metrics()}


def test_a_store_that_never_answered_has_no_generation() -> None:
    found = samples(FleetSnapshot(None, (), (), is_active=False, problems=("lost",), now_s=0.0))
    assert found[("xenoovs_fleet_active",)] == 0
    assert ("xenoovs_fleet_generation",) not in found
    assert found[("xenoovs_fleet_dpus", "applied")] == 0
