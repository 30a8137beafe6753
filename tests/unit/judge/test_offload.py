"""Blocks judged by megaflows: which belongs to which block, what counts, and the exit status."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from tests.judged import check_offload
from tests.unit.balancer import claim, program, service
from tests.unit.judge.programs import blocks, megaflow_of, two_services
from xenoovs.compile.plan import hardware_entries
from xenoovs.datapath.megaflow import Megaflow, Verdict
from xenoovs.datapath.parse import parse_megaflow
from xenoovs.evidence.evidence import Evidence
from xenoovs.judge.expected import OutsideKind, expected_services
from xenoovs.judge.findings import Anomaly, Conclusion, OffloadFindings, carry_over
from xenoovs.judge.report import service_rows
from xenoovs.model.balancer import Protocol

PROGRAM = two_services()
SERVICES = expected_services(PROGRAM)
BLOCKS = blocks(PROGRAM)


@pytest.mark.parametrize(
    ("where", "verdict"),
    [(", dp:tc", Verdict.TC_SW), (", dp:ovs", Verdict.SW), (", offloaded:partial, dp:ovs", Verdict.PARTIAL)],
)
def test_the_worst_megaflow_decides_and_packets_are_counted_separately(where: str, verdict: Verdict) -> None:
    both = [megaflow_of(BLOCKS[0], packets=7), megaflow_of(BLOCKS[0], packets=3, where=where)]
    findings = check_offload(SERVICES, both)
    found = findings.blocks[0]
    assert (found.verdict, found.packets, found.hw_packets, found.hw_bytes) == (verdict, 10, 7, 700)
    assert found.verdicts == ((Verdict.HW, 1), (verdict, 1))
    assert findings.conclusion is Conclusion.NOT_ALL_IN_HARDWARE


@pytest.mark.parametrize("actions", ["set(eth(dst=02:00:00:00:00:77)),p1", "set(eth(dst=02:00:00:00:00:01)),p9", "p1"])
def test_another_mac_or_port_than_expected_is_misdelivered(actions: str) -> None:
    findings = check_offload(SERVICES, [megaflow_of(BLOCKS[0], actions=actions)])
    assert findings.blocks[0].misdelivered == 1
    assert findings.conclusion is Conclusion.NOT_ALL_IN_HARDWARE


def test_packets_that_leave_by_no_port_are_dropped_not_misdelivered() -> None:
    """The port was renamed: "packets leave by another port or with another MAC", while none left."""
    findings = check_offload(SERVICES, [megaflow_of(BLOCKS[0], actions="drop")])
    assert findings.blocks[0].anomalies == ((Anomaly.DROPPED, 1),)
    assert findings.conclusion is Conclusion.NOT_ALL_IN_HARDWARE


def test_the_slow_path_is_counted() -> None:
    slow = megaflow_of(BLOCKS[0], where=", dp:ovs", actions="userspace(pid=0,slow_path(action))")
    found = check_offload(SERVICES, [slow]).blocks[0]
    assert (found.slow_path, found.misdelivered) == (1, 0)


@pytest.mark.parametrize(
    ("keys", "actions", "kind"),
    [
        ("in_port(p0),eth_type(0x0806),arp(tip=10.3.10.45)", "p1", OutsideKind.ARP),
        ("in_port(p0),eth_type(0x86dd),ipv6(proto=58),icmpv6(type=135)", "p1", OutsideKind.NEIGHBOUR_DISCOVERY),
        ("in_port(p0),eth(dst=33:33:00:00:00:01),eth_type(0x86dd),ipv6(frag=no)", "p1", OutsideKind.MULTICAST),
        ("in_port(p0),eth_type(0x0800),ipv4(dst=10.9.9.9)", "drop", OutsideKind.DROP),
        ("recirc_id(0x3),in_port(p0),eth_type(0x0800),ipv4(frag=no)", "p1", OutsideKind.RECIRCULATED),
        ("in_port(p1),eth_type(0x0800),ipv4(src=0.0.0.1/0.0.0.1,dst=10.3.10.46)", "p0", OutsideKind.ANSWERS),
        ("in_port(p1),eth_type(0x0800),ipv4(src=192.0.2.1,dst=10.3.10.46)", "p0", OutsideKind.OTHER),
        ("in_port(p0),eth_type(0x0800),ipv4(src=0.0.0.1/0.0.0.1,dst=10.3.10.47)", "p1", OutsideKind.OTHER),
    ],
)
def test_megaflows_of_no_block_are_counted_by_kind(keys: str, actions: str, kind: OutsideKind) -> None:
    text = f"{keys}, packets:1, bytes:60, used:never, dp:ovs, actions:{actions}"
    findings = check_offload(SERVICES, [parse_megaflow(text)])
    assert [(each.kind, each.megaflows) for each in findings.outside] == [(kind, 1)]
    assert findings.conclusion is Conclusion.NOTHING_SEEN


def _check(*megaflows: Megaflow, evidence: Evidence | None = None) -> OffloadFindings:
    return check_offload(SERVICES, megaflows, evidence)


MIXED = [megaflow_of(BLOCKS[0], packets=90), megaflow_of(BLOCKS[1], packets=10, where=", dp:tc")]
UNPROVEN = [megaflow_of(BLOCKS[0], packets=100), megaflow_of(BLOCKS[1], packets=0)]
ASTRAY = [megaflow_of(BLOCKS[0], actions="set(eth(dst=02:00:00:00:00:77)),p1")]


@pytest.mark.parametrize(
    ("megaflows", "required", "conclusion"),
    [
        (MIXED, None, Conclusion.NOT_ALL_IN_HARDWARE),
        (MIXED, 0.9, Conclusion.IN_HARDWARE),
        (MIXED, 0.91, Conclusion.NOT_ALL_IN_HARDWARE),
        ([megaflow_of(BLOCKS[0], packets=0)], 0.5, Conclusion.NOTHING_SEEN),
        # What was expected of unproven blocks counts.
        (UNPROVEN, 0.9, Conclusion.NOTHING_SEEN),
        (UNPROVEN, 0.01, Conclusion.IN_HARDWARE),
        (ASTRAY, 0.5, Conclusion.NOT_ALL_IN_HARDWARE),
    ],
)
def test_a_required_share_is_of_packets(
    megaflows: list[Megaflow], required: float | None, conclusion: Conclusion
) -> None:
    assert _check(*megaflows).conclusion_for(required) is conclusion


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


@pytest.mark.parametrize("weights", [(1, 1), (5, 3, 2), (128, 64, 32, 16, 8, 4, 2, 1, 1)])
def test_all_blocks_by_all_entries_are_the_hardware_entries(weights: tuple[int, ...]) -> None:
    vips = ip_address("10.3.10.45"), ip_address("2001:db8::45")
    compiled = program(service(claim(*vips, protocol=Protocol.UDP, ports=[(53, 53), (80, 81)]), *weights))
    (row,) = service_rows(check_offload(expected_services(compiled), []))
    assert (row.predicted, row.predicted_all) == (0, hardware_entries(compiled.services[0]))


def test_verdicts_are_ordered_from_absent_to_the_worst() -> None:
    """By this a block with several megaflows has its verdict."""
    worst_last = sorted(Verdict, key=lambda verdict: verdict.badness)
    assert [verdict.value for verdict in worst_last] == [
        *("ABSENT", "HW", "UNCONFIRMED", "PARTIAL", "TC_SW", "IDLE_HW", "SW", "CONTRADICTED")
    ]
