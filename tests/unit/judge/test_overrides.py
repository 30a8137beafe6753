"""Overrides: megaflows outside all blocks that hold packets of blocks, because of a foreign flow above ours."""

from __future__ import annotations

import pytest

from tests.judged import check_offload
from tests.unit.judge.programs import IN_HARDWARE, blocks, megaflow_of, two_services
from xenoovs.datapath.megaflow import Megaflow
from xenoovs.datapath.parse import parse_megaflow, scan_dump
from xenoovs.judge.expected import expected_services
from xenoovs.judge.findings import Conclusion, OffloadFindings
from xenoovs.judge.foreign import OTHER_ACTIONS, attribute
from xenoovs.judge.offload import check_dump
from xenoovs.model.next_hop import mac_of
from xenoovs.openflow.text import parse_flow

PROGRAM = two_services()
SERVICES = expected_services(PROGRAM)
BLOCKS = blocks(PROGRAM)
OTHER_BITS = "recirc_id(0),in_port(p0),eth_type(0x0800),ipv4(src=0.0.0.7/0.0.0.15,proto=17,frag=no)"


def _megaflow(keys: str, actions: str, *, used: str = "0.1s") -> Megaflow:
    return parse_megaflow(f"{keys}, packets:3, bytes:180, used:{used}{IN_HARDWARE}, actions:{actions}")


def _check(*megaflows: Megaflow) -> OffloadFindings:
    return check_offload(SERVICES, megaflows)


def _names(findings: OffloadFindings) -> list[tuple[str, list[int]]]:
    return [(taking.service, [block.key.value for block in taking.blocks]) for taking in findings.overrides]


@pytest.mark.parametrize("actions", ["set(eth(dst=02:00:00:00:00:77)),p1", "p9", "br0"])
def test_megaflows_that_overlap_blocks_and_go_elsewhere_are_overrides(actions: str) -> None:
    findings = _check(_megaflow(OTHER_BITS, actions))
    odd = [(block.service, [1]) for block in BLOCKS if block.key.value == 1]
    assert _names(findings) == odd
    assert findings.outside == ()
    assert {findings.conclusion, findings.conclusion_for(0.5)} == {Conclusion.NOT_ALL_IN_HARDWARE}


def test_an_override_that_drops_is_reported_and_no_failure() -> None:
    for seen, conclusion in ((BLOCKS, Conclusion.IN_HARDWARE), ((), Conclusion.NOTHING_SEEN)):
        findings = _check(*map(megaflow_of, seen), _megaflow(OTHER_BITS, "drop"))
        assert _names(findings) == [(block.service, [1]) for block in BLOCKS if block.key.value == 1]
        assert {findings.conclusion, findings.conclusion_for(0.5)} == {conclusion}


def test_blocks_in_hardware_do_not_outweigh_overrides() -> None:
    findings = _check(*map(megaflow_of, BLOCKS), _megaflow(OTHER_BITS, "p9"))
    assert findings.conclusion is findings.conclusion_for(0.5) is Conclusion.NOT_ALL_IN_HARDWARE


def test_delivery_to_one_backend_overrides_only_blocks_of_the_other() -> None:
    findings = _check(
        _megaflow("in_port(p0),eth_type(0x0800),ipv4(dst=10.3.10.46)", "set(eth(dst=02:00:00:00:00:01)),p1")
    )
    lost = [block.key.value for block in SERVICES[1].blocks if block.backend != "b1"]
    assert _names(findings) == [("web", lost)]


@pytest.mark.parametrize(
    ("keys", "actions"),
    [
        ("in_port(p0),eth_type(0x0800),ipv4(src=0.0.0.7/0.0.0.15,dst=10.3.10.47)", "drop"),
        ("in_port(p0),eth_type(0x0800),ipv4(src=0.0.0.7/0.0.0.15,dst=10.3.10.0/255.255.255.240)", "drop"),
        ("in_port(p0),eth_type(0x0800),ipv4(src=0.0.0.7/0.0.0.15,dst=10.3.10.45,proto=6)", "drop"),
        ("in_port(p0),eth_type(0x0800),ipv4(dst=10.3.10.45,proto=17),udp(dst=54)", "drop"),
        ("in_port(p1),eth_type(0x0800),ipv4(src=0.0.0.7/0.0.0.15)", "drop"),
        ("in_port(p0),eth_type(0x86dd),ipv6(frag=no)", "drop"),
        ("in_port(p0),eth_type(0x0806),arp(tip=10.3.10.45)", "drop"),
        ("in_port(p0),eth_type(0x0800),ipv4(dst=10.3.10.45,proto=17,frag=later)", "p1"),
        ("recirc_id(0x3),in_port(p0),eth_type(0x0800),ipv4(src=0.0.0.7/0.0.0.15)", "drop"),
        (OTHER_BITS, "ct(zone=1),recirc(0x3)"),
    ],
)
def test_megaflows_without_packets_of_a_block_or_undetermined_ones_are_no_overrides(keys: str, actions: str) -> None:
    findings = _check(_megaflow(keys, actions))
    assert (findings.overrides, findings.conclusion) == ((), Conclusion.NOTHING_SEEN)
    assert sum(ignored.megaflows for ignored in findings.outside) == 1


