"""`why` judges by two samples, as verify-offload does. Recorded dumps of a NIC that does not use its rules stand in."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.command_line import CommandLine
from tests.compiled import compiled
from tests.fake_switch import FakeSwitch, fake_bridge
from tests.judged import assert_recorded
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
    monkeypatch.setattr("xenoovs.switch.host_facts.gather", lambda _: host())
    monkeypatch.setattr(Collector, "megaflows", lambda collector, *_, **__: datapath.megaflows(collector))
    monkeypatch.setattr(vlog, "OffloadLog", lambda _: SimpleNamespace(listen=lambda **_: ""))
    return datapath


CASES: dict[str, tuple[list[str], tuple[PortFinding, ...], tuple[str, ...]]] = {
    # `why` printed `all in hardware` and ended with 0.
    "bug: rules that the NIC lost": (["reset"], (), ()),
    "bug: rules that the NIC never used": (["never_used"], (), ()),
    "bug: rules that the NIC uses for each third packet": (["each_third_packet"], (), ()),
    "rules that the NIC uses": (["no_fault"], (), ()),
    "one sample is weak evidence": (["no_fault"], (), ("--interval", "0s")),
    "a contradicted port": (["no_fault"], (CONTRADICTED,), ()),
    "a reinstallation reports that the NIC had lost rules": (["reset", "no_fault"], (), ("--reinstall",)),
}


def test_two_samples_are_judged(
    recorded: _Recorded, xenoovs: CommandLine, monkeypatch: pytest.MonkeyPatch, *, update_golden: bool
) -> None:
    monkeypatch.chdir(GOLDEN)
    said = dict[str, str]()
    for title, (recorded.phases, recorded.ports, options) in CASES.items():
        result = xenoovs("why", "dns.yaml", *options)
        said[title] = f"{result.out}{result.err}[exit status {result.status}]"
    assert_recorded("reasons/samples.txt", said, update=update_golden)
