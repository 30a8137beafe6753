"""Which offload samples a DPU reports to its fleet, and when."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.compiled import compiled
from xenoovs.agent.fleet_verdicts import VerdictReports, verdict_counts
from xenoovs.agent.offload import OffloadSample
from xenoovs.judge.check import check_dump
from xenoovs.judge.expected import expected_services
from xenoovs.judge.findings import OffloadFindings
from xenoovs.model.load import load_config
from xenoovs.store.view import DpuStatus

VERIFY = Path(__file__).parents[2] / "golden" / "verify"
SERVICES = expected_services(compiled(load_config(VERIFY / "dns.yaml")))
DUMP = (VERIFY / "in_hardware.dump").read_text()
STATUS = DpuStatus("dpu1", applied=5, applied_ms=100_000)


def findings(dump: str) -> OffloadFindings:
    return check_dump(SERVICES, tuple(dump.splitlines()))


GOOD, IDLE = findings(DUMP), findings("")
BAD = findings(DUMP.replace("offloaded:yes, dp:tc", "dp:ovs"))


def test_megaflows_are_counted_by_verdict_and_blocks_without_one_as_absent() -> None:
    good, bad, idle = map(verdict_counts, (GOOD, BAD, IDLE))
    assert set(good) == {"HW"}
    assert bad == {"SW": good["HW"]}
    assert set(idle) == {"ABSENT"}


def test_a_sample_from_before_the_generation_is_not_reported_for_it() -> None:
    reports = VerdictReports()
    reports.add(OffloadSample(GOOD, 99.9))
    assert reports.reported(STATUS, is_due=True, ack=5) == STATUS
    reports.add(OffloadSample(GOOD, 100.1))
    assert reports.reported(STATUS, is_due=True, ack=None) == replace(STATUS, verdicts=verdict_counts(GOOD), sampled=5)


def test_outside_of_a_wave_verdicts_wait_for_the_periodic_report() -> None:
    reports = VerdictReports()
    reports.add(OffloadSample(GOOD, 101))
    first = reports.reported(STATUS, is_due=False, ack=None)
    assert first.sampled == 5, "the first ones of an agent"
    later = replace(first, applied=6)
    assert reports.reported(later, is_due=False, ack=None) == later
    # The wave waits for a generation that this DPU does not have yet.
    assert reports.reported(later, is_due=False, ack=7) == later
    assert reports.reported(later, is_due=True, ack=None).sampled == 6


def test_in_a_wave_the_first_verdicts_are_reported_at_once_and_then_a_share_that_changes() -> None:
    reports = VerdictReports()
    reports.add(OffloadSample(GOOD, 101))
    first = reports.reported(STATUS, is_due=False, ack=5)
    assert (first.verdicts, first.sampled) == (verdict_counts(GOOD), 5)
    # One sample may meet a megaflow that was made a moment ago.
    reports.add(OffloadSample(BAD, 103))
    assert reports.reported(first, is_due=False, ack=5) == first
    reports.add(OffloadSample(BAD, 105))
    second = reports.reported(first, is_due=False, ack=5)
    assert second.verdicts == verdict_counts(BAD)
    reports.add(OffloadSample(IDLE, 107))
    reports.add(OffloadSample(IDLE, 109))
    assert reports.reported(second, is_due=False, ack=5).verdicts == verdict_counts(IDLE)


def test_a_count_that_wobbles_is_not_reported() -> None:
    reports = VerdictReports()
    reports.add(OffloadSample(GOOD, 101))
    first = reports.reported(STATUS, is_due=False, ack=5)
    fewer = findings("".join(DUMP.splitlines(keepends=True)[:-1]))
    assert verdict_counts(fewer) != verdict_counts(GOOD)
    reports.add(OffloadSample(fewer, 103))
    reports.add(OffloadSample(fewer, 105))
    assert reports.reported(first, is_due=False, ack=5) == first


def test_a_switch_without_megaflows_reports_none() -> None:
    reports = VerdictReports()
    reports.add(OffloadSample(None, 101))
    assert reports.reported(STATUS, is_due=True, ack=5) == STATUS
