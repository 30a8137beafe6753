"""Megaflows: the table's verdicts agree with what the datapath did with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from xenoovs.compile.offloadable.check import check_megaflow, overall
from xenoovs.compile.offloadable.table import Offload, Profile
from xenoovs.datapath.parse import parse_dump, parse_megaflow

MEGAFLOWS = Path(__file__).parents[3] / "golden" / "megaflows"
HEAD = "recirc_id(0),in_port(p0),packet_type(ns=0/0,id=0/0),eth(src=00:00:00:00:00:00/00:00:00:00:00:00)"


@pytest.mark.parametrize(
    ("layer", "at_least", "never"),
    [("tc", 6, {each for each in Offload if each.is_software}), ("ovs", 3, {Offload.HW})],
    ids=["what reached tc is not software", "what tc refused is not HW"],
)
def test_no_verdict_contradicts_a_recorded_megaflow(layer: str, at_least: int, never: set[Offload]) -> None:
    """Those of switches with offload on. Those of userspace datapaths without a NIC are left out."""
    paths = (path for path in MEGAFLOWS.glob("*.txt") if not path.name.startswith(("userspace", "doca", "vlan")))
    found = [
        (path.stem, overall(check_megaflow(megaflow, Profile.TC, (3, 1))))
        for path in paths
        if "hw-offload-off" not in path.stem
        for megaflow in parse_dump(path.read_text(encoding="utf-8"))
        if megaflow.layer == layer
    ]
    assert len(found) >= at_least
    assert [(name, verdict) for name, verdict in found if verdict in never] == []


@pytest.mark.parametrize(
    ("keys", "actions", "topic"),
    [
        ("skb_priority(0x1),eth_type(0x0800)", "p1", "skb-priority"),
        ("skb_mark(0x1),eth_type(0x0800)", "p1", "pkt-mark"),
        ("skb_mark(0),eth_type(0x0800)", "p1", "no-pkt-mark"),
        ("ct_state(0x21/0x21),eth_type(0x0800)", "p1", "ct"),
        ("ct_state(+new-est+trk),eth_type(0x0800)", "p1", "ct"),
        ("ct_state(0/0x10),eth_type(0x0800)", "p1", "ct-reply-invalid"),
        ("ct_state(0x80/0x80),eth_type(0x0800)", "p1", "ct-nat"),
        ("ct_tuple4(src=192.0.2.1),eth_type(0x0800)", "p1", "ct-tuple"),
        ("dp_hash(0xb/0xf),eth_type(0x0800)", "p1", "dp-hash"),
        ("eth_type(0x0800),ipv4(frag=later)", "p1", "fragment"),
        ("eth_type(0x86dd),ipv6(frag=later)", "p1", "fragment-ipv6"),
        ("eth_type(0x86dd),ipv6(label=0x5,frag=no)", "p1", "ipv6-label"),
        ("eth_type(0x0800),ipv4(tos=0/0x3,frag=no)", "p1", "ip-tos"),
        ("eth_type(0x0800),ipv4(proto=2,frag=no)", "p1", "igmp"),
        ("eth_type(0x0800),ipv4(proto=17,frag=no),udp(src=0/0x7,dst=0/0)", "p1", "masked-port"),
        ("eth_type(0x0800),ipv4(proto=132,frag=no),sctp(dst=5000)", "p1", "sctp-port"),
        ("eth_type(0x0800),ipv4(proto=6,frag=no),tcp_flags(+syn-ack)", "p1", "tcp-flags"),
        ("eth_type(0x8100),vlan(vid=5,pcp=0),encap(eth_type(0x0800))", "p1", "vlan"),
        ("eth_type(0x8100),vlan(vid=5/0xfe,pcp=0/0),encap(eth_type(0x0800))", "p1", "vlan-masked"),
        ("eth_type(0x88a8),vlan(vid=5,pcp=0),encap(eth_type(0x8100),vlan(vid=6,pcp=0),encap())", "p1", "qinq"),
        ("eth_type(0x8847),mpls(label=16,tc=0,ttl=64,bos=1)", "p1", "mpls"),
        ("eth_type(0x8847),mpls(lse0=0x10040,lse1=0x11140)", "p1", "mpls-stack"),
        ("tunnel(tun_id=0x5,src=1.1.1.1,geneve({class=0x1,type=0x1,len=4,0x1}),flags(+key))", "p1", "tunnel-options"),
        ("tunnel(tun_id=0x5,src=1.1.1.1,flags(+oam+key))", "p1", "tunnel-flags"),
        ("a_key_of_tomorrow(5)", "p1", "unknown-match"),
        ("eth_type(0x0800)", "userspace(pid=1,slow_path(action))", "slow-path"),
        ("eth_type(0x0800)", "userspace(pid=1,sFlow(vid=0,pcp=0,output=2)),p1", "sampled"),
        ("eth_type(0x0800)", "sample(sample=10.0%,actions(userspace(pid=1,ipfix(output_port=1)))),p1", "sampled"),
        ("eth_type(0x0800)", "lb_output(1)", "lb-output"),
        ("eth_type(0x0800)", "br0", "output-local"),
        ("eth_type(0x0800)", "p0", "output-in-port"),
        ("eth_type(0x0800)", "p1,p2", "several-outputs"),
        ("eth_type(0x0800)", "set(ipv6(label=0x1)),p1", "set-ipv6-label"),
        ("eth_type(0x0800)", "set(ipv4(ttl=63)),p1", "set-ttl"),
        (
            "eth_type(0x0800)",
            "set(tunnel(tun_id=0x5,dst=1.1.1.1,tp_src=5,flags(key))),vxlan_sys_4789",
            "set-tunnel-tp-src",
        ),
        ("eth_type(0x0800)", "tnl_pop(4)", "tunnel-pop"),
        ("eth_type(0x0800)", "clone(p1),p2", "clone"),
        ("eth_type(0x0800)", "ct(commit,helper=ftp),p1", "ct-helper"),
        ("eth_type(0x0800)", "push_nsh(flags=0),p1", "nsh-action"),
        ("eth_type(0x0800)", "a_thing_of_tomorrow(1)", "unknown-action"),
        ("eth_type(0x0800),ipv4(frag=first),udp(dst=53)", "set(udp(dst=54)),p1", "set-port-of-fragment"),
    ],
)
def test_keys_and_actions_are_recognised(keys: str, actions: str, topic: str) -> None:
    megaflow = parse_megaflow(f"{HEAD},{keys}, packets:1, bytes:98, used:0.1s, dp:ovs, actions:{actions}")
    profile = Profile.DPDK if topic in ("lb-output", "tunnel-pop") else Profile.TC
    found = [each.topic.name for each in check_megaflow(megaflow, profile, (3, 5), internal_ports=("br0",))]
    assert topic in found


def test_masks_of_zero_match_nothing() -> None:
    zero = "skb_priority(0/0),skb_mark(0/0),ct_state(0/0),ct_zone(0/0),ct_label(0/0),dp_hash(0/0),eth_type(0x86dd),"
    six = "ipv6(src=::/::,dst=::/::,label=0/0,proto=0/0,tclass=0/0,hlimit=0/0,frag=no)"
    megaflow = parse_megaflow(f"{HEAD},{zero}{six}, packets:1, bytes:98, used:0.1s, dp:ovs, actions:p1")
    found = check_megaflow(megaflow, Profile.TC, (3, 1))
    assert [each.topic.name for each in found] == ["header", "ipv6", "output"]


def test_wide_matches_matter_only_for_doca() -> None:
    six = "ipv6(src=2001:db8::7,dst=2001:db8::10,proto=17,frag=no),udp(src=1,dst=53)"
    text = f"recirc_id(0),in_port(p0),eth_type(0x86dd),{six}, packets:1, bytes:98, used:0.1s, actions:p1"
    wide = [each.evidence for each in check_megaflow(parse_megaflow(text), Profile.DOCA, (3, 1))]
    assert "39 bytes" in wide
    assert "39 bytes" not in [each.evidence for each in check_megaflow(parse_megaflow(text), Profile.TC, (3, 1))]
