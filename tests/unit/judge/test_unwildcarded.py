"""Which foreign flows are named for bits that none of our flows matches."""

from __future__ import annotations

import pytest

from tests.judged import check_offload
from tests.unit.judge.programs import two_services
from xenoovs.datapath.megaflow import match_of
from xenoovs.datapath.parse import parse_megaflow
from xenoovs.judge.expected import expected_services
from xenoovs.judge.findings import Unwildcarding
from xenoovs.judge.foreign import extra_bits, unwildcarding_flows
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.text import parse_flow

SERVICES = expected_services(two_services())
DNS = SERVICES[0]
PREFIX = (("nw_src", 0xFFFFFF00),)


def _flow(text: str) -> Flow:
    return parse_flow(f"{text} actions=drop")


def _named(*texts: str, extra: tuple[tuple[str, int], ...] = PREFIX) -> list[str]:
    flows = [_flow(text) for text in texts]
    found = unwildcarding_flows(extra, flows, service=DNS, in_port="p0")
    return [text for text, flow in zip(texts, flows, strict=True) if flow in found]


@pytest.mark.parametrize(
    "text",
    [
        "priority=3000,ip,nw_src=203.0.113.0/24",
        "priority=3000,ip,in_port=p0,nw_src=203.0.113.7",
        "table=1, priority=3000,ip,nw_src=203.0.113.0/24",
    ],
)
def test_a_flow_above_ours_that_matches_these_bits_is_named(text: str) -> None:
    below, elsewhere = "priority=1,ip,nw_src=10.0.0.0/8", "priority=3000,ip,in_port=p1,nw_src=10.0.0.0/9"
    assert _named(below, text, "priority=4000,ip,nw_dst=10.0.0.1", elsewhere) == [text]


def test_a_flow_below_ours_counts_in_a_subtable_with_one_above() -> None:
    flows = ("priority=3000,ip,nw_src=10.0.0.0/24", "priority=1,ip,nw_src=10.0.1.0/24")
    assert _named(*flows) == list(flows)


def test_without_a_certain_flow_all_candidates_are_named() -> None:
    flows = ("table=9, priority=1,ip,nw_src=10.0.0.0/24", "priority=5,ip,nw_src=0.0.0.1/0.0.0.1")
    assert _named(*flows) == [flows[0]]


def test_unknown_fields_are_compared_by_name() -> None:
    flow = "priority=3000,ip,nw_ttl=64"
    assert _named(flow, "priority=3000,tcp", extra=(("nw_ttl", 0xFF),)) == [flow]


def test_a_foreign_flow_unwildcards_bits_of_the_tos() -> None:
    fields = parse_megaflow(
        "eth_type(0x0800),ipv4(dst=1.2.3.4,tos=0/0xfc), packets:0, bytes:0, used:never, actions:drop"
    )
    extra = extra_bits(match_of(fields), {"nw_dst": 0xFFFFFFFF, "dl_type": 0xFFFF})
    assert extra == (("nw_tos", 0xFC),)
    flow = "priority=3000,ip,nw_tos=184"
    assert _named(flow, "priority=3000,tcp", extra=extra) == [flow]


def test_bits_that_our_own_flows_match_are_not_unwildcarded() -> None:
    """Those of one service make Open vSwitch match more in the megaflows of another."""
    megaflow = parse_megaflow(
        "in_port(p0),eth(dst=c4:70:bd:a0:56:ac),eth_type(0x0800),ipv4(src=0.0.0.0/0.0.0.1,dst=10.3.10.46,proto=6), "
        "packets:1, bytes:1, used:0.1s, dp:tc, actions:set(eth(dst=02:00:00:00:00:01)),p1"
    )
    assert check_offload(SERVICES, [megaflow]).unwildcardings == (Unwildcarding("web", (("nw_proto", 0xFF),), 1, "p0"),)
    own = {"nw_src": 1, "nw_proto": 0xFF, "nw_dst": 0xFFFFFFFF, "dl_dst": 0xFFFFFFFFFFFF, "dl_type": 0xFFFF}
    assert check_offload(SERVICES, [megaflow], own_mask=lambda _: own).unwildcardings == ()
