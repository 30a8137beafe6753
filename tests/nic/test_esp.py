"""Real ESP: ovs-monitor-ipsec and strongSwan at both ends of a tunnel that xenoovs has made."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from tests.nic.guest.frames import REMOTES
from tests.nic.recorded import Seen, Story, tc_counters
from xenoovs.datapath.megaflow import Megaflow, Verdict, verdict_of

_CLIENTS = 64
_POLICY = f"src 192.168.77.1/32 dst {REMOTES['geneve']}/32 proto udp dport 6081"
_BY_CPU, _IN_NIC = "encrypted by the CPU", "the NIC does not know of IPsec"


def _burst(story: Story, port: str, packets_each: int) -> dict[str, Any]:
    [found] = [each for each in story.record["bursts"] if (each["port"], each["packets_each"]) == (port, packets_each)]
    return dict(found)


def _of_tunnel(bursts: Iterable[dict[str, Any]]) -> Counter[str]:
    """Packets on the cable with the outer header of ESP or of a tunnel, by its type."""
    found = Counter[str]()
    for burst in bursts:
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


def _of(look: Seen, port: str) -> Megaflow:
    """The megaflow of packets of clients, or of answers, that enter by a port of the datapath."""
    [found] = [flow for flow in look.megaflows if flow.in_port == port and flow.key("eth_type") == "0x0800"]
    return found


def test_tunnel_esp__packets_of_clients_leave_as_esp_alone_and_arrive(story: Story) -> None:
    burst = _burst(story, "p0", 5)
    assert _of_tunnel([burst]) == {"esp": 5 * _CLIENTS}
    assert _of_clients(burst, "host", "10.3.10.45") == 5 * _CLIENTS
    # And before there was an SA nothing left in the clear.
    assert set(_of_tunnel(story.look(_BY_CPU).sent)) == {"esp"}


def test_tunnel_esp__apply_waits_for_the_policy(story: Story) -> None:
    early, done = story.said("apply")[:2]
    assert (early["exit_code"], "no policy covers packets to" in " ".join(early["stderr"].split())) == (1, True)
    assert done["exit_code"] == 0


def test_tunnel_esp__answers_come_back(story: Story) -> None:
    assert _of_clients(_burst(story, "host", 40), "p0", "198.18.0.64") == 40


def test_tunnel_esp__verify_offload_expects_the_cpu(story: Story) -> None:
    said = story.said("verify-offload")[0]
    report = json.loads(said["stdout"])
    assert (said["exit_code"], report["cleartext"], report["encrypted_by_cpu_blocks"]) == (0, [], 1)
    assert report["conclusion"] == "encrypted_by_cpu"
    [block] = report["blocks"]
    assert block["verdict"] == "TC_SW"
    # The NIC holds the rule for answers, and never sees what is inside of ESP.
    [answers] = report["answers"]
    assert {verdict for verdict, count in answers["verdicts"].items() if count} == {"IDLE_HW"}


def test_tunnel_esp__the_tables_say_so_too(story: Story) -> None:
    """Traffic control: in hardware, and all packets in software. The NIC: no packet of its rule."""
    look = story.look(_BY_CPU)
    out, answers = _of(look, "p0"), _of(look, "genev_sys_6081")
    assert (verdict_of(out), verdict_of(answers)) == (Verdict.TC_SW, Verdict.HW)
    assert story.refusals[out.ufid or ""][0] == "eswitch: an IPsec policy covers the packets of this tunnel"
    assert out.ufid not in {rule.ufid for rule in look.rules}
    counters = tc_counters(look.tc)[answers.ufid or ""]
    assert (counters.hw_packets, counters.sw_packets >= 40) == (0, True)
    [rule] = [rule for rule in look.rules if rule.ufid == answers.ufid]
    assert rule.packets == 0


def test_tunnel_esp__a_nic_that_encapsulates_past_the_policy_is_cleartext(story: Story) -> None:
    look, said = story.look(_IN_NIC), story.said("verify-offload")[1]
    assert verdict_of(_of(look, "p0")) is Verdict.HW
    assert _of_tunnel([_burst(story, "p0", 2)]) == {"geneve": 2 * _CLIENTS}
    [found] = json.loads(said["stdout"])["cleartext"]
    assert (said["exit_code"], found["remote"], found["policy"]) == (2, REMOTES["geneve"], _POLICY)
    assert found["reason"] == "no SA is offloaded to p1, so only the CPU encrypts, and it does not see them"


def test_tunnel_esp__doctor_has_seen_esp_each_way(story: Story) -> None:
    rows = json.loads(story.said("doctor")[1]["stdout"])["checks"]
    assert {(row["check"], row["state"]) for row in rows if row["check"].startswith("IPsec")} == {
        *((f"IPsec {what}", "ok") for what in ("programs", "key", "policy", "SA")),
        ("IPsec offload", "unknown"),
    }
    assert [row["seen"] for row in rows if row["check"] == "IPsec policy"] == [_POLICY]
