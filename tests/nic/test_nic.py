"""What OVS, TC and `xenoovs` say of hardware, against what the emulated NIC really holds and really forwarded."""

from __future__ import annotations

import json
import struct
from collections import Counter
from ipaddress import IPv4Address
from itertools import pairwise
from typing import Any

import pytest

from tests.nic.guest.catalogue import BALANCED, SCENARIOS
from tests.nic.guest.frames import summary_of
from tests.nic.guest.scenarios.accepted import NAT_CLIENTS, SERVERS
from tests.nic.recorded import BLOCKS, VIP, Seen, Story, packets_matching, tc_counters
from xenoovs.datapath.megaflow import Verdict, match_of, output_ports, verdict_of

SHARES = {"02:00:5e:10:00:02": 32, "02:00:5e:10:00:03": 19, "02:00:5e:10:00:04": 13}
"""How many of the 64 clients, one a value of the low six bits, each backend's blocks hold (balancers/dns.yaml)."""


every_scenario = pytest.mark.parametrize("story", SCENARIOS, indirect=True)
every_steady_scenario = pytest.mark.parametrize("story", [*BALANCED, "tunnels"], indirect=True)
"""In the others of tunnels, the NIC has entries and cannot use them for a while."""
every_balancer = pytest.mark.parametrize("story", BALANCED, indirect=True)


def _packets_by_ufid(look: Seen) -> dict[str, int]:
    return {flow.ufid or "": flow.packets for flow in look.megaflows}


def _ufids(look: Seen, verdict: Verdict) -> set[str]:
    return {flow.ufid or "" for flow in look.megaflows if verdict_of(flow) is verdict}


@every_scenario
def test_a_scenario_reaches_its_end_and_leaves_the_nic_empty(story: Story) -> None:
    assert story.record["error"] is None
    assert story.record["rules_left"] == ""


@every_scenario
def test_in_hardware_means_an_entry_of_the_nic_and_every_entry_is_in_hardware(story: Story) -> None:
    for look in story.looks:
        held = {rule.ufid for rule in look.rules}
        assert _ufids(look, Verdict.HW) == held, look.label
        assert look.in_hardware_by_tc == held, look.label


@every_scenario
def test_each_entry_is_its_megaflow(story: Story) -> None:
    for look in story.looks:
        megaflows = {flow.ufid: flow for flow in look.megaflows}
        for rule in look.rules:
            flow = megaflows[rule.ufid]
            assert (rule.via or rule.port, dict(rule.match)) == (flow.in_port, match_of(flow)), look.label
            assert output_ports(flow) == rule.outputs
            macs = (("src", rule.dl_src), ("dst", rule.dl_dst))
            words = [f"{name}={mac.to_bytes(6, 'big').hex(':')}" for name, mac in macs if mac is not None]
            written = [f"set(eth({','.join(words)}))"] if words else []
            assert [action for action in flow.actions if action.startswith("set(eth(")] == written


@every_scenario
def test_each_entry_counts_what_tc_and_the_megaflow_say(story: Story) -> None:
    # A packet that missed in the NIC just before the rule came may still meet the rule in the software of TC.
    for look in story.looks:
        counters, packets = tc_counters(look.tc), _packets_by_ufid(look)
        for rule in look.rules:
            counter = counters[rule.ufid]
            assert (counter.hw_packets, counter.hw_bytes) == (rule.packets, rule.bytes), look.label
            before = packets[rule.ufid] - counter.hw_packets - counter.sw_packets
            assert before == 0 or (look.changed and before > 0), look.label


@every_steady_scenario
def test_hardware_counts_exactly_the_packets_that_were_sent(story: Story) -> None:
    for before, after in pairwise(story.looks):
        between = after.sent[len(before.sent) :]
        is_same = before.forgotten == after.forgotten and before.changed == after.changed
        counted = {rule.ufid: rule.packets for rule in before.rules} if is_same else {}
        flows = {flow.ufid: flow for flow in after.megaflows}
        for rule in after.rules:
            if rule.ufid in counted:
                assert rule.packets - counted[rule.ufid] == packets_matching(between, flows[rule.ufid]), after.label


@every_balancer
def test_each_backend_gets_its_share_wherever_the_megaflows_run(story: Story) -> None:
    for burst in story.record["bursts"]:
        if burst["port"] == "p0" and len(burst["sources"]) == 64 and burst["kind"]["destination"] == VIP:
            arrived = [one for port in burst["arrived"].values() for one in port if one["frame"]["mac"] in SHARES]
            wanted = {mac: clients * burst["packets_each"] for mac, clients in SHARES.items()}
            assert {one["frame"]["mac"]: one["packets"] for one in arrived} == wanted
            assert all(one["frame"]["intact"] for one in arrived)


