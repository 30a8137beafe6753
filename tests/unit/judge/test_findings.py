"""Conclusions from findings: required shares, repeated checks, text that is no dump."""

from __future__ import annotations

import pytest

from tests.judged import check_offload
from tests.unit.judge.programs import blocks, megaflow_of, two_services
from xenoovs.datapath.megaflow import Megaflow, Verdict
from xenoovs.evidence.evidence import Evidence
from xenoovs.judge.expected import expected_services
from xenoovs.judge.findings import Anomaly, Conclusion, OffloadFindings, carry_over

SERVICES = expected_services(two_services())
BLOCKS = blocks(two_services())


def _check(*megaflows: Megaflow, evidence: Evidence | None = None) -> OffloadFindings:
    return check_offload(SERVICES, megaflows, evidence)


@pytest.mark.parametrize(
    ("required", "conclusion"),
    [(None, Conclusion.NOT_ALL_IN_HARDWARE), (0.9, Conclusion.IN_HARDWARE), (0.91, Conclusion.NOT_ALL_IN_HARDWARE)],
)
def test_a_required_share_is_of_packets(required: float | None, conclusion: Conclusion) -> None:
    findings = _check(megaflow_of(BLOCKS[0], packets=90), megaflow_of(BLOCKS[1], packets=10, where=", dp:tc"))
    assert findings.conclusion_for(required) is conclusion


def test_a_required_share_needs_packets() -> None:
    assert _check(megaflow_of(BLOCKS[0], packets=0)).conclusion_for(0.5) is Conclusion.NOTHING_SEEN


def test_offloaded_without_one_packet_is_no_success_yet() -> None:
    idle = megaflow_of(BLOCKS[0], packets=0)
    assert _check(idle).conclusion is Conclusion.NOTHING_SEEN
    assert _check(idle, megaflow_of(BLOCKS[1])).conclusion is Conclusion.NOTHING_SEEN


def test_a_held_block_without_a_packet_is_unconfirmed_with_what_its_share_lets_expect() -> None:
    """A NIC that ignored two bits of masks sent the packets of four blocks by the rule of a fifth: exit status 0."""
    findings = _check(megaflow_of(BLOCKS[0], packets=1984), *(megaflow_of(each, packets=0) for each in BLOCKS[1:2]))
    assert [block.verdict for block in findings.blocks[:2]] == [Verdict.HW, Verdict.UNCONFIRMED]
    (unproven,) = findings.unproven
    assert (unproven.block, unproven.of_packets) == (BLOCKS[1], 1984)
    assert unproven.expected == 1984 // 2 ** BLOCKS[1].key.mask.bit_count()
    assert f"no packet; about {unproven.expected} of 1984 expected for" in str(unproven)


def test_a_second_megaflow_of_a_proven_block_needs_no_packet() -> None:
    """A client's first packet goes by the CPU, so one that sent no second one has a megaflow without a packet."""
    findings = _check(megaflow_of(BLOCKS[0]), megaflow_of(BLOCKS[0], packets=0))
    assert (findings.blocks[0].verdict, findings.conclusion) == (Verdict.HW, Conclusion.IN_HARDWARE)


@pytest.mark.parametrize(("required", "conclusion"), [(0.9, Conclusion.NOTHING_SEEN), (0.01, Conclusion.IN_HARDWARE)])
def test_a_required_share_counts_what_was_expected_of_unproven_blocks(required: float, conclusion: Conclusion) -> None:
    findings = _check(megaflow_of(BLOCKS[0], packets=100), megaflow_of(BLOCKS[1], packets=0))
    assert findings.conclusion_for(required) is conclusion


def test_misdelivered_packets_in_hardware_meet_no_requirement() -> None:
    astray = megaflow_of(BLOCKS[0], actions="set(eth(dst=02:00:00:00:00:77)),p1")
    assert _check(astray).conclusion_for(0.5) is Conclusion.NOT_ALL_IN_HARDWARE


def test_an_absent_block_keeps_its_earlier_finding() -> None:
    earlier = _check(megaflow_of(BLOCKS[0], where=", dp:ovs"), megaflow_of(BLOCKS[1], where=", dp:ovs"))
    later = _check(megaflow_of(BLOCKS[1]))
    both = carry_over(earlier, later)
    assert [block.verdict for block in both.blocks] == [Verdict.SW, Verdict.HW, Verdict.ABSENT, Verdict.ABSENT]
    assert (both.absent, carry_over(None, later)) == (2, later)


@pytest.mark.parametrize(("max_idle_s", "count"), [(10.0, 0), (0.12, 1)])
def test_what_is_about_to_idle_out_depends_on_max_idle(max_idle_s: float, count: int) -> None:
    findings = _check(megaflow_of(BLOCKS[0]), evidence=Evidence(max_idle_s=max_idle_s))
    assert findings.blocks[0].count(Anomaly.EXPIRING) == count
