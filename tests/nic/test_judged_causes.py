"""`xenoovs doctor`: the rows that are wrong are the true causes, and no others."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from tests.nic.judged import judged_at
from tests.nic.recorded import Story

WRONG: Mapping[tuple[str, str], list[tuple[str, str | None]]] = {
    ("accepted", "answers in software"): [("hw-tc-offload", "p1")],
    ("overlapping", "a DSCP"): [("foreign flows", "ovsbr1")],
    ("foreign_port", "after 5 packets of each client by p0 and 3 by x0"): [
        ("hw-tc-offload", "x0"),
        ("same eSwitch", "x0"),
    ],
    ("switched", "off"): [("hw-offload", None)],
    ("switched", "off again"): [("hw-offload", None), ("hw-offload in effect", None)],
    ("skip_hw", "after 5 packets of each client"): [("tc-policy", None)],
    ("fixed", "without its qdisc"): [("ingress qdisc", "p0")],
    ("fixed", "without the feature"): [("hw-tc-offload", "p0")],
    ("copying", "exporting"): [("flow export", "ovsbr1")],
    ("copying", "mirrored"): [("mirrors", "ovsbr1")],
    ("ageing", "half of the clients are back"): [("flow-limit", None)],
}
RIGHT = (
    ("accepted", "no answers"),
    ("foreign", "after 5 packets of each client, 2 of a few to foreign flows"),
    ("switched", "on"),
    ("fixed", "fixed"),
    ("fixed", "fixed again"),
)
"""Looks at which nothing is wrong in the set-up."""


@pytest.mark.parametrize(("story", "label"), [*WRONG, *RIGHT], indirect=["story"])
def test_what_is_wrong_is_named_and_nothing_else(story: Story, label: str) -> None:
    judged = judged_at(story, label)
    assert judged.wrong == WRONG.get((story.name, label), [])
    assert judged.exit_codes["doctor"] == (2 if judged.wrong else 0)


def test_overlapping__the_foreign_flow_is_shown(story: Story) -> None:
    judged = judged_at(story, "a DSCP")
    [row] = [row for row in judged.doctor["checks"] if row["check"] == "foreign flows"]
    assert "nw_tos=184" in row["seen"]
    assert row["state"] != "ok"


def test_fixed__the_nic_holds_the_blocks_only_then(story: Story) -> None:
    held = {look.label: len(look.rules) for look in story.looks}
    assert held == {"fixed": 7, "without its qdisc": 0, "fixed again": 7, "without the feature": 0}


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
