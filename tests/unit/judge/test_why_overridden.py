"""Packets of blocks that foreign flows take: `why` names the flow, and why its megaflow is not in hardware."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.command_line import CommandLine
from tests.unit.judge.why_cases import case, host, megaflow
from xenoovs.datapath.database import BridgeState, Database, PortState
from xenoovs.datapath.parse import Hints
from xenoovs.judge.why.flows import action_reasons
from xenoovs.judge.why.reason import Cause

GOLDEN = Path(__file__).parents[2] / "golden" / "verify"
FLOW = "priority=3000,udp,in_port=p0,nw_dst=10.3.10.45,nw_src=198.18.0.64 actions=push_vlan:0x8100,output:p1"
LINE = (
    "ufid:11111111-0000-4000-8000-000000000001, recirc_id(0),in_port(p0),eth(dst=c4:70:bd:a0:56:ac),eth_type(0x0800),"
    "ipv4(src=198.18.0.64,dst=10.3.10.45,proto=17,frag=no),udp(dst=53), packets:6, bytes:600, used:0.3s, dp:tc, "
    "actions:push_vlan(vid=5,pcp=0),p1\n"
)


def test_the_flow_that_takes_packets_of_a_block_is_named(tmp_path: Path, xenoovs: CommandLine) -> None:
    """It printed "no traffic yet", although verify-offload named the flow."""
    (tmp_path / "dump").write_text(LINE)
    (tmp_path / "flows").write_text(f" cookie=0x1, {FLOW}\n")
    options = ("--from-dump", tmp_path / "dump", "--from-flows", tmp_path / "flows", "--service", "dns", "-o", "json")
    result = xenoovs("why", GOLDEN / "dns.yaml", *options)
    (row,) = json.loads(result.out)["megaflows"]
    first = row["reasons"][0]
    assert (result.status, first["cause"]) == (2, "overridden")
    assert "packets of 1 block of dns match this megaflow" in first["text"]
    assert first["evidence"][0].startswith("foreign flow: cookie=0x1, priority=3000")


def test_samples_of_the_bridge_come_with_the_command_that_ends_them() -> None:
    sampled = megaflow("dp:ovs", "sample(sample=10.0%,actions(userspace(pid=1,sFlow(vid=0)))),p1")
    bridge = BridgeState("ovsbr1", (PortState("p0"),), exporters=("sflow", "netflow"))
    seen = replace(host(), database=Database({"hw-offload": "true"}, (bridge,)))
    (reason,) = (one for one in action_reasons(case(sampled, seen=seen)) if one.cause is Cause.UNSUPPORTED_ACTION)
    assert reason.fix == ("ovs-vsctl clear Bridge ovsbr1 sflow", "ovs-appctl revalidator/purge")


def test_a_wide_flow_overrides_all_blocks(tmp_path: Path, xenoovs: CommandLine) -> None:
    (tmp_path / "dump").write_text(LINE.replace("src=198.18.0.64,", "src=0.0.0.0/0.0.0.0,"))
    result = xenoovs("why", GOLDEN / "dns.yaml", "--from-dump", tmp_path / "dump")
    assert (result.status, "packets of 7 blocks of dns match this megaflow" in result.out) == (2, True)


def test_tagged_clients_are_remarked_with_their_cost() -> None:
    hints, line = Hints(), "in_port(p0),eth_type(0x8100),vlan(vid=5,pcp=0),encap(eth_type(0x0800)), actions:p1"
    assert len(list(hints.watch([line, line.replace("vid=5", "vid=6"), line]))) == 3
    (remark,) = hints.remarks(is_filtered=False)
    assert remark.startswith("3 megaflows of tagged packets (vid=5,pcp=0; vid=6,pcp=0): beside untagged packets each")


@pytest.mark.parametrize(
    "tags", ["vlan(vid=5,pcp=0),encap(eth_type(0x8100))", "vlan(vid=5/0x0,pcp=0/0x0),encap(eth_type(0x88a8))"]
)
def test_frames_with_two_tags_are_said_to_be_unsupported(tags: str) -> None:
    """That of the service with the outer tag has no packet of them."""
    hints = Hints(vlans=frozenset({5}))
    list(hints.watch([f"in_port(p0),eth_type(0x8100),{tags}, actions:p1"]))
    (remark,) = hints.remarks(is_filtered=False)
    assert remark.startswith("1 megaflow of frames with two tags (IEEE 802.1ad), which are not supported")


def test_a_rule_of_traffic_control_for_any_vlan_is_not_one_of_vlan_0() -> None:
    """Clients of VLANs 5 and 6 share such a rule, but each VLAN was reported to cost entries."""
    line = "in_port(p0),eth_type(0x8100),vlan(vid=0,pcp=0),encap(eth_type(0x0800)), packets:7, dp:tc, actions:p1"
    hints = Hints()
    assert list(hints.watch([line])) == [line]
    (remark,) = hints.remarks(is_filtered=False)
    assert remark.startswith("1 megaflow of tagged packets (any VLAN): ")
