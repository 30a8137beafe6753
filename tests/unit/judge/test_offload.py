"""Blocks judged by megaflows: which belongs to which block, what counts, and the exit status."""

from __future__ import annotations

import pytest

from tests.judged import check_offload
from tests.unit.judge.programs import blocks, megaflow_of, two_services
from xenoovs.datapath.megaflow import Verdict
from xenoovs.datapath.parse import parse_megaflow
from xenoovs.judge.expected import OutsideKind, expected_services
from xenoovs.judge.findings import Anomaly, Conclusion

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
