"""`verify-offload`, `why` and `doctor` in every scenario, against the NIC's own table and what it answered."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.nic.guest.catalogue import JUDGED
from tests.nic.guest.scenarios.faulty import COARSE_CLIENTS, STARTS
from tests.nic.judged import Judged, judged_at, judgements, megaflows_of
from tests.nic.recorded import BLOCKS, VIP, Seen, Story, tc_counters

_OLD_S = 3
_WORSE = ("ABSENT", "HW", "UNCONFIRMED", "TC_SW", "SW")
_FOREIGN = "after 5 packets of each client, 2 of a few to foreign flows"
_FOREIGN_PORT = "after 5 packets of each client by p0 and 3 by x0"

every_scenario = pytest.mark.parametrize("story", JUDGED, indirect=True)
every_explained = pytest.mark.parametrize(
    "story", ["accepted", "drain", "fixed", "foreign", "foreign_port", "vlans"], indirect=True
)


def _true_verdict(block: dict[str, Any], look: Seen) -> str:
    """By the NIC's table and the filters of traffic control; of several megaflows the worst."""
    flows = megaflows_of(block, look)
    places = [_place(look, flow.ufid or "") for flow in flows]
    worst = max(places, key=_WORSE.index, default="ABSENT")
    is_counted = any(flow.packets for flow in flows)
    return "UNCONFIRMED" if worst == "HW" and not is_counted and _is_old(block, look) else worst


def _is_old(block: dict[str, Any], look: Seen) -> bool:
    """Whether the NIC has held a rule of the block for seconds, in which a packet would have been counted."""
    rules = (look.filters[flow.ufid or ""] for flow in megaflows_of(block, look))
    return any(rule["actions"][-1].get("installed", 0) >= _OLD_S for rule in rules)


def _place(look: Seen, ufid: str) -> str:
    held = {rule.ufid: rule.packets for rule in look.rules}
    if ufid in held:
        # Nothing is sent while a moment is judged, so that only counters can confirm the NIC.
        return "HW" if held[ufid] >= tc_counters(look.tc)[ufid].sw_packets else "UNCONFIRMED"
    return "TC_SW" if ufid in look.filters else "SW"


def _true_answers(judged: Judged) -> set[str]:
    """The same of megaflows of answers: all IP packets from the port of the backends."""
    flows = [flow for flow in judged.look.megaflows if flow.in_port == "p1" and flow.source(4) is not None]
    return {_place(judged.look, flow.ufid or "") for flow in flows}


@every_scenario
def test_each_block_is_where_the_nic_and_traffic_control_have_it_and_has_their_packets(story: Story) -> None:
    for judged in judgements(story, "verify-offload"):
        counted = {rule.ufid: (rule.packets, rule.bytes) for rule in judged.look.rules}
        assert len(judged.verify["blocks"]) == BLOCKS * (2 if story.name == "vlans" else 1)
        for block in judged.verify["blocks"]:
            assert block["verdict"] == _true_verdict(block, judged.look), (judged.look.label, block)
            flows = megaflows_of(block, judged.look)
            held = [counted.get(flow.ufid or "", (0, 0)) for flow in flows]
            reported = (block["hw_packets"], block["hw_bytes"])
            assert reported == (sum(p for p, _ in held), sum(b for _, b in held)), (judged.look.label, block)
            packets = sum(flow.packets for flow in flows)
            # A rule that was replaced counts anew, and the megaflow goes on.
            known = {packets, block["hw_packets"]} if judged.look.changed else {packets}
            assert block["packets"] in known, (judged.look.label, block)
        assert judged.verify["overrides"] == []


@every_scenario
def test_the_exit_status_is_that_of_the_true_verdicts(story: Story) -> None:
    for judged in judgements(story, "verify-offload"):
        truth = {_true_verdict(block, judged.look) for block in judged.verify["blocks"]} - {"ABSENT"}
        assert judged.exit_codes["verify-offload"] == _status(truth, judged), judged.look.label


def _status(truth: set[str], judged: Judged) -> int:
    misdelivered = any(block["anomalies"].get("misdelivered") for block in judged.verify["blocks"])
    places = truth | _true_answers(judged)
    if truth and (not places <= {"HW", "UNCONFIRMED"} or misdelivered):
        return 2
    # Nothing seen; or all of it in the NIC, and no packet counted yet that would prove it.
    is_proven = places == {"HW"} and any(block["packets"] for block in judged.verify["blocks"])
    return 0 if is_proven else 3


