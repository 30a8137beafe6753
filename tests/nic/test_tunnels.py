"""Tunnels: each entry of the NIC is its megaflow, outer header included, and the wire carries what it says."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from tests.nic.guest.catalogue import TUNNELS
from tests.nic.guest.frames import KEY, OPTION, REMOTE_MACS, REMOTES
from tests.nic.guest.ovs import TUNNELS as PORTS
from tests.nic.guest.scenarios.tunnels import BLOCKS
from tests.nic.recorded import Seen, Story
from xenoovs.datapath.megaflow import Megaflow, Verdict, verdict_of
from xenoovs.datapath.outer import encapsulations, parse_outer

CLIENTS = 64
_DEVICES = {port.device for port in PORTS.values()}


def _out(look: Seen) -> list[Megaflow]:
    """The megaflows of clients."""
    return [flow for flow in look.megaflows if flow.in_port == "p0" and flow.source(4) is not None]


def _in(look: Seen) -> list[Megaflow]:
    """The megaflows of answers."""
    return [flow for flow in look.megaflows if flow.in_port in _DEVICES]


def _verdicts(flows: list[Megaflow]) -> Counter[Verdict | None]:
    return Counter(verdict_of(flow) for flow in flows)


def _arrived(burst: dict[str, Any], port: str) -> list[tuple[dict[str, Any], int]]:
    """Frames in a tunnel, or none, with how many came; ARP and the like left out."""
    return [(one["frame"], one["packets"]) for one in burst["arrived"][port] if one["frame"]["destination"]]


@pytest.mark.parametrize("story", TUNNELS, indirect=True)
def test_each_entry_of_a_tunnel_has_the_outer_header_of_its_megaflow(story: Story) -> None:
    for look in story.looks:
        megaflows = {flow.ufid: flow for flow in look.megaflows}
        for rule in look.rules:
            flow = megaflows[rule.ufid]
            written = [(each["dst"], each["key"], each["port"]) for each in rule.encapsulations]
            assert written == [
                (f"192.168.77.{each.remote & 0xFF}", str(each.key), str(each.dst_port or 0))
                for each in encapsulations(flow.actions)
            ]
            # All of it is exact, and a dump leaves out what is zero.
            assert all((value.mask + 1).bit_count() == 1 and value.mask for value in rule.outer.values())
            outer = parse_outer(flow.key("tunnel") or "")
            matched = {name: outer.exact(name) for name, value in outer.fields if value.mask}
            assert matched == {name: value.value for name, value in rule.outer.items() if value.value}, look.label


def test_tunnels(story: Story) -> None:
    before = story.look("primed")
    look = story.look("after 5 packets of each client and 20 of each remote")
    assert _verdicts(_out(look)) == _verdicts(_in(look)) == {Verdict.HW: 3}
    assert len(look.rules) == 6
    assert {rule.via for rule in look.rules if rule.port == "p1"} == _DEVICES
    # Not one packet woke the CPU.
    for port, packets in (("p0", 5 * CLIENTS), ("p1", 20 * len(BLOCKS))):
        assert look.ports[port].hit - before.ports[port].hit == packets
        assert look.ports[port].miss == before.ports[port].miss
    assert look.ports["p1"].out - before.ports["p1"].out == 5 * CLIENTS


@pytest.mark.parametrize(("kind", "number", "clients"), [("geneve", 1, 32), ("vxlan", 2, 16), ("gre", 3, 16)])
@pytest.mark.parametrize("story", ["tunnels"], indirect=True)
def test_frames_in_a_tunnel_are_whole(story: Story, kind: str, number: int, clients: int) -> None:
    burst = next(burst for burst in story.record["bursts"] if burst["packets_each"] == 5)
    found = [(frame, packets) for frame, packets in _arrived(burst, "p1") if frame["outer"]["type"] == kind]
    outer = {"type": kind, "mac": REMOTE_MACS[kind], "remote": REMOTES[kind], "tos": 0, "key": KEY}
    outer["options"] = OPTION.hex() if kind == "geneve" else ""
    inner = {"mac": f"02:00:00:00:0d:0{number}", "destination": "10.3.10.45", "port": 80, "intact": True, "vlan": 0}
    assert found == [({**inner, "outer": outer}, 5 * clients)]
    back = next(
        burst
        for burst in story.record["bursts"]
        if burst["packets_each"] == 20 and burst["kind"]["tunnel"]["type"] == kind
    )
    [(frame, packets)] = _arrived(back, "p0")
    assert (frame["outer"], frame["intact"], packets) == (None, True, 20)


@pytest.mark.parametrize("story", ["tunnels"], indirect=True)
def test_each_block_has_a_megaflow_for_each_code_point_of_ecn(story: Story) -> None:
    look = story.look("clients with ECN 0, 2 and 3")
    assert _verdicts(_out(look)) == {Verdict.HW: 9}
    # ECT(0) and CE both leave as ECT(0) (RFC 6040 does it otherwise; this is what Open vSwitch writes).
    written = Counter(each["tos"] for rule in look.rules for each in rule.encapsulations)
    assert written == {"0": 3, "2": 6}
    for burst, tos in zip(story.record["bursts"][-3:], (0, 2, 2), strict=True):
        assert {frame["outer"]["tos"] for frame, _ in _arrived(burst, "p1")} == {tos}
        assert sum(packets for _, packets in _arrived(burst, "p1")) == CLIENTS


def test_tunnel_paths__a_neighbour_that_is_unknown_sends_packets_to_the_cpu(story: Story) -> None:
    before, unknown, known = (story.look(label) for label in ("primed", "neighbour unknown", "neighbour known again"))
    assert unknown.ports["p0"].miss > before.ports["p0"].miss
    assert _verdicts(_out(unknown)) == {Verdict.HW: 1}
    assert known.ports["p0"].hit - unknown.ports["p0"].hit == 5 * CLIENTS
    lost, back = (burst for burst in story.record["bursts"][2:4])
    assert [sum(packets for _, packets in _arrived(burst, "p1")) for burst in (lost, back)] == [CLIENTS, 5 * CLIENTS]


def test_tunnel_paths__packets_beyond_the_mtu_are_counted_and_lost(story: Story) -> None:
    before, look = story.look("neighbour known again"), story.look("packets of 1500 bytes")
    assert _verdicts(_out(look)) == {Verdict.HW: 1}
    [was], [rule] = ([rule for rule in each.rules if rule.encapsulations] for each in (before, look))
    assert rule.packets - was.packets == look.ports["p1"].too_long == 2 * CLIENTS
    assert _arrived(story.record["bursts"][4], "p1") == []


def test_tunnel_paths__a_route_by_another_device_is_refused(story: Story) -> None:
    look = story.look("routed elsewhere")
    assert _verdicts(_out(look)) == {Verdict.TC_SW: 1}
    [flow] = _out(look)
    assert "eswitch: packets of this tunnel leave by no port of this eswitch" in story.refusals[flow.ufid or ""]


def test_tunnel_paths__a_local_address_on_the_bridge_is_refused_both_ways(story: Story) -> None:
    look = story.look("local address on the bridge")
    assert _verdicts(_out(look)) == _verdicts(_in(look)) == {Verdict.TC_SW: 1}
    [out], [back] = _out(look), _in(look)
    assert story.refused[out.ufid or ""] == "eswitch: packets of this tunnel leave by no port of this eswitch"
    assert story.refused[back.ufid or ""] == "eswitch: the tunnel's local address is on no port of this eswitch"


def test_tunnel_paths__why_has_the_drivers_words_and_calls_no_tunnel_device_unfit(story: Story) -> None:
    """It said of genev_sys_6081, as certain: "accepts no rules: its driver cannot", and "no port of an eSwitch"."""
    [said] = story.said("why")
    report = json.loads(said["stdout"])
    assert (said["exit_code"], said["stderr"]) == (2, "")
    reasons = {row["in_port"]: row["reasons"] for row in report["megaflows"]}
    [out], [back] = reasons["p0"], reasons["genev_sys_6081"]
    assert (out["cause"], out["likelihood"]) == ("refused-by-driver", "confirmed")
    assert "packets of this tunnel leave by no port of this eswitch" in out["evidence"][0]
    # The kernel has no trial for a device without offload of its own.
    assert (back["cause"], back["likelihood"]) == ("refused-by-driver", "possible")
    assert "their local address is on no port of its eSwitch" in back["text"]
    assert [note.partition(":")[0] for note in report["notes"]] == [
        "the driver was not asked about rules of genev_sys_6081"
    ]


def test_tunnel_ipsec__a_nic_that_knows_leaves_the_tunnel_to_the_cpu(story: Story) -> None:
    without, with_sa = story.look("policy without SA"), story.look("SA on the device")
    for look in (without, with_sa):
        assert _verdicts(_out(look)) == {Verdict.TC_SW: 1}
    assert set(story.refused.values()) == {"eswitch: an IPsec policy covers the packets of this tunnel"}
    assert (without.ports["p1"].sas, with_sa.ports["p1"].sas) == (0, 1)
    silent, encrypted = story.record["bursts"][:2]
    assert _arrived(silent, "p1") == []
    [(frame, packets)] = _arrived(encrypted, "p1")
    assert (frame["outer"]["type"], packets) == ("esp", CLIENTS)
