"""Sentences of the report of `verify-offload` that depend on how much is known."""

from __future__ import annotations

import pytest

from xenoovs.cli.offload_report import ReportOptions, _show_override
from xenoovs.openflow.flow import Match
from xenoovs.openflow.text import parse_flow
from xenoovs.verify.findings import OverriddenBlocks

_PREFIX = "priority=2900,udp,nw_src=198.18.1.0/24 actions=drop"
_DSCP = "priority=3000,udp,nw_tos=32 actions=drop"


@pytest.mark.parametrize(
    ("flows", "whose"), [((_PREFIX,), "this foreign flow"), ((_DSCP, _PREFIX), "one of these foreign flows")]
)
def test_one_of_several_candidates_overrides_the_blocks(
    flows: tuple[str, ...], whose: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _show_override(OverriddenBlocks("dns", (), 1, 2, Match(), "drop", tuple(map(parse_flow, flows))), ReportOptions())
    told = capsys.readouterr().out.splitlines()
    assert told[-len(flows) - 1 :] == [f"  by {whose}:", *(f"  {flow}" for flow in flows)]
