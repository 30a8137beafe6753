"""Reasons for rules that the NIC holds and does not use; dumps recorded on the emulated NIC with Open vSwitch 3.1."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.compiled import compiled
from tests.unit.judge.why_cases import COOKIE, UFID, host, megaflow
from xenoovs.cli.offload import growth_remarks
from xenoovs.datapath.host import CpuCounter, PortPackets
from xenoovs.datapath.ipsec import RouteTo
from xenoovs.datapath.megaflow import Megaflow, Verdict
from xenoovs.datapath.parse import parse_dump
from xenoovs.datapath.tc import TcCounters, TcFilter, parse_tc_json, with_known_counters
from xenoovs.datapath.tunnel_facts import NeighbourEntry, TunnelFacts
from xenoovs.evidence.command_target import CommandTarget
from xenoovs.evidence.evidence import Evidence
from xenoovs.evidence.samples import DatapathSample, PortFinding, check_ports, sample_of
from xenoovs.judge.expected import expected_services
from xenoovs.judge.findings import Conclusion, OffloadFindings
from xenoovs.judge.offload import check_dump
from xenoovs.judge.why.case import Case
from xenoovs.judge.why.diagnose import MegaflowFilter, Selection, diagnose, select_candidates
from xenoovs.judge.why.reason import Cause, Likelihood
from xenoovs.model.load import load_config

GOLDEN = Path(__file__).parents[2] / "golden" / "verify"
SERVICES = expected_services(compiled(load_config(GOLDEN / "dns.yaml")))
BLOCKS = 7
CONTRADICTED = PortFinding("p0", received=5000, explained=3, tolerance=60, source="rx_packets")


def _read(name: str) -> tuple[tuple[Megaflow, ...], dict[str, TcFilter]]:
    filters = with_known_counters(parse_tc_json((GOLDEN / "faulty" / f"{name}.tc.json").read_text()))
    megaflows = tuple(parse_dump((GOLDEN / "faulty" / f"{name}.dump").read_text()))
    return megaflows, {found.cookie or "": found for found in filters}


def _selection(phase: str, *ports: PortFinding, samples: int = 2) -> Selection:
    megaflows, filters = _read(f"{phase}.end")
    before = DatapathSample(sample_of(*_read(f"{phase}.begin"))) if samples == 2 else None
    evidence = Evidence(filters=filters, before=before, port_checks=ports)
    return select_candidates(megaflows, SERVICES, MegaflowFilter().selects, evidence)


def _diagnoses(selection: Selection) -> tuple[Case, ...]:
    return diagnose(selection, Evidence(host(), target=CommandTarget(config="my.yaml")))


def _verdicts(findings: OffloadFindings) -> dict[Verdict, int]:
    return dict(Counter(block.verdict for block in findings.blocks))


def _findings(phase: str, *, samples: int) -> OffloadFindings:
    _, filters = _read(f"{phase}.end")
    before = DatapathSample(sample_of(*_read(f"{phase}.begin"))) if samples == 2 else None
    lines = (GOLDEN / "faulty" / f"{phase}.end.dump").read_text().splitlines()
    return check_dump(SERVICES, lines, evidence=Evidence(filters=filters, before=before))


@pytest.mark.parametrize(
    ("phase", "samples", "verdict", "cause"),
    [
        ("no_fault", 2, Verdict.HW, None),
        ("beyond_32_bits", 2, Verdict.HW, None),
        ("never_used", 2, Verdict.IDLE_HW, Cause.RULE_UNUSED),
        ("never_used", 1, Verdict.IDLE_HW, Cause.RULE_UNUSED),
        ("reset", 2, Verdict.IDLE_HW, Cause.RULE_UNUSED),
        ("each_third_packet", 2, Verdict.TC_SW, Cause.RULE_PARTLY_USED),
    ],
)
def test_rules_that_the_nic_does_not_use_are_not_in_hardware_and_have_a_reason(
    phase: str, samples: int, verdict: Verdict, cause: Cause | None
) -> None:
    """All of these are `in_hw` in traffic control, and `offloaded:yes` in the dump; so they were "in hardware"."""
    findings, selection = _findings(phase, samples=samples), _selection(phase, samples=samples)
    assert _verdicts(findings) == {verdict: BLOCKS}
    conclusion = Conclusion.NOT_ALL_IN_HARDWARE if cause else Conclusion.IN_HARDWARE
    assert {findings.conclusion_for(None), findings.conclusion_for(0.95)} == {conclusion}
    unused = BLOCKS if cause else 0
    assert (selection.in_hardware, selection.unconfirmed, len(selection.candidates)) == (BLOCKS - unused, 0, unused)
    assert cause or selection.growth.packets == selection.growth.hw_packets > 0
    found = [
        (each.verdict, reason.cause, reason.likelihood, reason.fix[-1])
        for each in _diagnoses(selection)
        for reason in each.reasons
    ]
    assert found == [(verdict, cause, Likelihood.CONFIRMED, "xenoovs why my.yaml --reinstall")] * unused


def test_one_sample_counts_since_the_rule_was_installed() -> None:
    assert _findings("never_used", samples=1).hw_share == 0
    for found in _diagnoses(_selection("never_used", samples=1)):
        assert found.reasons[0].evidence[0].endswith("packets since the rule was installed, 0 of them in hardware")


def test_the_evidence_has_the_packets_that_came_and_those_in_hardware() -> None:
    selection = _selection("reset")
    for candidate, found in zip(selection.candidates, _diagnoses(selection), strict=True):
        assert candidate.held is not None
        growth, rule = candidate.held.state.growth, candidate.held.filter
        assert growth is not None
        assert rule is not None
        came, filter_line = found.reasons[0].evidence
        assert (growth.packets > 0, growth.hw_packets) == (True, 0)
        assert came == f"{growth.packets} packets came between two samples, 0 of them in hardware"
        assert filter_line.startswith(f"tc filter of p0, pref {rule.pref} handle {rule.handle:#x}: in_hw, ")


def test_a_port_that_contradicts_the_nic_is_evidence_with_both_numbers() -> None:
    found = _diagnoses(_selection("no_fault", CONTRADICTED))
    assert Counter(each.verdict for each in found) == {Verdict.CONTRADICTED: BLOCKS}
    (reason,) = found[0].reasons
    assert (reason.cause, reason.likelihood) == (Cause.COUNTERS_CONTRADICTED, Likelihood.LIKELY)
    assert "p0 gave 5000 packets to the CPU" in reason.evidence[0]
    assert "explain 3 of them" in reason.evidence[0]
    assert "packets came between two samples" in reason.evidence[1]
    assert "tc -s filter show dev p0 ingress" in reason.fix


def test_a_contradicted_port_counts_without_a_megaflow() -> None:
    selection = _selection("never_used", CONTRADICTED)
    assert selection.contradicted == (CONTRADICTED,)
    assert _selection("never_used", replace(CONTRADICTED, silence="no counter")).contradicted == ()


def test_a_rule_without_a_counter_is_unconfirmed() -> None:
    megaflows, filters = _read("no_fault.end")
    unknown = {
        cookie: replace(rule, counters=rule.counters and replace(rule.counters, hw_packets=None))
        for cookie, rule in filters.items()
    }
    selection = select_candidates(megaflows, SERVICES, MegaflowFilter().selects, Evidence(filters=unknown))
    assert (selection.candidates, selection.in_hardware) == ((), 0)
    assert selection.unconfirmed == selection.uncounted == BLOCKS


def _held(actions: str, *, in_hw: bool = True) -> Selection:
    """A megaflow whose rule has counted 9 packets for 30 seconds, none of them in hardware."""
    rule = TcFilter("ip", 2, 0, 8, COOKIE, in_hw=in_hw, counters=TcCounters(9, 900, 0), active_s=30)
    found = megaflow("offloaded:yes, dp:tc", actions)
    return select_candidates([found], (), MegaflowFilter(ufid=UFID).selects, Evidence(filters={COOKIE: rule}))


@pytest.mark.parametrize("remote", ["dst=192.0.2.7", "ipv6_dst=2001:db8::7"])
def test_an_unused_rule_of_an_encapsulation_may_wait_for_the_next_hop(remote: str) -> None:
    actions = f"set(tunnel(tun_id=0x1,src=192.0.2.1,{remote},ttl=64,tp_dst=4789,flags(key))),vxlan_sys_4789"
    (found,) = _diagnoses(_held(actions))
    assert [reason.cause for reason in found.reasons] == [Cause.RULE_UNUSED, Cause.NEIGHBOUR_UNRESOLVED]
    assert f"ping -c 1 {remote.partition('=')[2]}" in found.reasons[1].fix


@pytest.mark.parametrize(
    ("entry", "causes"),
    [
        (NeighbourEntry(None, "FAILED"), [(Cause.NEIGHBOUR_UNRESOLVED, Likelihood.CERTAIN)]),
        (NeighbourEntry("02:00:00:00:00:07", "REACHABLE"), [(Cause.RULE_UNUSED, Likelihood.CONFIRMED)]),
    ],
)
def test_a_next_hop_that_does_not_answer_is_the_reason_and_one_that_does_is_none(
    entry: NeighbourEntry, causes: list[tuple[Cause, Likelihood]]
) -> None:
    """The reset of the NIC came first, whatever the neighbour table said."""
    actions = "set(tunnel(tun_id=0x1,src=192.0.2.1,dst=192.0.2.7,ttl=64,tp_dst=4789,flags(key))),vxlan_sys_4789"
    selection = _held(actions)
    facts = TunnelFacts((), {"192.0.2.7": RouteTo("p1", None, "192.0.2.254")}, neighbours={"192.0.2.254": entry})
    (found,) = diagnose(selection, Evidence(replace(host(), tunnels=facts)))
    assert [(reason.cause, reason.likelihood) for reason in found.reasons] == causes


def test_a_rule_that_traffic_control_shows_not_in_hw_was_refused() -> None:
    (candidate,) = _held("p1", in_hw=False).candidates
    assert (candidate.verdict, candidate.held) == (Verdict.TC_SW, None)


COUNTED_TWICE = [
    {"p0": PortPackets(missed, CpuCounter.CPU, "cpu_hit of `ip stats`", entered)}
    for missed, entered in ((4506, 7980), (5492, 8966))
]
"""What the NIC itself counted meanwhile: 986 packets came in, and all of them went to the CPU."""


def test_packets_that_the_cpu_forwards_and_the_driver_counts_too_are_not_half_in_hardware() -> None:
    samples = [
        DatapathSample(sample_of(*_read(f"counted_twice.{when}")), ports, ports)
        for when, ports in zip(("begin", "end"), COUNTED_TWICE, strict=True)
    ]
    _, filters = _read("counted_twice.end")
    for checks, verdict in ((check_ports(*samples), Verdict.CONTRADICTED), ((), Verdict.TC_SW)):
        known = Evidence(filters=filters, before=samples[0], port_checks=checks)
        lines = (GOLDEN / "faulty" / "counted_twice.end.dump").read_text().splitlines()
        findings = check_dump(SERVICES, lines, evidence=known)
        assert _verdicts(findings) == {verdict: BLOCKS}
        assert findings.growth.hw_packets * 2 == findings.growth.packets
        assert findings.conclusion_for(None) is Conclusion.NOT_ALL_IN_HARDWARE
    [port] = check_ports(*samples)
    assert (port.entered, port.twice > 900) == (986, True)


def test_counters_that_did_not_grow_between_two_samples_are_no_idle_rules() -> None:
    megaflows, filters = _read("no_fault.end")
    lines = tuple((GOLDEN / "faulty" / "no_fault.end.dump").read_text().splitlines())
    known = Evidence(lines=lines, filters=filters, before=DatapathSample(sample_of(megaflows, filters)))
    findings = check_dump(SERVICES, lines, evidence=known)
    assert (_verdicts(findings), findings.growth.packets) == ({Verdict.HW: BLOCKS}, 0)
    (remark,) = growth_remarks(findings, known)
    assert "it refreshes its counters more rarely" in remark


def test_hardware_packets_beyond_32_bits_are_no_quarter() -> None:
    """`packets 5760767254, hw_packets 1465799958` was shown as 25 % in hardware."""
    findings = _findings("beyond_32_bits", samples=1)
    assert findings.hw_share == 1
    assert all(block.hw_packets == block.packets > 5_760_767_000 for block in findings.blocks)
