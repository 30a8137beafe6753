"""`xenoovs verify-offload` in every scenario: each block's verdict and counters are those of the NIC's own table."""

from __future__ import annotations

from typing import Any

import pytest

from tests.nic.guest.catalogue import JUDGED
from tests.nic.judged import Judged, judged_at, judgements, megaflows_of
from tests.nic.recorded import Seen, Story, tc_age_s, tc_counters
from xenoovs.openflow.flow import ETH_IPV4

BLOCKS = 7
"""Flows of balancers/dns.yaml and of balancers/foreign_port.yaml."""
TAKEN = (("overlapping", "a prefix"), ("overlapping", "the service"))
"""Looks at which a foreign flow sends packets of blocks to another port than the config does."""
_OLD_S = 3
_WORSE = ("ABSENT", "HW", "UNCONFIRMED", "TC_SW", "SW")

every_scenario = pytest.mark.parametrize("story", JUDGED, indirect=True)


def _true_verdict(block: dict[str, Any], look: Seen) -> str:
    """By the NIC's table and the filters of traffic control; of several megaflows the worst."""
    flows = megaflows_of(block, look)
    places = [_place(look, flow.ufid or "") for flow in flows]
    worst = max(places, key=_WORSE.index, default="ABSENT")
    is_counted = any(flow.packets for flow in flows)
    return "UNCONFIRMED" if worst == "HW" and not is_counted and _is_old(block, look) else worst


def _is_old(block: dict[str, Any], look: Seen) -> bool:
    """Whether the NIC has held a rule of the block for seconds, in which a packet would have been counted."""
    return any(tc_age_s(look)[flow.ufid or ""] >= _OLD_S for flow in megaflows_of(block, look))


def _place(look: Seen, ufid: str) -> str:
    held = {rule.ufid: rule.packets for rule in look.rules}
    if ufid in held:
        # Nothing is sent while a moment is judged, so that only counters can confirm the NIC.
        return "HW" if held[ufid] >= tc_counters(look)[ufid].sw_packets else "UNCONFIRMED"
    return "TC_SW" if ufid in look.tc_ufids else "SW"


def _true_answers(judged: Judged) -> set[str]:
    """The same of megaflows of answers: all IP packets from the port of the backends."""
    flows = [flow for flow in judged.look.megaflows if flow.in_port == "p1" and flow.eth_type == ETH_IPV4]
    return {_place(judged.look, flow.ufid or "") for flow in flows}


@every_scenario
def test_each_block_is_where_the_nic_and_traffic_control_have_it(story: Story) -> None:
    for judged in judgements(story, "verify-offload"):
        assert len(judged.verify["blocks"]) == BLOCKS * (2 if story.name == "vlans" else 1)
        for block in judged.verify["blocks"]:
            assert block["verdict"] == _true_verdict(block, judged.look), (judged.look.label, block)


@every_scenario
def test_packets_in_hardware_are_those_that_the_nic_counted(story: Story) -> None:
    for judged in judgements(story, "verify-offload"):
        counted = {rule.ufid: (rule.packets, rule.bytes) for rule in judged.look.rules}
        for block in judged.verify["blocks"]:
            held = [counted.get(flow.ufid or "", (0, 0)) for flow in megaflows_of(block, judged.look)]
            reported = (block["hw_packets"], block["hw_bytes"])
            assert reported == (sum(p for p, _ in held), sum(b for _, b in held)), (judged.look.label, block)


@every_scenario
def test_the_exit_status_is_that_of_the_true_verdicts(story: Story) -> None:
    for judged in judgements(story, "verify-offload"):
        truth = {_true_verdict(block, judged.look) for block in judged.verify["blocks"]} - {"ABSENT"}
        true_status = 2 if (story.name, judged.look.label) in TAKEN else _status(truth, judged)
        assert judged.exit_codes["verify-offload"] == true_status, judged.look.label


@every_scenario
def test_overridden_packets_are_reported_where_a_foreign_flow_matches_some(story: Story) -> None:
    for judged in judgements(story, "verify-offload"):
        assert bool(judged.verify["overrides"]) == ((story.name, judged.look.label) in TAKEN), judged.look.label


