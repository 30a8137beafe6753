"""Sentences of the report of `verify-offload` that depend on how much is known."""

from __future__ import annotations

import pytest

from xenoovs.cli.verify_offload import _show_taking
from xenoovs.openflow.flow import Match
from xenoovs.openflow.text import parse_flow
from xenoovs.verify.findings import Taking

_PREFIX = "priority=2900,udp,nw_src=198.18.1.0/24 actions=drop"
_DSCP = "priority=3000,udp,nw_tos=32 actions=drop"


@pytest.mark.parametrize(("flows", "whose"), [((_PREFIX,), "this flow"), ((_DSCP, _PREFIX), "one of these flows")])
def test_of_several_flows_that_may_have_taken_packets_one_did(
    flows: tuple[str, ...], whose: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _show_taking(Taking("dns", (), 1, 2, Match(), "drop", tuple(map(parse_flow, flows))))
    told = capsys.readouterr().out.splitlines()
    assert told[-len(flows) - 1 :] == [f"  by {whose} of somebody else:", *(f"  {flow}" for flow in flows)]