def test_accepted(story: Story) -> None:
    before, after = story.look("primed"), story.look("no answers")
    assert Counter(after.verdicts().values()) == {Verdict.HW: BLOCKS}
    assert {rule.match["nw_dst"].value for rule in after.rules} == {0x0A030A2D}
    # Not one packet woke the representor.
    assert after.ports["p0"].hit - before.ports["p0"].hit == 640
    assert after.ports["p0"].miss == before.ports["p0"].miss
    assert after.ports["p1"].out - before.ports["p1"].out == 640


def test_accepted__nothing_is_there_before_traffic(story: Story) -> None:
    look = story.look("before traffic")
    assert (look.megaflows, look.rules) == ((), ())


def test_nat__copies_drops_and_ipv6_are_in_hardware_too(story: Story) -> None:
    look = story.look("others")
    assert {verdict_of(flow) for flow in look.megaflows if flow.in_port == "p0"} == {Verdict.HW}
    assert story.refused == {}
    copies, dropped, ipv6 = story.record["bursts"][-3:]
    assert copies["arrived"] == {
        port: [_frames("10.3.10.47", 53, 40)] * (port != "p0") for port in ("p0", "p1", "pf0hpf")
    }
    assert dropped["arrived"] == {"p0": [], "p1": [], "pf0hpf": []}
    [arrived] = ipv6["arrived"]["p1"]
    assert (arrived["frame"]["mac"], arrived["packets"]) == ("02:00:5e:10:00:07", 10)


def _frames(destination: str, port: int, packets: int) -> dict[str, Any]:
    frame = {"mac": "02:00:5e:10:00:01", "destination": destination, "port": port, "intact": True}
    return {"frame": frame | {"outer": None, "vlan": 0}, "packets": packets}


def test_nat(story: Story) -> None:
    """Each block and protocol on the way out, each server and protocol on the way back."""
    before, look = story.look("primed"), story.look("translated")
    of_services = [flow for flow in look.megaflows if flow.in_port == "p1" or "dst=10.3.10.45" in str(flow.key("ipv4"))]
    by_port = Counter((flow.in_port, verdict_of(flow)) for flow in of_services if match_of(flow).get("nw_proto"))
    assert by_port == {("p0", Verdict.HW): 6, ("p1", Verdict.HW): 4}
    packets = {"p0": 2 * len(NAT_CLIENTS), "p1": 2 * len(SERVERS)}
    assert {port: look.ports[port].hit - before.ports[port].hit for port in packets} == packets
    [said] = story.said("translated")
    ends = Counter[tuple[Any, ...]]()
    for port, text in json.loads(said["stdout"]):
        frame = bytes.fromhex(text)
        assert summary_of(frame).intact
        source, destination, source_port, destination_port = struct.unpack("!4s4sHH", frame[26:38])
        ends[port, str(IPv4Address(source)), source_port, str(IPv4Address(destination)), destination_port] += 1
    there = {end for end in ends if end[0] == "p1"}
    assert {end[1:3] for end in there} == {(client, 4000) for client in NAT_CLIENTS}
    assert {end[3:] for end in there} == {(server, 8080) for server in SERVERS}
    assert {end: count for end, count in ends.items() if end not in there} == {
        ("p0", VIP, 80, NAT_CLIENTS[0], 4000): 2 * len(SERVERS)
    }


def test_foreign(story: Story) -> None:
    look = story.look("after 5 packets of each client, 2 of a few to foreign flows")
    assert Counter(look.verdicts().values()) == {Verdict.HW: BLOCKS, Verdict.TC_SW: 1}
    [key] = [ufid for ufid, verdict in look.verdicts().items() if verdict is Verdict.TC_SW]
    foreign = [look.verdicts(to=f"10.3.10.{host}") for host in range(46, 51)]
    assert [list(each.values()) for each in foreign] == [[Verdict.TC_SW]] * 2 + [[Verdict.SW]] * 3
    refused = dict.fromkeys((*foreign[0], *foreign[1]), "eswitch: unsupported action")
    assert story.refused == {key: "eswitch: unsupported match key", **refused}
    assert {verdict_of(flow) for flow in look.megaflows if "ct" in str(flow.actions)} == {Verdict.SW}


