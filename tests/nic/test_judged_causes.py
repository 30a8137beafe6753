"""`xenoovs doctor` in every scenario: the rows that are wrong are the true causes, and no others."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from tests.nic.guest.catalogue import JUDGED
from tests.nic.judged import judged_at, judgements
from tests.nic.recorded import Story

WRONG: Mapping[str, list[tuple[str, str | None]]] = {
    "foreign_prefix": [("foreign flows", "ovsbr1")],
    "overriding": [("foreign flows", "ovsbr1")],
    "widened_by_tos": [("foreign flows", "ovsbr1")],
    "foreign_port": [("hw-tc-offload", "x0"), ("same eSwitch", "x0")],
    "hw_offload_off": [("hw-offload", None)],
    "turned_off_not_restarted": [("hw-offload", None), ("hw-offload in effect", None)],
    "skip_hw": [("tc-policy", None)],
    "hw_tc_offload_off": [("hw-tc-offload", "p0")],
    "exporting": [("flow export", "ovsbr1")],
    "mirrored": [("mirrors", "ovsbr1")],
    "flow_limit": [("flow-limit", None)],
}
"""Scenarios whose set-up is wrong at every look; nothing is wrong in the set-up of the others."""


@pytest.mark.parametrize("story", [name for name in JUDGED if name not in ("answers", "fixed")], indirect=True)
def test_what_is_wrong_is_named_and_nothing_else(story: Story) -> None:
    for judged in judgements(story):
        assert judged.wrong == WRONG.get(story.name, []), judged.look.label
        assert judged.exit_codes["doctor"] == (2 if judged.wrong else 0)


def test_answers__the_port_of_the_backends_is_named(story: Story) -> None:
    labels = ("no answers", "answers in hardware", "answers in software")
    assert [judged_at(story, label).wrong for label in labels] == [[], [], [("hw-tc-offload", "p1")]]


def test_widened_by_tos__the_foreign_flow_is_shown(story: Story) -> None:
    [judged] = judgements(story)
    [row] = [row for row in judged.doctor["checks"] if row["check"] == "foreign flows"]
    assert "nw_tos=184" in row["seen"]
    assert row["state"] != "ok"


def test_fixed(story: Story) -> None:
    labels = ("fixed", "without its qdisc", "fixed again")
    assert [judged_at(story, label).wrong for label in labels] == [[], [("ingress qdisc", "p0")], []]


def test_fixed__the_nic_holds_the_blocks_only_then(story: Story) -> None:
    held = {look.label: len(look.rules) for look in story.looks}
    assert held == {"fixed": 7, "without its qdisc": 0, "fixed again": 7}


def test_fixed__each_fix_is_reported(story: Story) -> None:
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


def test_foreign_rule__its_packets_are_lost_and_all_commands_name_it(story: Story) -> None:
    """36 of 96 packets were dropped; verify-offload said "all in hardware", and doctor "unknown"."""
    before, lost = story.record["bursts"][-2:]
    assert [sum(one["packets"] for port in burst["arrived"].values() for one in port) for burst in (before, lost)] == [
        64 * 5,
        27,
    ]
    verify, text, doctor = story.record["said"][-3:]
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
