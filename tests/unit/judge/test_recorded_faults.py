"""Dumps of a NIC that does not use its rules, recorded on the emulated NIC with Open vSwitch 3.1 and iproute2 6.1."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.compiled import compiled
from xenoovs.cli.offload import growth_remarks
from xenoovs.datapath.host import CpuCounter, PortPackets
from xenoovs.datapath.megaflow import Megaflow, Verdict
from xenoovs.datapath.parse import parse_dump
from xenoovs.datapath.tc import TcFilter, parse_tc_json, with_known_counters
from xenoovs.evidence.evidence import Evidence
from xenoovs.evidence.samples import DatapathSample, check_ports, sample_of
from xenoovs.judge.expected import expected_services
from xenoovs.judge.findings import Conclusion, OffloadFindings
from xenoovs.judge.offload import check_dump
from xenoovs.model.load import load_config

GOLDEN = Path(__file__).parents[2] / "golden" / "verify"
HERE = GOLDEN / "faulty"
BLOCKS = 7


def _read(name: str) -> tuple[tuple[Megaflow, ...], dict[str, TcFilter]]:
    filters = with_known_counters(parse_tc_json((HERE / f"{name}.tc.json").read_text()))
    megaflows = tuple(parse_dump((HERE / f"{name}.dump").read_text()))
    return megaflows, {found.cookie or "": found for found in filters}


def _findings(phase: str, *, samples: int) -> OffloadFindings:
    services = expected_services(compiled(load_config(GOLDEN / "dns.yaml")))
    _, filters = _read(f"{phase}.end")
    before = DatapathSample(sample_of(*_read(f"{phase}.begin"))) if samples == 2 else None
    lines = (HERE / f"{phase}.end.dump").read_text().splitlines()
    return check_dump(services, lines, evidence=Evidence(filters=filters, before=before))


def _verdicts(findings: OffloadFindings) -> dict[Verdict, int]:
    return dict(Counter(block.verdict for block in findings.blocks))


@pytest.mark.parametrize(
    ("phase", "verdict", "conclusion"),
    [
        ("no_fault", Verdict.HW, Conclusion.IN_HARDWARE),
        ("never_used", Verdict.IDLE_HW, Conclusion.NOT_ALL_IN_HARDWARE),
        ("reset", Verdict.IDLE_HW, Conclusion.NOT_ALL_IN_HARDWARE),
        ("each_third_packet", Verdict.TC_SW, Conclusion.NOT_ALL_IN_HARDWARE),
        ("beyond_32_bits", Verdict.HW, Conclusion.IN_HARDWARE),
    ],
)
def test_two_samples_show_what_the_nic_does(phase: str, verdict: Verdict, conclusion: Conclusion) -> None:
    """All of these are `in_hw` in traffic control, and `offloaded:yes` in the dump."""
    findings = _findings(phase, samples=2)
    assert _verdicts(findings) == {verdict: BLOCKS}
    assert findings.conclusion_for(None) is conclusion
    assert findings.conclusion_for(0.95) is conclusion


COUNTED_TWICE = [
    {"p0": PortPackets(missed, CpuCounter.CPU, "cpu_hit of `ip stats`", entered)}
    for missed, entered in ((4506, 7980), (5492, 8966))
]
"""What the NIC itself counted meanwhile: 986 packets came in, and all of them went to the CPU."""


def test_packets_that_the_cpu_forwards_and_the_driver_counts_too_are_not_half_in_hardware() -> None:
    services = expected_services(compiled(load_config(GOLDEN / "dns.yaml")))
    samples = [
        DatapathSample(sample_of(*_read(f"counted_twice.{when}")), ports, ports)
        for when, ports in zip(("begin", "end"), COUNTED_TWICE, strict=True)
    ]
    _, filters = _read("counted_twice.end")
    for checks, verdict in ((check_ports(*samples), Verdict.CONTRADICTED), ((), Verdict.TC_SW)):
        known = Evidence(filters=filters, before=samples[0], port_checks=checks)
        lines = (HERE / "counted_twice.end.dump").read_text().splitlines()
        findings = check_dump(services, lines, evidence=known)
        assert _verdicts(findings) == {verdict: BLOCKS}
        assert findings.growth.hw_packets * 2 == findings.growth.packets
        assert findings.conclusion_for(None) is Conclusion.NOT_ALL_IN_HARDWARE
    [port] = check_ports(*samples)
    assert (port.entered, port.twice > 900) == (986, True)


def test_counters_that_did_not_grow_between_two_samples_are_no_idle_rules() -> None:
    services = expected_services(compiled(load_config(GOLDEN / "dns.yaml")))
    megaflows, filters = _read("no_fault.end")
    lines = tuple((HERE / "no_fault.end.dump").read_text().splitlines())
    known = Evidence(lines=lines, filters=filters, before=DatapathSample(sample_of(megaflows, filters)))
    findings = check_dump(services, lines, evidence=known)
    assert (_verdicts(findings), findings.growth.packets) == ({Verdict.HW: BLOCKS}, 0)
    (remark,) = growth_remarks(findings, known)
    assert "it refreshes its counters more rarely" in remark


def test_one_sample_shows_rules_that_were_never_used() -> None:
    findings = _findings("never_used", samples=1)
    assert _verdicts(findings) == {Verdict.IDLE_HW: BLOCKS}
    assert findings.hw_share == 0


def test_hardware_packets_beyond_32_bits_are_no_quarter() -> None:
    """`packets 5760767254, hw_packets 1465799958` was shown as 25 % in hardware."""
    findings = _findings("beyond_32_bits", samples=1)
    assert findings.hw_share == 1
    assert all(block.hw_packets == block.packets > 5_760_767_000 for block in findings.blocks)