def test_accepted__silence_is_neither_failure_nor_success(story: Story) -> None:
    judged = judged_at(story, "before traffic")
    assert judged.verify["conclusion"] == "nothing_seen"
    assert {block["verdict"] for block in judged.verify["blocks"]} == {"ABSENT"}
    assert (judged.exit_codes["verify-offload"], judged.exit_codes["why"]) == (3, 3)


def test_accepted__the_way_back_is_judged_beside_the_blocks(story: Story) -> None:
    there, software, silent = (
        judged_at(story, label) for label in ("answers in hardware", "answers in software", "no answers")
    )
    [answers], [in_software], [absent] = (each.verify["answers"] for each in (there, software, silent))
    [rule] = [rule for rule in there.look.rules if rule.port == "p1"]
    assert (answers["services"], answers["in_port"], answers["verdicts"]["HW"]) == (["dns"], "p1", 1)
    assert (answers["hw_packets"], answers["sw_packets"]) == (rule.packets, 0)
    sums = [answers, there.verify["blocks_total"], *there.verify["other"]]
    assert there.verify["total"]["packets"] == sum(row["packets"] for row in sums)
    assert {block["verdict"] for block in software.verify["blocks"]} == {"HW"}
    assert (in_software["verdicts"]["TC_SW"], in_software["hw_packets"]) == (1, 0)
    assert (absent["in_port"], absent["verdicts"]["ABSENT"]) == (None, 1)
    assert [each.exit_codes["verify-offload"] for each in (there, software, silent)] == [0, 2, 0]


@every_explained
def test_exactly_the_megaflows_without_an_entry_of_the_nic_are_explained_in_its_own_words(story: Story) -> None:
    for judged in judgements(story, "why"):
        held = {rule.ufid for rule in judged.look.rules}
        flows = [flow for flow in judged.look.megaflows if flow.in_port in ("p0", "p1", "x0")]
        assert set(judged.explained) == {flow.ufid for flow in flows} - held, judged.look.label
        assert not [reasons for reasons in judged.explained.values() if reasons[0]["cause"] == "unknown"]
        in_tc = judged.look.filters.keys() - judged.look.in_hardware_by_tc
        for ufid in in_tc & story.refused.keys():
            first = judged.explained[ufid][0]
            assert first["likelihood"] == "confirmed", first
            # After a purge the same megaflow is offered again, and may be refused for another reason.
            answers = {f"the driver reports: {answer}" for answer in story.refusals[ufid]}
            assert answers & set(first["evidence"]), first


@every_explained
def test_why_changes_no_filter_no_entry_and_no_log_level(story: Story) -> None:
    for judged in judgements(story, "why"):
        assert judged.after == judged.before, judged.look.label


@pytest.mark.parametrize(
    ("story", "label", "destination", "cause"),
    [
        ("foreign", _FOREIGN, VIP, "refused-by-driver"),
        ("foreign", _FOREIGN, "10.3.10.46", "refused-by-driver"),
        ("foreign", _FOREIGN, "10.3.10.47", "refused-by-driver"),
        ("foreign", _FOREIGN, "10.3.10.48", "unsupported-action"),
        ("foreign", _FOREIGN, "10.3.10.49", "recirculation"),
        ("foreign", _FOREIGN, "10.3.10.50", "unsupported-action"),
        ("vlans", "without VLANs", VIP, "refused-by-driver"),
        ("fixed", "without its qdisc", VIP, "no-ingress-qdisc"),
        ("fixed", "without the feature", VIP, "hw-tc-offload-off"),
    ],
    indirect=["story"],
)
def test_the_true_reason_is_named_first(story: Story, label: str, destination: str, cause: str) -> None:
    assert judged_at(story, label).causes(to=destination) == {cause}


WRONG: Mapping[tuple[str, str], list[tuple[str, str | None]]] = {
    ("accepted", "answers in software"): [("hw-tc-offload", "p1")],
    ("foreign_port", _FOREIGN_PORT): [("hw-tc-offload", "x0"), ("same eSwitch", "x0")],
    ("fixed", "without its qdisc"): [("ingress qdisc", "p0")],
    ("fixed", "without the feature"): [("hw-tc-offload", "p0")],
    ("accepted", "no answers"): [],
    ("foreign", _FOREIGN): [],
    ("fixed", "fixed"): [],
    ("fixed", "fixed again"): [],
}
"""Looks, and the rows of `doctor` that are wrong then."""


@pytest.mark.parametrize(("story", "label"), WRONG, indirect=["story"])
def test_doctor_names_what_is_wrong_and_nothing_else(story: Story, label: str) -> None:
    judged = judged_at(story, label)
    assert judged.wrong == WRONG[story.name, label]
    assert judged.exit_codes["doctor"] == (2 if judged.wrong else 0)