def _status(truth: set[str], judged: Judged) -> int:
    misdelivered = any(block["anomalies"].get("misdelivered") for block in judged.verify["blocks"])
    places = truth | _true_answers(judged)
    if truth and (not places <= {"HW", "UNCONFIRMED"} or misdelivered):
        return 2
    # Nothing seen; or all of it in the NIC, and no packet counted yet that would prove it.
    is_proven = places == {"HW"} and any(block["packets"] for block in judged.verify["blocks"])
    return 0 if is_proven else 3


@every_scenario
def test_packets_in_all_are_those_of_the_megaflows(story: Story) -> None:
    for judged in judgements(story, "verify-offload"):
        for block in judged.verify["blocks"]:
            packets = sum(flow.packets for flow in megaflows_of(block, judged.look))
            # A rule that was replaced counts anew, and the megaflow goes on.
            known = {packets, block["hw_packets"]} if judged.look.changed else {packets}
            assert block["packets"] in known, (judged.look.label, block)


@pytest.mark.parametrize(
    ("story", "label"), [("accepted", "before traffic"), ("ageing", "idled out")], indirect=["story"]
)
def test_silence_is_neither_failure_nor_success(story: Story, label: str) -> None:
    judged = judged_at(story, label)
    assert judged.verify["conclusion"] == "nothing_seen"
    assert {block["verdict"] for block in judged.verify["blocks"]} == {"ABSENT"}
    assert (judged.exit_codes["verify-offload"], judged.exit_codes["why"]) == (3, 3)


def test_ageing__only_what_came_back_is_judged(story: Story) -> None:
    judged = judged_at(story, "half of the clients are back")
    verdicts = [block["verdict"] for block in judged.verify["blocks"]]
    assert (verdicts.count("HW"), verdicts.count("ABSENT")) == (1, BLOCKS - 1)
    assert judged.exit_codes["verify-offload"] == 0


@pytest.mark.parametrize(("label", "foreign"), [("a prefix", "nw_src=203.0.113.0/24"), ("a DSCP", "nw_tos=184")])
@pytest.mark.parametrize("story", ["overlapping"], indirect=True)
def test_the_flow_of_others_that_widens_masks_is_named(story: Story, label: str, foreign: str) -> None:
    judged = judged_at(story, label)
    [unwildcarding] = judged.verify["unwildcarded"]
    assert unwildcarding["megaflows"] == judged.verify["blocks_total"]["megaflows"]
    flows = unwildcarding["foreign_flows"]
    assert [flow for flow in flows if foreign in flow] == flows != []


def test_tagged__their_block_is_in_software_and_the_cost_is_said(story: Story) -> None:
    judged = judged_at(story, "one tag")
    verdicts = [block["verdict"] for block in judged.verify["blocks"]]
    assert (verdicts.count("HW"), verdicts.count("TC_SW")) == (BLOCKS - 1, 1)
    [remark] = [remark for remark in judged.verify["remarks"] if "tagged" in remark]
    assert remark.startswith("1 megaflow of tagged packets (any VLAN): ")


def test_accepted__the_way_back_is_judged_beside_the_blocks(story: Story) -> None:
    there = judged_at(story, "answers in hardware")
    [answers] = there.verify["answers"]
    [rule] = [rule for rule in there.look.rules if rule.port == "p1"]
    assert (answers["services"], answers["in_port"], answers["verdicts"]["HW"]) == (["dns"], "p1", 1)
    assert (answers["hw_packets"], answers["sw_packets"]) == (rule.packets, 0)
    sums = [answers, there.verify["blocks_total"], *there.verify["other"]]
    assert there.verify["total"]["packets"] == sum(row["packets"] for row in sums)
    assert there.exit_codes["verify-offload"] == 0


def test_accepted__in_software_alone_are_no_success(story: Story) -> None:
    judged = judged_at(story, "answers in software")
    [answers] = judged.verify["answers"]
    assert {block["verdict"] for block in judged.verify["blocks"]} == {"HW"}
    assert (answers["verdicts"]["TC_SW"], answers["hw_packets"]) == (1, 0)
    assert judged.exit_codes["verify-offload"] == 2


def test_accepted__that_do_not_cross_the_bridge_are_neither_good_nor_bad(story: Story) -> None:
    judged = judged_at(story, "no answers")
    [answers] = judged.verify["answers"]
    assert (answers["in_port"], answers["verdicts"]["ABSENT"]) == (None, 1)
    assert judged.exit_codes["verify-offload"] == 0
