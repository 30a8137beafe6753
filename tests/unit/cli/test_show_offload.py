"""Sentences of the report of `verify-offload` that depend on how much is known."""

from __future__ import annotations

import pytest

from xenoovs.cli.offload_report import ReportOptions, _show_override, show_bridge
from xenoovs.datapath.megaflow import Verdict
from xenoovs.judge.bridge import BridgeFindings, BridgeRow
from xenoovs.judge.findings import OverriddenBlocks
from xenoovs.openflow.flow import Match
from xenoovs.openflow.text import parse_flow

_PREFIX = "priority=2900,udp,nw_src=198.18.1.0/24 actions=drop"
_DSCP = "priority=3000,udp,nw_tos=32 actions=drop"


@pytest.mark.parametrize(
    ("flows", "whose"), [((_PREFIX,), "this foreign flow"), ((_DSCP, _PREFIX), "one of these foreign flows")]
)
def test_one_of_several_candidates_overrides_the_blocks(
    flows: tuple[str, ...], whose: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _show_override(OverriddenBlocks("dns", (), 1, 2, Match(), "drop", tuple(map(parse_flow, flows))), ReportOptions())
    output = capsys.readouterr().out.splitlines()
    assert output[-len(flows) - 1 :] == [f"  by {whose}:", *(f"  {flow}" for flow in flows)]


@pytest.mark.parametrize(
    ("recirculating", "has_tc_chains", "is_reported"), [(2, False, True), (0, False, False), (2, None, False)]
)
def test_one_sentence_reports_that_the_kernel_has_no_chains(
    recirculating: int, has_tc_chains: bool | None, is_reported: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = (BridgeRow("p0", Verdict.SW, "", True, 2, 10, 1000, chains=1, exits=("p1", "p2", "p3")),)
    names = {"p0": "vm1", "p1": "p1"}
    findings = BridgeFindings(
        rows, (), 2, 0, recirculating=recirculating, has_tc_chains=has_tc_chains, logical_ports=names
    )
    show_bridge(findings, ReportOptions())
    output = capsys.readouterr().out
    assert ("built without CONFIG_NET_TC_SKB_EXT" in output.splitlines()[0]) is is_reported
    assert "p0 (vm1)  p1, p2 and 1 more  SW" in output