def test_fixed__each_fix_is_reported_and_the_nic_holds_the_blocks_only_then(story: Story) -> None:
    asked = "--db=unix:/run/ovs/fixed/db.sock"
    fixed = [json.loads(said["stdout"])["fixed"] for said in story.record["said"] if "--fix" in said["argv"]]
    assert [[row["fix"].partition(" && ")[0] for row in rows] for rows in fixed] == [
        [
            f"ovs-vsctl {asked} set Open_vSwitch . other_config:hw-offload=true",
            "ethtool -K p0 hw-tc-offload on",
        ],
        ["tc qdisc add dev p0 ingress"],
    ]
    assert [row["error"] for rows in fixed for row in rows] == [None, None, None]
    held = {look.label: len(look.rules) for look in story.looks}
    assert held == {"fixed": BLOCKS, "without its qdisc": 0, "fixed again": BLOCKS, "without the feature": 0}


def test_lost__packets_of_a_foreign_rule_are_dropped_and_all_commands_name_it(story: Story) -> None:
    """36 of 96 packets were dropped; verify-offload said "all in hardware", and doctor "unknown"."""
    before, lost = story.record["bursts"][-2:]
    assert [sum(one["packets"] for port in burst["arrived"].values() for one in port) for burst in (before, lost)] == [
        64 * 5,
        27,
    ]
    verify, text, doctor = story.record["said"][:3]
    (rule,) = json.loads(verify["stdout"])["preempting_rules"]
    assert (rule["device"], rule["preference"], rule["actions"], rule["packets"], rule["in_hw"]) == (
        *("p0", 1, "drop", 9),
        True,
    )
    assert [block["service"] for block in rule["blocks"]] == ["dns"]
    assert (verify["exit_code"], text["exit_code"], doctor["exit_code"]) == (2, 2, 2)
    assert "it took 9 packets" in text["stdout"]
    rows = [row for row in json.loads(doctor["stdout"])["checks"] if row["state"] == "wrong"]
    assert [(row["check"], row["subject"]) for row in rows] == [("TC rules", "p0")]
    assert "pref 1 flower" in rows[0]["seen"]


def test_lost__packets_to_a_port_that_is_gone_are_dropped_and_not_misdelivered(story: Story) -> None:
    """The report said that they leave by another port or with another MAC."""
    said = story.record["said"][-1]
    blocks = json.loads(said["stdout"])["blocks"]
    assert said["exit_code"] == 2
    assert {next(iter(block["anomalies"].items())) for block in blocks} == {("dropped", 1)}


def _verified_coarsely(story: Story) -> tuple[dict[str, Any], ...]:
    """What `verify-offload` as JSON and as text, and `why`, say after the fault."""
    document, text, why = story.record["said"][-STARTS - 3 : -STARTS]
    return document, text, why


def test_coarse__the_blocks_without_a_packet_are_unconfirmed(story: Story) -> None:
    """One block took all 1,984 packets: "every block that has had traffic is forwarded by the NIC", exit status 0."""
    document, text, why = _verified_coarsely(story)
    blocks = json.loads(document["stdout"])["blocks"]
    assert sorted(block["packets"] for block in blocks) == [0] * 6 + [COARSE_CLIENTS]
    assert [said["exit_code"] for said in (document, text, why)] == [3, 3, 3]
    assert {block["verdict"] for block in blocks if not block["packets"]} == {"UNCONFIRMED"}
    # Their weights let expect the packets that were sent.
    unproven = json.loads(document["stdout"])["unproven"]
    assert sorted(each["expected_packets"] for each in unproven) == [
        COARSE_CLIENTS // 64,
        *(COARSE_CLIENTS // 2**bits for bits in (6, 5, 4, 3, 2)),
    ]
    assert f"about {COARSE_CLIENTS // 4} of {COARSE_CLIENTS} expected" in text["stdout"]
    assert "xenoovs measure load rate" in text["stdout"]


def test_coarse__a_start_of_traffic_contradicts_nothing(story: Story) -> None:
    """More packets than one a megaflow came before its rule was in the NIC: CONTRADICTED, exit status 2."""
    documents = [json.loads(said["stdout"]) for said in story.record["said"][-STARTS:]]
    ports = [port for document in documents for port in document["ports"] if port["port"] == "p0"]
    assert len(ports) == STARTS
    assert not [port for port in ports if port["contradicted"]]
