"""`why` judges by two samples, as verify-offload does. Recorded dumps of a NIC that does not use its rules stand in."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.command_line import CommandLine
from tests.compiled import compiled
from tests.fake_switch import FakeSwitch, fake_bridge
from tests.unit.judge.why_cases import host
from xenoovs.cli import why
from xenoovs.datapath.parse import parse_dump
from xenoovs.datapath.tc import TcFilter, parse_tc_json, with_known_counters
from xenoovs.evidence.collector import Collector
from xenoovs.evidence.evidence import Evidence
from xenoovs.evidence.samples import DatapathSample, PortFinding, sample_of
from xenoovs.model.load import load_config
from xenoovs.switch import vlog
from xenoovs.switch.endpoint import Endpoint

GOLDEN = Path(__file__).parents[2] / "golden" / "verify"
CONFIG = GOLDEN / "dns.yaml"
CONTRADICTED = PortFinding("p0", received=5000, explained=3, tolerance=60, source="rx_packets")


class _Recorded:
    """Recorded phases in the place of a datapath; after a reinstallation the second one is read."""

    def __init__(self) -> None:
        self.phases, self.ports = ["no_fault"], tuple[PortFinding, ...]()

    def megaflows(self, collector: Collector) -> Evidence:
        phase = self.phases.pop(0) if len(self.phases) > 1 else self.phases[0]
        filters = {sample: _filters(f"{phase}.{sample}") for sample in ("begin", "end")}
        begin = (GOLDEN / "faulty" / f"{phase}.begin.dump").read_text()
        before = DatapathSample(sample_of(parse_dump(begin), filters["begin"])) if collector.interval_s else None
        lines = tuple((GOLDEN / "faulty" / f"{phase}.end.dump").read_text().splitlines())
        return Evidence(
            lines=lines, filters=filters["end"], before=before, port_checks=self.ports, target=collector.target
        )


def _filters(name: str) -> dict[str, TcFilter]:
    found = with_known_counters(parse_tc_json((GOLDEN / "faulty" / f"{name}.tc.json").read_text()))
    return {each.cookie or "": each for each in found}


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> _Recorded:
    """A switch with the flows of the config, whose datapath is a recorded one."""
    switch, datapath = FakeSwitch(fake_bridge("ovsbr1", ("p0", "p1"))), _Recorded()
    switch.install("ovsbr1", compiled(load_config(CONFIG)).flows)
    switch.endpoint = Endpoint("unix:/nonexistent/db.sock", Path("/nonexistent"))  # type: ignore[attr-defined]
    monkeypatch.setattr(why, "reach", lambda *_: switch)
    monkeypatch.setattr(why, "finish_leftovers", lambda _: ())
    monkeypatch.setattr(Collector, "host", lambda _: host())
    monkeypatch.setattr(Collector, "megaflows", lambda collector, *_, **__: datapath.megaflows(collector))
    monkeypatch.setattr(vlog, "OffloadLog", lambda _: SimpleNamespace(listen=lambda **_: ""))
    return datapath


@pytest.mark.parametrize(
    ("phase", "verdict", "cause"),
    [
        ("reset", "IDLE_HW", "rule-unused"),
        ("never_used", "IDLE_HW", "rule-unused"),
        ("each_third_packet", "TC_SW", "rule-partly-used"),
    ],
)
def test_rules_that_the_nic_does_not_use_end_with_2(
    recorded: _Recorded, xenoovs: CommandLine, phase: str, verdict: str, cause: str
) -> None:
    """`why` printed `all in hardware` and ended with 0."""
    recorded.phases = [phase]
    result = xenoovs("why", CONFIG, "-o", "json")
    rows = json.loads(result.out)["megaflows"]
    assert result.status == 2
    assert {(row["verdict"], row["reasons"][0]["cause"]) for row in rows} == {(verdict, cause)}


@pytest.mark.parametrize(("options", "shown"), [((), "all in hardware"), (("--interval", "0s"), "one sample was made")])
def test_rules_that_the_nic_uses_end_with_0_and_one_sample_is_weak_evidence(
    recorded: _Recorded, xenoovs: CommandLine, options: tuple[str, ...], shown: str
) -> None:
    result = xenoovs("why", CONFIG, *options)
    assert (result.status, shown in result.out) == (0, True), result.out


def test_a_contradicted_port_ends_with_2(recorded: _Recorded, xenoovs: CommandLine) -> None:
    recorded.ports = (CONTRADICTED,)
    result = xenoovs("why", CONFIG)
    assert result.status == 2
    assert "CONTRADICTED: " in result.out
    assert "p0 gave 5000 packets to the CPU" in result.out


def test_reinstall_reports_that_the_nic_had_lost_rules(recorded: _Recorded, xenoovs: CommandLine) -> None:
    recorded.phases = ["reset", "no_fault"]
    result = xenoovs("why", CONFIG, "--reinstall")
    assert result.status == 0, result.out
    assert "before Open vSwitch reinstalled megaflows, the NIC did not use " in result.out
    assert "all in hardware" in result.out
