"""Real ESP: ovs-monitor-ipsec and strongSwan at both ends of a tunnel that xenoovs has made."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from tests.nic.guest.frames import REMOTES
from tests.nic.recorded import Story

_CLIENTS, _ANSWERS = 64, 40


def _bursts(story: Story, port: str, packets_each: int) -> list[dict[str, Any]]:
    bursts = story.record["bursts"]
    return [burst for burst in bursts if (burst["port"], burst["packets_each"]) == (port, packets_each)]


def _of_tunnel(burst: dict[str, Any]) -> Counter[str]:
    """Packets on the cable with the outer header of ESP or of a tunnel, by its type."""
    found = Counter[str]()
    for one in burst["arrived"]["p1"]:
        if one["frame"]["outer"] is not None:
            found[one["frame"]["outer"]["type"]] += one["packets"]
    return found


def _of_clients(burst: dict[str, Any], port: str, destination: str) -> int:
    """Packets that are whole, without an outer header."""
    frames = [(one["frame"], one["packets"]) for one in burst["arrived"][port]]
    return sum(
        packets
        for frame, packets in frames
        if (frame["destination"], frame["outer"], frame["intact"]) == (destination, None, True)
    )


def _said(story: Story, command: str) -> list[dict[str, Any]]:
    return [said for said in story.record["said"] if said["argv"][0] == command]


def _rows(said: dict[str, Any]) -> dict[str, tuple[str, str]]:
    checks = json.loads(said["stdout"])["checks"]
    return {row["check"]: (row["state"], row["seen"]) for row in checks if row["check"].startswith("IPsec")}


def test_tunnel_esp__packets_of_clients_leave_as_esp_alone_and_arrive(story: Story) -> None:
    [burst] = _bursts(story, "p0", 5)
    assert _of_tunnel(burst) == {"esp": 5 * _CLIENTS}
    assert _of_clients(burst, "host", "10.3.10.45") == 5 * _CLIENTS
    # And before there was an SA nothing left in the clear.
    assert {kind for burst in _bursts(story, "p0", 1)[:-1] for kind in _of_tunnel(burst)} == {"esp"}


def test_tunnel_esp__apply_waits_for_the_policy(story: Story) -> None:
    early, done = _said(story, "apply")[:2]
    assert (early["exit_code"], "no policy covers packets to" in " ".join(early["stderr"].split())) == (1, True)
    assert done["exit_code"] == 0


def test_tunnel_esp__answers_come_back(story: Story) -> None:
    [burst] = _bursts(story, "host", _ANSWERS)
    assert _of_clients(burst, "p0", "198.18.0.64") == _ANSWERS


def test_tunnel_esp__verify_offload_expects_the_cpu(story: Story) -> None:
    said = _said(story, "verify-offload")[0]
    report = json.loads(said["stdout"])
    assert (said["exit_code"], report["cleartext"], report["encrypted_by_cpu_blocks"]) == (0, [], 1)
    assert report["conclusion"] == "encrypted_by_cpu"
    [block] = report["blocks"]
    assert block["verdict"] == "TC_SW"
    # The NIC holds the rule for answers, and never sees what is inside of ESP.
    [answers] = report["answers"]
    assert {verdict for verdict, count in answers["verdicts"].items() if count} == {"IDLE_HW"}


def test_tunnel_esp__doctor_has_seen_esp_each_way(story: Story) -> None:
    rows = _rows(_said(story, "doctor")[1])
    assert {check: state for check, (state, _) in rows.items()} == {
        "IPsec programs": "ok",
        "IPsec key": "ok",
        "IPsec policy": "ok",
        "IPsec SA": "ok",
        "IPsec offload": "unknown",
    }
    remote = REMOTES["geneve"]
    assert rows["IPsec policy"][1] == f"src 192.168.77.1/32 dst {remote}/32 proto udp dport 6081"


def test_tunnel_esp__without_its_key_the_tunnel_is_in_the_clear_and_doctor_and_apply_say_so(story: Story) -> None:
    assert set(_of_tunnel(_bursts(story, "p0", 1)[-1])) == {"geneve"}
    said = _said(story, "verify-offload")[-1]
    [found] = json.loads(said["stdout"])["cleartext"]
    remote = REMOTES["geneve"]
    assert (said["exit_code"], found["remote"], found["policy"]) == (2, remote, None)
    assert found["reason"] == f"the config wants IPsec for packets to {remote}, and no policy covers them"
    said = _said(story, "doctor")[-1]
    rows = _rows(said)
    assert (said["exit_code"], rows["IPsec key"]) == (2, ("wrong", "Open vSwitch does not have the key of /run/psk"))
    assert (rows["IPsec policy"][0], rows["IPsec programs"][0]) == ("wrong", "ok")
    refused = _said(story, "apply")[-1]
    assert (refused["exit_code"], "would send unencrypted: it has no option psk" in refused["stderr"]) == (1, True)
