"""Real ESP: ovs-monitor-ipsec and strongSwan at both ends of a tunnel that xenoovs has made."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from tests.nic.guest.frames import REMOTES
from tests.nic.recorded import Seen, Story, filter_counters
from xenoovs.datapath.megaflow import Megaflow, Verdict, verdict_of

_CLIENTS = 64
_POLICY = f"src 192.168.77.1/32 dst {REMOTES['geneve']}/32 proto udp dport 6081"
_BY_CPU, _IN_NIC, _WITHOUT_KEY, _CERTIFIED = (
    "encrypted by the CPU",
    "the NIC does not know of IPsec",
    "without its key",
    "encrypted by certificates",
)


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


def _said(story: Story, command: str, balancer: str = "esp") -> list[dict[str, Any]]:
    return [said for said in story.record["said"] if said["argv"][:2] == [command, balancer]]


def _rows(said: dict[str, Any]) -> dict[tuple[str, str], tuple[str, str]]:
    checks = json.loads(said["stdout"])["checks"]
    mine = [row for row in checks if row["check"].startswith("IPsec")]
    return {(row["check"], row["subject"] or ""): (row["state"], row["seen"]) for row in mine}


def _states(said: dict[str, Any]) -> dict[str, set[str]]:
    found = dict[str, set[str]]()
    for (check, _), (state, _) in _rows(said).items():
        found.setdefault(check, set()).add(state)
    return found


def _row(said: dict[str, Any], check: str) -> tuple[str, str]:
    [found] = [row for (name, _), row in _rows(said).items() if name == check]
    return found


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
    early, done = _said(story, "apply")[:2]
    assert (early["exit_code"], "no policy covers packets to" in " ".join(early["stderr"].split())) == (1, True)
    assert done["exit_code"] == 0


def test_tunnel_esp__answers_come_back(story: Story) -> None:
    assert _of_clients(_burst(story, "host", 40), "p0", "198.18.0.64") == 40


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


def test_tunnel_esp__the_tables_say_so_too(story: Story) -> None:
    """Traffic control: in hardware, and all packets in software. The NIC: no packet of its rule."""
    look = story.look(_BY_CPU)
    out, answers = _of(look, "p0"), _of(look, "genev_sys_6081")
    assert (verdict_of(out), verdict_of(answers)) == (Verdict.TC_SW, Verdict.HW)
    assert story.refusals[out.ufid or ""][0] == "eswitch: an IPsec policy covers the packets of this tunnel"
    assert out.ufid not in {rule.ufid for rule in look.rules}
    counters = filter_counters(look.tc)[answers.ufid or ""]
    assert (counters.hw_packets, counters.sw_packets >= 40) == (0, True)
    [rule] = [rule for rule in look.rules if rule.ufid == answers.ufid]
    assert rule.packets == 0


def test_tunnel_esp__a_nic_that_encapsulates_past_the_policy_is_cleartext(story: Story) -> None:
    look, said = story.look(_IN_NIC), _said(story, "verify-offload")[1]
    assert verdict_of(_of(look, "p0")) is Verdict.HW
    assert _of_tunnel([_burst(story, "p0", 2)]) == {"geneve": 2 * _CLIENTS}
    [found] = json.loads(said["stdout"])["cleartext"]
    assert (said["exit_code"], found["remote"], found["policy"]) == (2, REMOTES["geneve"], _POLICY)
    assert found["reason"] == "no SA is offloaded to p1, so only the CPU encrypts, and it does not see them"


def test_tunnel_esp__doctor_has_seen_esp_each_way(story: Story) -> None:
    said = _said(story, "doctor")[1]
    assert _states(said) == {
        "IPsec programs": {"ok"},
        "IPsec key": {"ok"},
        "IPsec policy": {"ok"},
        "IPsec SA": {"ok"},
        "IPsec offload": {"unknown"},
    }
    assert _row(said, "IPsec policy")[1] == _POLICY


def test_tunnel_esp__without_its_key_the_tunnel_is_in_the_clear_and_doctor_and_apply_say_so(story: Story) -> None:
    assert set(_of_tunnel(story.look(_WITHOUT_KEY).sent[-1:])) == {"geneve"}
    said = _said(story, "verify-offload")[-1]
    [found] = json.loads(said["stdout"])["cleartext"]
    remote = REMOTES["geneve"]
    assert (said["exit_code"], found["remote"], found["policy"]) == (2, remote, None)
    assert found["reason"] == f"the config wants IPsec for packets to {remote}, and no policy covers them"
    said = _said(story, "doctor")[-1]
    assert (said["exit_code"], _row(said, "IPsec key")) == (
        2,
        ("wrong", "Open vSwitch does not have the key of /run/psk"),
    )
    assert (_row(said, "IPsec policy")[0], _row(said, "IPsec programs")[0]) == ("wrong", "ok")
    refused = _said(story, "apply")[-1]
    assert (refused["exit_code"], "would send unencrypted: it has no option psk" in refused["stderr"]) == (1, True)


def test_tunnel_esp__with_certificates_packets_leave_as_esp_alone_and_arrive(story: Story) -> None:
    """An authority signed those of both ends; Open vSwitch has names of files alone."""
    bursts = story.record["bursts"][len(story.look(_WITHOUT_KEY).sent) :]
    assert set(_of_tunnel(bursts)) == {"esp"}
    burst = _burst(story, "p0", 3)
    assert _of_tunnel([burst]) == {"esp": 3 * _CLIENTS}
    assert _of_clients(burst, "host", "10.3.10.45") == 3 * _CLIENTS
    assert _of_clients(_burst(story, "host", 24), "p0", "198.18.0.64") == 24


def test_tunnel_esp__with_certificates_all_commands_are_content(story: Story) -> None:
    by_certificate = "esp_certificate"
    [applied] = _said(story, "apply", by_certificate)
    [verified] = _said(story, "verify-offload", by_certificate)
    assert (applied["exit_code"], verified["exit_code"]) == (0, 0)
    assert json.loads(verified["stdout"])["cleartext"] == []
    said = _said(story, "doctor", by_certificate)[-1]
    states = _states(said)
    assert states.pop("IPsec offload") == {"unknown"}
    assert set(states) == {f"IPsec {what}" for what in ("programs", "key", "policy", "SA", "certificate")}
    assert set().union(*states.values()) == {"ok"}
    own = _rows(said)["IPsec certificate", "/var/lib/keys/balancer.pem"]
    assert own[1].startswith("balancer, until ")
    assert verdict_of(_of(story.look(_CERTIFIED), "p0")) is Verdict.TC_SW
