"""Random cases: the verdict on each megaflow is what its packets did, and the reason is what the NIC answered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from ipaddress import IPv4Address
from typing import Any

import pytest

from tests.nic.generated import CASES_OF_ROUND, PARTS, ROUNDS, SEED, Case, CaseRound, generate
from tests.nic.recorded import Story, tc_counters
from tests.nic.truth import Rule, parse_rules
from xenoovs.datapath.megaflow import Megaflow, match_of
from xenoovs.datapath.parse import parse_dump

_STRAY = 0.01
_TOLERATED = 10

every_part = pytest.mark.parametrize("story", PARTS, indirect=True)


def test_all_rounds_are_in_a_scenario_and_those_of_the_first_have_each_limit_and_fault() -> None:
    rounds = generate()
    assert sorted(number for part in PARTS.values() for number in range(ROUNDS)[part]) == [*range(ROUNDS)]
    assert generate(1) == generate(1) != generate(2)
    first, every = (
        {pair for each in some for pair in (*each.limits.items(), *each.faults.items())}
        for some in (rounds[PARTS["generated"]], rounds)
    )
    assert first == every
    assert all(len({value for name, value in every if name == limit}) > 1 for limit in rounds[0].limits)


@every_part
def test_each_verdict_is_what_the_packets_of_its_case_did(story: Story) -> None:
    compared, different = 0, list[str]()
    for number, case, round_, one, megaflow in _judged(story):
        compared += 1
        told, truth = _told(one).get(megaflow.ufid or ""), _truth(one, round_, megaflow)
        if told not in truth:
            different.append(f"{told}, but packets say {' or '.join(sorted(truth))}: {_shown(number, round_, case)}")
    assert compared >= len(story.record["rounds"]) * CASES_OF_ROUND == 100
    assert not different, "\n".join(different)


def test_generated__every_verdict_occurs(story: Story) -> None:
    verdicts = {_told(one).get(megaflow.ufid or "") for _, _, _, one, megaflow in _judged(story)}
    assert {"HW", "TC_SW", "SW", "IDLE_HW", "CONTRADICTED"} <= verdicts


@every_part
def test_each_reason_is_the_answer_of_the_nic(story: Story) -> None:
    compared, different, kinds = 0, list[str](), set[str]()
    for number, case, round_, one, megaflow in _judged(story):
        if megaflow.ufid not in story.refused or _truth(one, round_, megaflow) != {"TC_SW"}:
            continue
        compared += 1
        why = json.loads(one["why"]["stdout"])
        explained = {each["ufid"]: each["reasons"] for each in why["megaflows"]}
        reasons = explained.get(megaflow.ufid, [])
        # A megaflow that is still there in the next round is offered again, with other limits.
        answers = {f"the driver reports: {answer}" for answer in story.refusals[megaflow.ufid]}
        kinds |= answers
        if not reasons or answers.isdisjoint(reasons[0]["evidence"]):
            different.append(f"{reasons[:1]}, but {' or '.join(answers)}: {_shown(number, round_, case)}")
    assert compared >= 10
    assert not different, "\n".join(different)
    for limit in ("table is full", "priority", "collision", "prefix masks") if story.name == "generated" else ():
        assert any(limit in kind for kind in kinds), (limit, kinds)


def _shown(number: int, round_: CaseRound, case: Case) -> str:
    return f"case {number} of seed {SEED}, with {round_.limits}, {round_.faults}: {case}"


def _judged(story: Story) -> Iterator[tuple[int, Case, CaseRound, dict[str, Any], Megaflow]]:
    """Each megaflow of a case, with the record of its round."""
    part = PARTS[story.name]
    number = (part.start or 0) * CASES_OF_ROUND
    for round_, one in zip(generate()[part], story.record["rounds"], strict=True):
        by_destination = dict[int, list[Megaflow]]()
        for megaflow in parse_dump(one["megaflows"]):
            destination = match_of(megaflow).get("nw_dst")
            if megaflow.in_port == "p0" and destination is not None:
                by_destination.setdefault(destination.value, []).append(megaflow)
        for case in round_.cases:
            number += 1
            for megaflow in by_destination.get(int(IPv4Address(case.kind.destination)), ()):
                yield number, case, round_, one, megaflow


def _told(one: dict[str, Any]) -> dict[str, str]:
    """The verdicts of `verify-offload`, by ufid."""
    tree = json.loads(one["verify"]["stdout"])["tree"]
    groups = [*tree["outside"], *(block for service in tree["services"] for block in service["blocks"])]
    return {found["ufid"]: found["verdict"] for group in groups for found in group["megaflow_list"]}


def _truth(one: dict[str, Any], round_: CaseRound, megaflow: Megaflow) -> set[str]:
    """The verdicts that are true by the NIC's own counters: more than one only where nothing grew to decide."""
    before, after = (_by_ufid(one[moment]) for moment in ("before", "after"))
    rule = after.get(megaflow.ufid or "")
    counters = tc_counters(one["tc"])
    if rule is None:
        return {"TC_SW" if megaflow.ufid in counters else "SW"}
    hit, passed = _grown(rule, before.get(rule.ufid))
    if hit + passed:
        if not hit:
            return {"IDLE_HW"}
        if passed > _STRAY * (hit + passed):
            return {"TC_SW"}
        return {"CONTRADICTED" if "bypass" in round_.faults and _is_noticed(before, after) else "HW"}
    if rule.packets >= counters[rule.ufid].sw_packets:
        return {"HW"}
    # Whether the last packet came long after the rule is not in the NIC's table.
    return {"UNCONFIRMED"} if rule.packets else {"UNCONFIRMED", "IDLE_HW"}


def _by_ufid(text: str) -> dict[str, Rule]:
    return {rule.ufid: rule for rule in parse_rules(text)}


def _grown(rule: Rule, before: Rule | None) -> tuple[int, int]:
    return rule.packets - (before.packets if before else 0), rule.passed - (before.passed if before else 0)


def _is_noticed(before: dict[str, Rule], after: dict[str, Rule]) -> bool:
    """Whether the CPU got more packets of the NIC's rules than first packets and strays explain."""
    received = sum(_grown(rule, before.get(ufid))[0] for ufid, rule in after.items())
    return received > _TOLERATED + _STRAY * received
