"""Which flows the packets of a megaflow visit, by ofproto/trace: recorded with Open vSwitch 3.1 below OVN 23.03."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xenoovs.judge.trace import VisitedFlow, parse_visited

HERE = Path(__file__).parent / "traces"
OUTPUT = VisitedFlow("br-int", 39, 0xBE4FB783, "reg15=0x1,metadata=0x1, priority 100", ("output:2",))


def _visited(name: str) -> tuple[VisitedFlow, ...]:
    return parse_visited((HERE / f"{name}.txt").read_text())


def test_a_link_that_is_tracked_ends_at_the_flow_with_ct() -> None:
    """OVN has 7 flows before it, which write registers or nothing; what follows in the trace is the next link."""
    match = "udp,reg0=0x4/0x4,metadata=0x1,nw_dst=10.0.0.100,tp_dst=80, priority 120"
    ct = "ct(table=15,zone=NXM_NX_REG13[0..15],nat)"
    assert _visited("tracked") == (VisitedFlow("br-int", 14, 0x909874A2, match, (ct,)),)


def test_a_link_behind_a_hash_goes_on_with_the_flow_that_hashed() -> None:
    (flow,) = _visited("hashed")
    assert (flow.bridge, flow.table, flow.cookie) == ("br-int", 20, 0x9CF9475E)
    assert [action.partition("(")[0] for action in flow.actions] == ["group:1", "ct"]


def test_a_link_into_a_tunnel_visits_two_bridges() -> None:
    assert _visited("into_tunnel") == (OUTPUT, VisitedFlow("br-ul", 0, 0, "priority 0", ("NORMAL",)))


def test_flows_behind_another_bridge_are_of_the_first_one_again() -> None:
    text = (HERE / "into_tunnel.txt").read_text().replace("40. priority 0\n    drop", "40. priority 0\n    output:7")
    assert parse_visited(text)[-1] == VisitedFlow("br-int", 40, 0, "priority 0", ("output:7",))


@pytest.mark.parametrize(
    "text", ["", "Final flow: ip\n", "syntax error", "    drop\n", "\n=====================\n 0. x"]
)
def test_a_text_without_flows_has_none(text: str) -> None:
    assert parse_visited(text) == ()


@given(st.text(alphabet=' 0123.\n:(){}->abcdeprioytk,="#', max_size=200))
def test_any_text_is_read(text: str) -> None:
    parse_visited(text)
