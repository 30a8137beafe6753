"""A foreign flow that un-wildcards bits of our megaflows is a reason, with the fix."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.judge.why_cases import UFID, case, host, megaflow
from xenoovs.datapath.megaflow import Megaflow
from xenoovs.datapath.tc import DriverAnswer
from xenoovs.evidence.evidence import Evidence
from xenoovs.judge.why.case import Case, UnwildcardedBits, shape_of
from xenoovs.judge.why.flows import unwildcarded_reasons
from xenoovs.judge.why.reason import Cause, Likelihood, Reason
from xenoovs.openflow.text import parse_flow

TOS = parse_flow("priority=3000,udp,nw_tos=32 actions=drop")
BY_TOS = UnwildcardedBits("ovsbr1", (("nw_tos", 0xFC),), frozenset(("nw_tos",)), (TOS,))
MARK = parse_flow("table=1, priority=3000,ip,pkt_mark=0x1/0x1 actions=drop")
BY_MARK = UnwildcardedBits("ovsbr1", (("pkt_mark", 1),), frozenset(("pkt_mark",)), (MARK,))
PREFIX = parse_flow("priority=3000,ip,nw_src=203.0.113.0/24 actions=drop")
BY_PREFIX = UnwildcardedBits("ovsbr1", (("nw_src", 0xFFFFFF00),), frozenset(), (PREFIX,))


def _case(widened: UnwildcardedBits | None, found: Megaflow | None = None, *, evidence: Evidence | None = None) -> Case:
    return replace(case(found, evidence=evidence), unwildcarded=widened)


def _only(widened: UnwildcardedBits, found: Megaflow | None = None, *, evidence: Evidence | None = None) -> Reason:
    (reason,) = unwildcarded_reasons(_case(widened, found, evidence=evidence))
    assert reason.cause is Cause.UNWILDCARDED
    return reason


def _driver(answer: DriverAnswer) -> Evidence:
    return Evidence(host(), driver={UFID: answer})


def test_the_reason_has_the_bits_the_flow_and_the_fix() -> None:
    reason = _only(BY_TOS)
    assert (reason.likelihood, "a foreign flow un-wildcards nw_tos 0xfc" in reason.text) == (Likelihood.LIKELY, True)
    assert reason.evidence == ("foreign flow on ovsbr1: priority=3000,udp,nw_tos=32 actions=drop",)
    show, owner, delete, again = reason.fix
    assert show == "ovs-ofctl --names dump-flows ovsbr1 table=0,udp,nw_tos=32"
    assert "ask the flow's owner first" in owner
    assert delete == "ovs-ofctl --strict del-flows ovsbr1 table=0,priority=3000,udp,nw_tos=32"
    assert again == "ovs-appctl revalidator/purge"


def test_a_key_that_open_vswitch_does_not_offload_is_certain_with_the_row_of_the_table() -> None:
    reason = _only(BY_MARK, megaflow("dp:ovs", keys="skb_mark(0/0x1)"))
    assert (reason.likelihood, "which is not offloaded (" in reason.text) == (Likelihood.CERTAIN, True)
    assert reason.source is not None
    assert "table=1,priority=3000,pkt_mark=0x1/0x1,ip" in reason.fix[2]


@pytest.mark.parametrize(
    ("widened", "answer", "likelihood"),
    [
        (BY_TOS, DriverAnswer(95, "Operation not supported", "unsupported match key"), Likelihood.LIKELY),
        (BY_TOS, DriverAnswer(28, "No space left on device", "rule table is full"), Likelihood.POSSIBLE),
        (BY_PREFIX, DriverAnswer(95, "Operation not supported", "unsupported match key"), Likelihood.POSSIBLE),
    ],
)
def test_only_a_key_of_foreign_flows_may_be_what_the_driver_refuses(
    widened: UnwildcardedBits, answer: DriverAnswer, likelihood: Likelihood
) -> None:
    assert _only(widened, evidence=_driver(answer)).likelihood is likelihood


def test_a_rule_that_the_driver_accepts_is_not_attributed_to_foreign_flows() -> None:
    assert list(unwildcarded_reasons(_case(BY_TOS, evidence=_driver(DriverAnswer(None))))) == []


def test_a_key_that_the_nic_holds_in_a_megaflow_of_this_shape_costs_entries_alone() -> None:
    held = Evidence(host(), in_hardware=frozenset((shape_of(megaflow()),)))
    reason = _only(BY_TOS, evidence=held)
    assert (reason.likelihood, "more entries" in reason.text) == (Likelihood.POSSIBLE, True)


def test_without_such_a_flow_the_megaflow_is_from_before_a_change() -> None:
    reason = _only(replace(BY_TOS, flows=()))
    assert ("from before a change" in reason.text, reason.fix) == (True, ("ovs-appctl revalidator/purge",))


def test_without_flows_the_fix_is_to_add_them() -> None:
    reason = _only(replace(BY_TOS, flows=None))
    assert "flows that were not read" in reason.text
    assert reason.fix[0].endswith("--from-flows FLOWS")


def test_of_many_flows_the_first_are_listed_and_the_rest_counted() -> None:
    many = tuple(parse_flow(f"priority={priority},udp,nw_tos=32 actions=drop") for priority in range(3000, 3010))
    reason = _only(replace(BY_TOS, flows=many))
    assert (len(reason.evidence), reason.evidence[-1]) == (4, "and 7 more flows that match these bits")
    assert sum("del-flows" in command for command in reason.fix) == 3
