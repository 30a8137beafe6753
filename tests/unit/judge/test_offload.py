"""Blocks judged by megaflows: which belongs to which block, what counts, and the exit status."""

from __future__ import annotations

import pytest

from tests.judged import check_offload
from tests.unit.judge.programs import IN_HARDWARE, blocks, megaflow_of, two_services
from xenoovs.datapath.megaflow import Verdict
from xenoovs.datapath.parse import parse_megaflow, scan_dump
from xenoovs.judge.expected import OutsideKind, expected_services
from xenoovs.judge.findings import Anomaly, Conclusion
from xenoovs.model.next_hop import mac_of

PROGRAM = two_services()
SERVICES = expected_services(PROGRAM)
BLOCKS = blocks(PROGRAM)


def test_no_megaflow_is_neither_success_nor_failure() -> None:
    findings = check_offload(SERVICES, [])
    assert {block.verdict for block in findings.blocks} == {Verdict.ABSENT}
    assert findings.conclusion is Conclusion.NOTHING_SEEN


def test_every_megaflow_is_counted_at_its_own_block() -> None:
    findings = check_offload(SERVICES, [megaflow_of(block, packets=i) for i, block in enumerate(BLOCKS, start=1)])
    assert [found.packets for found in findings.blocks] == list(range(1, len(BLOCKS) + 1))
    assert findings.conclusion is Conclusion.IN_HARDWARE
    assert findings.outside == ()


def test_an_absent_block_does_not_spoil_success() -> None:
    findings = check_offload(SERVICES, [megaflow_of(BLOCKS[0])])
    assert [found.verdict for found in findings.blocks].count(Verdict.ABSENT) == len(BLOCKS) - 1
    assert findings.conclusion is Conclusion.IN_HARDWARE


@pytest.mark.parametrize(
    ("where", "verdict"),
    [(", dp:tc", Verdict.TC_SW), (", dp:ovs", Verdict.SW), (", offloaded:partial, dp:ovs", Verdict.PARTIAL)],
)
def test_the_worst_megaflow_decides_and_packets_are_counted_separately(where: str, verdict: Verdict) -> None:
    both = [megaflow_of(BLOCKS[0], packets=7), megaflow_of(BLOCKS[0], packets=3, where=where)]
    (found, *_), conclusion = (findings := check_offload(SERVICES, both)).blocks, findings.conclusion
    assert (found.verdict, found.packets, found.hw_packets, found.hw_bytes) == (verdict, 10, 7, 700)
    assert found.verdicts == ((Verdict.HW, 1), (verdict, 1))
    assert conclusion is Conclusion.NOT_ALL_IN_HARDWARE


def test_a_finer_mask_than_the_block_still_belongs_to_it() -> None:
    block = BLOCKS[0]
    line = f"src=198.51.100.{0x50 | block.key.value}/0.0.0.255,dst=10.3.10.45/255.255.255.255,proto=17"
    keys = f"in_port(p0),eth(dst=c4:70:bd:a0:56:ac),eth_type(0x0800),ipv4({line}),udp(src=4000/0,dst=53)"
    text = f"{keys}, packets:4, bytes:400, used:never, dp:ovs, actions:set(eth(dst={mac_of(block.hops[0])})),p1"
    findings = check_offload(SERVICES, [parse_megaflow(text)])
    assert (findings.blocks[0].packets, findings.blocks[0].misdelivered) == (4, 0)


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


def test_a_packet_that_has_the_backends_mac_already_is_delivered() -> None:
    line = "in_port(p0),eth(dst=02:00:00:00:00:01),eth_type(0x0800),ipv4(src=0.0.0.{}/0.0.0.1,dst=10.3.10.46)"
    block = next(b for b in BLOCKS if b.service == "web" and b.backend == "b1")
    text = f"{line.format(block.key.value)}, packets:1, bytes:1, used:never{IN_HARDWARE}, actions:p1"
    assert check_offload(SERVICES, [parse_megaflow(text)]).conclusion is Conclusion.IN_HARDWARE


def test_a_packet_that_had_the_backends_mac_and_loses_it_is_misdelivered() -> None:
    line = "in_port(p0),eth(dst=02:00:00:00:00:01),eth_type(0x0800),ipv4(src=0.0.0.{}/0.0.0.1,dst=10.3.10.46)"
    block = next(b for b in BLOCKS if b.service == "web" and b.backend == "b1")
    to_b2 = "set(eth(dst=02:00:00:00:00:02)),p1"
    text = f"{line.format(block.key.value)}, packets:1, bytes:1, used:never{IN_HARDWARE}, actions:{to_b2}"
    assert check_offload(SERVICES, [parse_megaflow(text)]).conclusion is Conclusion.NOT_ALL_IN_HARDWARE


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


def test_a_dump_without_m_cannot_be_judged() -> None:
    findings = check_offload(SERVICES, [megaflow_of(BLOCKS[0], where="")])
    assert findings.unjudged == 1
    assert findings.conclusion is Conclusion.CHECK_FAILED


def test_an_unreadable_line_is_reported_and_the_rest_is_judged() -> None:
    findings = check_offload(SERVICES, [*scan_dump("ufid:1, in_po"), megaflow_of(BLOCKS[0])])
    assert [error.line for error in findings.unparsed] == [1]
    assert findings.conclusion is Conclusion.IN_HARDWARE