@pytest.mark.parametrize(
    "end",
    [
        # OVS_ACTION_ATTR_TRUNC and OVS_ACTION_ATTR_HASH (linux/openvswitch.h).
        "unsupported put action type: 13",
        "unsupported put action type: 8",
        "recirc_id sharing not supported",
    ],
)
@pytest.mark.parametrize("story", ["foreign"], indirect=True)
def test_ovs_says_what_it_does_not_translate(story: Story, end: str) -> None:
    assert any(end in line for line in story.record["ovs_log"])


def test_foreign_port(story: Story) -> None:
    look = story.look("after 5 packets of each client by p0 and 3 by x0")
    outputs = {flow.actions[-1]: verdict_of(flow) for flow in look.megaflows if flow.in_port == "p0"}
    assert outputs == {"p1": Verdict.HW, "x0": Verdict.TC_SW}
    refused = {flow.ufid for flow in look.megaflows if flow.actions[-1] == "x0"}
    assert story.refused == dict.fromkeys(refused, "eswitch: egress device is not on this eswitch")
    # The veth as ingress has no driver to ask, so nothing is refused.
    assert [verdict_of(flow) for flow in look.megaflows if flow.in_port == "x0"] == [Verdict.TC_SW]


def test_fixed__without_the_feature_the_driver_takes_no_rules(story: Story) -> None:
    look = story.look("without the feature")
    assert Counter(look.verdicts().values()) == {Verdict.TC_SW: BLOCKS}
    assert story.refused == dict.fromkeys(look.verdicts(), "TC offload is disabled on net device")


def test_vlans(story: Story) -> None:
    """As many entries as without a tag, of the service's VLAN; a tag that is not kept is matched with its priority."""
    look, without = story.look("four ways"), story.look("without VLANs")
    assert Counter(look.verdicts().values()) == Counter(look.verdicts(to="10.3.10.46").values()) == {Verdict.HW: BLOCKS}
    assert story.refused.keys() <= {*without.verdicts(), *without.verdicts(to="10.3.10.46")}
    ways = {(rule.vlan, rule.dl_dst, rule.pcp.mask, rule.retags) for rule in look.rules}
    into = ("push_vlan:vid=300,pcp=0",)
    assert ways == {
        (100, 0x02005E100002, 0, ()),
        (100, 0x02005E100003, 7, ("pop_vlan", *into)),
        (100, 0x02005E100004, 7, ("pop_vlan",)),
        (None, 0x02005E100002, 0, ()),
        (None, 0x02005E100003, 0, into),
        (None, 0x02005E100004, 0, ()),
    }


@pytest.mark.parametrize(("clients", "vlan_of"), [("100", (100, 300, 0)), ("none", (0, 300, 0))])
@pytest.mark.parametrize("story", ["vlans"], indirect=True)
def test_a_frame_leaves_with_the_tag_of_its_backend(story: Story, clients: str, vlan_of: tuple[int, ...]) -> None:
    wanted = {(mac, vlan) for mac, vlan in zip(SHARES, vlan_of, strict=True)}
    bursts = [burst for burst in story.record["bursts"] if ("vlan" in burst["kind"]) == (clients == "100")]
    for burst in bursts:
        assert {(one["frame"]["mac"], one["frame"]["vlan"]) for one in burst["arrived"]["p1"]} == wanted


@pytest.mark.parametrize("story", ["vlans"], indirect=True)
def test_a_priority_is_one_more_entry_where_the_tag_is_not_kept(story: Story) -> None:
    before, after = story.look("four ways"), story.look("a priority")
    new = [rule for rule in after.rules if rule.ufid not in {old.ufid for old in before.rules}]
    retagged = [rule for rule in before.rules if rule.vlan and rule.retags]
    assert {rule.match["nw_src"] for rule in new} == {rule.match["nw_src"] for rule in retagged}
    assert {(rule.pcp.value, rule.pcp.mask) for rule in new} == {(5, 7)}


@pytest.mark.parametrize("story", ["vlans"], indirect=True)
def test_a_nic_without_vlans_takes_what_has_no_tag_to_match_or_to_write(story: Story) -> None:
    look = story.look("without VLANs")
    assert Counter(look.verdicts().values()) == {Verdict.TC_SW: BLOCKS}
    assert {(rule.vlan, rule.retags) for rule in look.rules} == {(None, ())}
    assert {story.refused[ufid] for ufid in look.verdicts()} == {"eswitch: unsupported match key"}
    plain = [story.refused[ufid] for ufid in look.verdicts(to="10.3.10.46") if ufid in story.refused]
    assert set(plain) == {"eswitch: unsupported action"}
