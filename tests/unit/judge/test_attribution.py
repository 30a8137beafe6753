"""Foreign flows are read once, if they matter, and attributed to the candidates whose bits they un-wildcard."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from tests.unit.judge.programs import two_services
from tests.unit.judge.why_cases import host, megaflow
from xenoovs.datapath.parse import parse_megaflow
from xenoovs.datapath.tc import DriverAnswer
from xenoovs.evidence.evidence import Evidence
from xenoovs.judge.expected import expected_services
from xenoovs.judge.why.diagnose import Attribution, MegaflowFilter, Selection, diagnose, select_candidates
from xenoovs.judge.why.reason import Cause
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.text import parse_flow

SERVICES = expected_services(two_services())
TOS = parse_flow("priority=3000,udp,nw_tos=32 actions=drop")
WIDE = "ufid:{ufid}, in_port(p0),eth(dst=c4:70:bd:a0:56:ac),eth_type(0x0800),ipv4(src=0.0.0.0/{mask},dst=10.3.10.46,{tos}frag=no), packets:1, bytes:1, used:0.1s, {layer}, actions:set(eth(dst=02:00:00:00:00:01)),p1"  # noqa: E501
UFID = "43d31ab9-4e39-4fcc-bd80-4aaf34dc5a32"


def _line(*, mask: str = "0.0.0.1", tos: str = "tos=0/0xfc,", layer: str = "dp:tc", ufid: str = UFID) -> str:
    return WIDE.format(mask=mask, tos=tos, layer=layer, ufid=ufid)


def _lineup(*lines: str) -> Selection:
    return select_candidates(map(parse_megaflow, lines), SERVICES, MegaflowFilter().selects)


class _Reader:
    def __init__(self, *flows: Flow) -> None:
        self.flows, self.calls = flows, 0

    def __call__(self) -> tuple[Flow, ...]:
        self.calls += 1
        return self.flows


def _with_evidence(selection: Selection, reader: _Reader) -> Selection:
    return Attribution(SERVICES, "ovsbr1", lambda _: None, reader).attribute(selection)


def test_each_candidate_gets_the_flow_that_unwildcards_bits() -> None:
    reader = _Reader(TOS, parse_flow("priority=3000,udp,nw_dst=10.0.0.1 actions=drop"))
    candidates = _with_evidence(_lineup(_line(), _line(ufid="b")), reader).candidates
    assert [one.unwildcarded.flows for one in candidates if one.unwildcarded] == [(TOS,), (TOS,)]
    assert [(one.unwildcarded.fields, one.unwildcarded.added) for one in candidates if one.unwildcarded] == [
        ((("nw_tos", 0xFC),), frozenset(("nw_tos",)))
    ] * 2
    assert reader.calls == 1


def test_further_bits_of_a_field_that_our_flows_match_are_no_new_key() -> None:
    (candidate,) = _with_evidence(_lineup(_line(mask="128.0.0.1", tos="")), _Reader()).candidates
    assert candidate.unwildcarded is not None
    assert (candidate.unwildcarded.fields, candidate.unwildcarded.added) == ((("nw_src", 0x80000000),), frozenset())


@pytest.mark.parametrize("layer", ["dp:tc", "dp:ovs"])
def test_no_flows_are_read_where_every_mask_is_ours(layer: str) -> None:
    reader = _Reader(TOS)
    (candidate,) = _with_evidence(_lineup(_line(tos="", layer=layer)), reader).candidates
    assert (candidate.unwildcarded, reader.calls) == (None, 0)


def test_a_megaflow_outside_all_blocks_is_not_attributed() -> None:
    asked = MegaflowFilter(source=ip_address("10.0.0.1")).selects
    selection = select_candidates([megaflow(keys="skb_mark(0x5)")], (), asked)
    (candidate,) = Attribution((), "ovsbr1", lambda _: None, _Reader(TOS)).attribute(selection).candidates
    assert candidate.unwildcarded is None


def test_beside_the_drivers_refusal_stands_the_flow_that_brought_the_key_in() -> None:
    """The driver's `unsupported match key` named neither the key, nor the flow, nor a fix."""
    refused = DriverAnswer(95, "Operation not supported", "eswitch: unsupported match key")
    selection = _with_evidence(_lineup(_line()), _Reader(TOS))
    (found,) = diagnose(selection, Evidence(host(), driver={UFID: refused}))
    assert [reason.cause for reason in found.reasons] == [Cause.REFUSED_BY_DRIVER, Cause.UNWILDCARDED]
    assert "ovs-ofctl --strict del-flows ovsbr1 table=0,priority=3000,udp,nw_tos=32" in found.reasons[1].fix


def test_without_a_trial_the_flow_comes_before_the_refusal_without_a_reason() -> None:
    (found,) = diagnose(_with_evidence(_lineup(_line()), _Reader(TOS)), Evidence(host()))
    assert [reason.cause for reason in found.reasons] == [Cause.UNWILDCARDED, Cause.REFUSED_BY_DRIVER]


def test_what_is_merely_possible_does_not_hide_that_it_was_not_offered() -> None:
    (found,) = diagnose(_with_evidence(_lineup(_line(layer="dp:ovs")), _Reader(TOS)), Evidence(host()))
    assert [reason.cause for reason in found.reasons] == [Cause.NOT_RETRIED, Cause.UNWILDCARDED]