def test_the_same_backend_is_harmless() -> None:
    (odd,) = (block for block in SERVICES[0].blocks if block.key.value == 1)
    keys = "in_port(p0),eth_type(0x0800),ipv4(src=0.0.0.1/0.0.0.1,proto=17),udp(dst=53)"
    deliver = f"set(eth(dst={mac_of(odd.hops[0])})),p1"
    only_dns = check_offload(SERVICES[:1], [_megaflow(keys, deliver)])
    assert only_dns.overrides == ()


def test_what_is_gone_soon_may_be_from_before_a_change() -> None:
    assert _check(_megaflow(OTHER_BITS, "drop", used="9.9s")).overrides == ()


def test_overrides_beyond_the_limit_are_merged() -> None:
    findings = _check(*(_megaflow(OTHER_BITS, f"p{number}") for number in range(600)), _megaflow(OTHER_BITS, "drop"))
    by_actions = {(taking.service, taking.actions): taking.megaflows for taking in findings.overrides}
    assert len(by_actions) == 500 + 2 * 2
    assert {by_actions[service, OTHER_ACTIONS] for service in ("dns", "web")} == {350}
    assert {by_actions[service, "drop"] for service in ("dns", "web")} == {1}
    assert sum(by_actions.values()) == 601 * 2


def test_of_lines_that_are_all_different_none_is_missed() -> None:
    line = (
        "in_port(p0),eth_type(0x0800),ipv4(src=0.0.0.7/0.0.0.15), packets:1, bytes:60, used:0.1s, dp:ovs, actions:p{}"
    )
    many = [line.format(number) for number in range(10_000)] + [line.format(9)] * 3
    fast, each = check_dump(SERVICES, many), check_offload(SERVICES, scan_dump(many))
    assert fast == each
    assert sum(taking.megaflows for taking in fast.overrides) == 10_003 * 2


def test_similar_lines_are_judged_by_their_own_address() -> None:
    line = "in_port(p0),eth_type(0x0800),ipv4(src=0.0.0.{}/0.0.0.3), packets:1, bytes:60, used:0.1s, dp:ovs, actions:{}"
    dump = [line.format(value, "set(eth(dst=02:00:00:00:00:01)),p1") for value in (0, 1, 2, 3, 0)]
    fast, each = check_dump(SERVICES, dump), check_offload(SERVICES, scan_dump(dump))
    assert fast == each
    # Of each service, two of four classes of addresses belong to the other backend.
    assert sorted(taking.megaflows for taking in each.overrides) in ([2, 2], [2, 3], [3, 3])


def test_the_highest_flow_that_all_these_packets_match_is_named() -> None:
    theirs = "priority=3000,udp,nw_src=0.0.0.7/0.0.0.15 actions=drop"
    flows = (
        "priority=4000,udp,nw_src=0.0.0.3/0.0.0.15 actions=drop",
        "priority=3500,udp,in_port=p1,nw_src=0.0.0.7/0.0.0.15 actions=drop",
        theirs,
        "priority=2000,ip actions=drop",
        "priority=1,ip actions=drop",
    )
    named = attribute(_check(_megaflow(OTHER_BITS, "drop")), map(parse_flow, flows))
    assert [taking.flows for taking in named.overrides] == [(parse_flow(theirs),)] * 2


def test_no_flow_below_ours_is_named() -> None:
    named = attribute(_check(_megaflow(OTHER_BITS, "drop")), [parse_flow("priority=1,ip actions=drop")])
    assert [taking.flows for taking in named.overrides] == [()] * 2
