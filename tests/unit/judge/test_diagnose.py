"""The whole diagnosis: which megaflows are selected, and the order of their reasons."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import ip_address

import pytest

from tests.unit.judge.programs import two_services
from tests.unit.judge.why_cases import UFID, host, megaflow
from xenoovs.datapath.megaflow import Megaflow
from xenoovs.datapath.parse import parse_megaflow
from xenoovs.evidence.evidence import Evidence
from xenoovs.judge.expected import expected_services
from xenoovs.judge.why.case import Case
from xenoovs.judge.why.diagnose import (
    Attribution,
    MegaflowFilter,
    Selection,
    describe_group,
    diagnose,
    group,
    select_candidates,
)
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.text import parse_flow

SERVICES = expected_services(two_services())


def _lineup(*megaflows: Megaflow, question: MegaflowFilter | None = None) -> Selection:
    asked = (question or MegaflowFilter(source=ip_address("10.0.0.1"))).selects
    return select_candidates(megaflows, SERVICES, asked)


@pytest.mark.parametrize(
    ("question", "is_asked"),
    [
        (MegaflowFilter(), True),
        (MegaflowFilter(service="dns"), True),
        (MegaflowFilter(service="web"), False),
        (MegaflowFilter(source=ip_address("198.18.0.1")), True),
        (MegaflowFilter(source=ip_address("198.18.0.2")), False),
        (MegaflowFilter(source=ip_address("2001:db8::1")), False),
        (MegaflowFilter(ufid=UFID), True),
        (MegaflowFilter(ufid=UFID[:6].upper()), True),
        (MegaflowFilter(ufid="0000"), False),
        (MegaflowFilter(service="web", ufid=UFID), False),
    ],
)
def test_a_filter_selects_a_megaflow_of_a_block(question: MegaflowFilter, is_asked: bool) -> None:
    assert bool(_lineup(megaflow(), question=question).candidates) is is_asked


def test_megaflows_of_no_block_are_not_counted_as_those_of_a_service() -> None:
    """For one source, `why` attributed the packets of all megaflows that may match it to one backend."""
    other = parse_megaflow("in_port(p0),ipv4(src=0.0.0.0/0.0.0.0), packets:9, bytes:1, used:never, dp:ovs, actions:p1")
    question = MegaflowFilter(source=ip_address("198.18.0.1"))
    found = diagnose(_lineup(megaflow("dp:ovs"), other, question=question), Evidence(host()))
    assert [describe_group(alike, has_config=True) for alike in group(found)] == [
        "SW: 1 megaflow of dns (b2), 3 packets",
        "SW: 1 megaflow of no service, 9 packets",
    ]


@pytest.mark.parametrize(("used", "overrides"), [("1.0s", ["dns"]), ("9.5s", [])])
def test_bug_a_megaflow_from_before_a_change_of_flows_overrode_blocks(used: str, overrides: list[str]) -> None:
    """`verify-offload` did not count it, `why` did: packets of blocks had a foreign flow as reason that was gone."""
    old = parse_megaflow(
        f"ufid:{UFID}, in_port(p0),eth(dst=02:00:5e:10:00:01),eth_type(0x0800),ipv4(dst=10.3.10.45,proto=17,frag=no),"
        f"udp(dst=53), packets:3, bytes:294, used:{used}, dp:tc, actions:p7"
    )
    candidates = _lineup(old, question=MegaflowFilter()).candidates
    assert [override.service.name for one in candidates for override in one.overrides] == overrides


TOS = parse_flow("priority=3000,udp,nw_tos=32 actions=drop")
WIDE = "ufid:{ufid}, in_port(p0),eth(dst=c4:70:bd:a0:56:ac),eth_type(0x0800),ipv4(src=0.0.0.0/{mask},dst=10.3.10.46,{tos}frag=no), packets:1, bytes:1, used:0.1s, {layer}, actions:set(eth(dst=02:00:00:00:00:01)),p1"  # noqa: E501


def _line(*, mask: str = "0.0.0.1", tos: str = "tos=0/0xfc,", layer: str = "dp:tc", ufid: str = UFID) -> str:
    return WIDE.format(mask=mask, tos=tos, layer=layer, ufid=ufid)


class _Reader:
    def __init__(self, *flows: Flow) -> None:
        self.flows, self.calls = flows, 0

    def __call__(self) -> tuple[Flow, ...]:
        self.calls += 1
        return self.flows


def _attributed(lines: Sequence[str], reader: _Reader) -> Iterable[Case]:
    selection = select_candidates(map(parse_megaflow, lines), SERVICES, MegaflowFilter().selects)
    return map(Attribution(SERVICES, "ovsbr1", lambda _: None, reader).attributed, selection.candidates)


Widened = tuple[tuple[tuple[str, int], ...], frozenset[str], tuple[Flow, ...] | None]
BY_TOS: Widened = ((("nw_tos", 0xFC),), frozenset(("nw_tos",)), (TOS,))


@pytest.mark.parametrize(
    ("lines", "found", "reads"),
    [
        ([_line(), _line(ufid="b")], [BY_TOS, BY_TOS], 1),
        ([_line(tos="")], [None], 0),
        ([_line(tos="", layer="dp:ovs")], [None], 0),
        # Further bits of a field that our flows match are no new key.
        ([_line(mask="128.0.0.1", tos="")], [((("nw_src", 0x80000000),), frozenset(), ())], 1),
    ],
)
def test_flows_are_read_once_where_a_mask_is_not_ours(
    lines: list[str], found: list[Widened | None], reads: int
) -> None:
    reader = _Reader(TOS, parse_flow("priority=3000,udp,nw_dst=10.0.0.1 actions=drop"))
    bits = (one.unwildcarded for one in _attributed(lines, reader))
    assert [None if each is None else (each.fields, each.added, each.flows) for each in bits] == found
    assert reader.calls == reads


def test_a_megaflow_outside_all_blocks_is_not_attributed() -> None:
    asked = MegaflowFilter(source=ip_address("10.0.0.1")).selects
    selection = select_candidates([megaflow(keys="skb_mark(0x5)")], (), asked)
    (candidate,) = selection.candidates
    assert Attribution((), "ovsbr1", lambda _: None, _Reader(TOS)).attributed(candidate).unwildcarded is None
