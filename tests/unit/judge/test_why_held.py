"""Reasons for rules that the NIC holds and does not use; dumps recorded on the emulated NIC with Open vSwitch 3.1."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.compiled import compiled
from tests.judged import assert_recorded
from tests.unit.judge.why_cases import COOKIE, UFID, host, megaflow, shown
from xenoovs.datapath.host import CpuCounter, PortPackets
from xenoovs.datapath.ipsec import RouteTo
from xenoovs.datapath.megaflow import Megaflow, Verdict
from xenoovs.datapath.parse import parse_dump
from xenoovs.datapath.tc import TcCounters, TcFilter, parse_tc_json, with_known_counters
from xenoovs.datapath.tunnel_facts import Neighbour, TunnelFacts
from xenoovs.diagnosis.offload import growth_remarks
from xenoovs.evidence.evidence import Evidence
from xenoovs.evidence.samples import DatapathSample, PortFinding, check_ports, sample_of
from xenoovs.judge.expected import expected_services
from xenoovs.judge.findings import Conclusion, OffloadFindings
from xenoovs.judge.offload import check_dump
from xenoovs.judge.why.case import Case
from xenoovs.judge.why.diagnose import MegaflowFilter, Selection, diagnose, select_candidates
from xenoovs.judge.why.reason import Cause
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
    found = diagnose(selection, Evidence(host()))
    assert [(each.verdict, reason.cause) for each in found for reason in each.reasons] == [(verdict, cause)] * unused


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
    assert (selection.candidates, selection.in_hardware) == ([], 0)
    assert selection.unconfirmed == selection.uncounted == BLOCKS


def _held(actions: str, *, in_hw: bool = True) -> Selection:
    """A megaflow whose rule has counted 9 packets for 30 seconds, none of them in hardware."""
    rule = TcFilter("ip", 2, 0, 8, COOKIE, in_hw=in_hw, counters=TcCounters(9, 900, 0), active_s=30)
    found = megaflow("offloaded:yes, dp:tc", actions)
    return select_candidates([found], (), MegaflowFilter(ufid=UFID).selects, Evidence(filters={COOKIE: rule}))


def _into_tunnel(remote: str, gateway: Neighbour | None = None) -> Case:
    """The state of the gateway to the remote, if it is known."""
    actions = f"set(tunnel(tun_id=0x1,src=192.0.2.1,{remote},ttl=64,tp_dst=4789,flags(key))),vxlan_sys_4789"
    route = {} if gateway is None else {"192.0.2.7": RouteTo("p1", None, "192.0.2.254")}
    facts = TunnelFacts((), route, neighbours={} if gateway is None else {"192.0.2.254": gateway})
    (found,) = _held(actions).candidates
    return replace(found, evidence=replace(found.evidence, host=replace(host(), tunnels=facts)))


def _cases() -> dict[str, Case]:
    selections = {
        "never used": _selection("never_used"),
        "never used, by one sample": _selection("never_used", samples=1),
        "used until the reset": _selection("reset"),
        "used by a part of the packets": _selection("each_third_packet"),
        "a port that contradicts": _selection("no_fault", CONTRADICTED),
    }
    firsts = {title: found.candidates[0] for title, found in selections.items()}
    answers = Neighbour("192.0.2.7", "02:00:00:00:00:07")
    return {
        **{title: replace(first, evidence=replace(first.evidence, host=host())) for title, first in firsts.items()},
        "into a tunnel": _into_tunnel("dst=192.0.2.7"),
        "into a tunnel of IPv6": _into_tunnel("ipv6_dst=2001:db8::7"),
        # The reset of the NIC came first, whatever the neighbour table said.
        "the next hop does not answer": _into_tunnel("dst=192.0.2.7", Neighbour("192.0.2.7", None, state="FAILED")),
        "the next hop answers": _into_tunnel("dst=192.0.2.7", answers),
    }


def test_the_reasons_of_a_rule_that_the_nic_holds(*, update_golden: bool) -> None:
    """Of the first block."""
    recorded = {title: shown(found) for title, found in _cases().items()}
    assert_recorded("reasons/held.txt", recorded, update=update_golden)


def test_a_rule_that_traffic_control_shows_not_in_hw_was_refused() -> None:
    (candidate,) = _held("p1", in_hw=False).candidates
    assert (candidate.verdict, candidate.held) == (Verdict.TC_SW, None)


def test_bug_a_rule_in_traffic_control_that_its_port_contradicts_was_a_key_error() -> None:
    rule = TcFilter("ip", 2, 0, 8, COOKIE, in_hw=False, counters=TcCounters(9, 900, 9))
    known = Evidence(filters={COOKIE: rule}, before=DatapathSample({}), port_checks=(CONTRADICTED,))
    selection = select_candidates([megaflow("dp:tc", "ct(zone=1),recirc(0x1)")], (), lambda _: True, known)
    (found,) = diagnose(selection, known)
    assert (found.verdict, found.held) == (Verdict.CONTRADICTED, None)
    assert found.reasons


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
