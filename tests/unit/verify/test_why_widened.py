"""A flow of others that widens the masks of our megaflows is named as a reason, with what ends that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.verify.why_cases import UFID, case, host, megaflow
from xenoovs.datapath.megaflow import Megaflow
from xenoovs.openflow.text import parse_flow
from xenoovs.verify.why.case import Case, DriverAnswer, Evidence, Widened, shape_of
from xenoovs.verify.why.flows import widened_reasons
from xenoovs.verify.why.reason import Cause, Likelihood, Reason

TOS = parse_flow("priority=3000,udp,nw_tos=32 actions=drop")
BY_TOS = Widened("ovsbr1", (("nw_tos", 0xFC),), frozenset(("nw_tos",)), (TOS,))
MARK = parse_flow("table=1, priority=3000,ip,pkt_mark=0x1/0x1 actions=drop")
BY_MARK = Widened("ovsbr1", (("pkt_mark", 1),), frozenset(("pkt_mark",)), (MARK,))
PREFIX = parse_flow("priority=3000,ip,nw_src=203.0.113.0/24 actions=drop")
BY_PREFIX = Widened("ovsbr1", (("nw_src", 0xFFFFFF00),), frozenset(), (PREFIX,))


def _case(widened: Widened | None, found: Megaflow | None = None, *, evidence: Evidence | None = None) -> Case:
    return replace(case(found, evidence=evidence), widened=widened)


def _only(widened: Widened, found: Megaflow | None = None, *, evidence: Evidence | None = None) -> Reason:
    (reason,) = widened_reasons(_case(widened, found, evidence=evidence))
    assert reason.cause is Cause.WIDENED
    return reason


def _driver(answer: DriverAnswer) -> Evidence:
    return Evidence(host(), driver={UFID: answer})


def test_the_bits_the_flow_and_what_ends_it_are_told() -> None:
    reason = _only(BY_TOS)
    assert (reason.likelihood, "it matches nw_tos 0xfc too" in reason.text) == (Likelihood.LIKELY, True)
    assert reason.evidence == ("flow of others on ovsbr1: priority=3000,udp,nw_tos=32 actions=drop",)
    look, owner, delete, again = reason.mend
    assert look == "ovs-ofctl --names dump-flows ovsbr1 table=0,udp,nw_tos=32"
    assert "its owner's to say" in owner
    assert delete == "ovs-ofctl --strict del-flows ovsbr1 table=0,priority=3000,udp,nw_tos=32"
    assert again == "ovs-appctl revalidator/purge"


def test_a_key_that_open_vswitch_does_not_offload_is_certain_and_the_table_says_so() -> None:
    reason = _only(BY_MARK, megaflow("dp:ovs", keys="skb_mark(0/0x1)"))
    assert (reason.likelihood, "that is not offloaded (" in reason.text) == (Likelihood.CERTAIN, True)
    assert reason.source is not None
    assert "table=1,priority=3000,pkt_mark=0x1/0x1,ip" in reason.mend[2]


@pytest.mark.parametrize(
    ("widened", "answer", "likelihood"),
    [
        (BY_TOS, DriverAnswer(95, "Operation not supported", "unsupported match key"), Likelihood.LIKELY),
        (BY_TOS, DriverAnswer(28, "No space left on device", "rule table is full"), Likelihood.POSSIBLE),
        (BY_PREFIX, DriverAnswer(95, "Operation not supported", "unsupported match key"), Likelihood.POSSIBLE),
    ],
)
def test_only_a_key_that_others_brought_in_may_be_what_the_driver_refuses(
    widened: Widened, answer: DriverAnswer, likelihood: Likelihood
) -> None:
    assert _only(widened, evidence=_driver(answer)).likelihood is likelihood


def test_what_the_driver_takes_is_not_blamed_on_others() -> None:
    assert list(widened_reasons(_case(BY_TOS, evidence=_driver(DriverAnswer(None))))) == []


def test_a_key_that_the_nic_holds_in_a_megaflow_of_this_shape_costs_entries_alone() -> None:
    held = Evidence(host(), in_hardware=frozenset((shape_of(megaflow()),)))
    reason = _only(BY_TOS, evidence=held)
    assert (reason.likelihood, "more entries" in reason.text) == (Likelihood.POSSIBLE, True)


def test_where_no_flow_looks_there_now_the_megaflow_is_left_from_before() -> None:
    reason = _only(replace(BY_TOS, flows=()))
    assert ("left from before a change" in reason.text, reason.mend) == (True, ("ovs-appctl revalidator/purge",))


def test_flows_that_were_not_seen_are_asked_for() -> None:
    reason = _only(replace(BY_TOS, flows=None))
    assert "flows that were not seen" in reason.text
    assert reason.mend[0].endswith("--from-flows FLOWS")


def test_of_many_flows_the_first_are_told_and_the_rest_counted() -> None:
    many = tuple(parse_flow(f"priority={priority},udp,nw_tos=32 actions=drop") for priority in range(3000, 3010))
    reason = _only(replace(BY_TOS, flows=many))
    assert (len(reason.evidence), reason.evidence[-1]) == (4, "and 7 more flows that look there")
    assert sum("del-flows" in command for command in reason.mend) == 3


def test_a_megaflow_that_our_flows_explain_gives_no_reason() -> None:
    assert list(widened_reasons(_case(None))) == []
