"""A real OVN with two chassis, ours on the NIC: what is said of br-int is what the NIC holds."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from tests.nic.guest.frames import LOCAL, REMOTES
from tests.nic.guest.scenarios.logical import BEYOND, HOST, SERVER
from tests.nic.recorded import Story
from xenoovs.datapath.megaflow import Verdict, verdict_of

_CLIENTS, _EACH, _ANSWERS = 64, 5, 20


def _said(story: Story, command: str) -> list[dict[str, Any]]:
    found = [said for said in story.record["said"] if said["argv"][0] == command]
    assert all(said["stderr"] == "" for said in found)
    return [{**json.loads(said["stdout"]), "status": said["exit_code"]} for said in found]


def test_ovn__switching_and_routing_are_in_the_nic_and_verify_offload_counts_as_it_does(story: Story) -> None:
    look, report = story.look("switched and routed"), _said(story, "verify-offload")[0]
    assert (report["status"], report["conclusion"]) == (0, "in_hardware")
    there = 2 * _CLIENTS * _EACH
    assert report["growth"] == {"packets": there + _ANSWERS, "hw_packets": there + _ANSWERS, "hw_share": 1.0}
    rows = {row["in_port"]: row for row in report["rows"] if row["judged"]}
    assert {(row["logical_port"], *row["out"], row["chains"]) for row in rows.values()} == {
        ("vm1", "genev_sys_6081", 2),
        (None, "p0", 1),
    }
    # The NIC says the same: an entry for each megaflow, and its own counters.
    judged = [flow for flow in look.megaflows if flow.eth_type == 0x0800]
    assert {flow.ufid for flow in judged} == {rule.ufid for rule in look.rules}
    assert Counter(map(verdict_of, judged)) == {Verdict.HW: 3}
    counted = Counter[str]()
    for rule in look.rules:
        counted[rule.via or rule.port] += rule.packets
    assert {port: row["hw_packets"] for port, row in rows.items()} == counted
    # A packet that came just before its rule may have met it in the software of traffic control.
    assert report["hw_share"] == pytest.approx(counted.total() / sum(row["packets"] for row in rows.values()))
    assert report["hw_share"] > 0.8


def test_ovn__the_tree_has_the_tunnel_and_the_rule_of_each_link(story: Story) -> None:
    links = [link for link in _said(story, "verify-offload")[0]["links"] if link["judged"]]
    assert [link["tc"]["in_hw"] for link in links] == [True] * 3
    remote, local = REMOTES["geneve"], LOCAL
    out = [tunnel for link in links if link["in_port"] == "p0" for tunnel in link["tunnels_out"]]
    assert {(each["type"], each["remote"]) for each in out} == {("geneve", remote)}
    [back] = [link["tunnel_in"] for link in links if link["in_port"] != "p0"]
    assert (back["type"], back["remote"], back["local"]) == ("geneve", remote, local)
    # The numbers of vm1 and vm2 in OVN, out and back.
    [answers] = [option["ovn_logical_ports"] for option in back["options"]]
    assert answers[::-1] in [option["ovn_logical_ports"] for tunnel in out for option in tunnel["options"]]


def test_ovn__packets_leave_as_geneve_with_the_option_of_ovn_and_arrive(story: Story) -> None:
    use = [burst for burst in story.record["bursts"] if burst["packets_each"] == _EACH]
    # Without ARP between the chassis.
    arrived = [one for burst in use for one in burst["arrived"]["p1"] if one["frame"]["destination"]]
    frames = [(one["frame"], one["packets"]) for one in arrived]
    outer = [frame["outer"] for frame, _ in frames]
    assert {(each["type"], each["remote"], each["options"][:8]) for each in outer} == {
        ("geneve", REMOTES["geneve"], "01028001")
    }
    assert {frame["destination"]: (frame["mac"], packets, frame["intact"]) for frame, packets in frames} == {
        SERVER: ("02:00:00:00:00:02", _CLIENTS * _EACH, True),
        BEYOND: ("02:00:00:00:00:03", _CLIENTS * _EACH, True),
    }
    [answers] = [
        burst for burst in story.record["bursts"] if (burst["port"], burst["packets_each"]) == (HOST, _ANSWERS)
    ]
    assert sum(one["packets"] for one in answers["arrived"]["p0"] if one["frame"]["destination"]) == _ANSWERS
