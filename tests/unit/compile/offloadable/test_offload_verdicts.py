"""Expected verdicts of each kind of flow, written by hand: observed on a real switch or in its code."""

from __future__ import annotations

import pytest

from tests.judged import check_flow
from xenoovs.compile.offloadable.check import overall
from xenoovs.compile.offloadable.openflow_topics import parse_groups
from xenoovs.compile.offloadable.table import Offload, Profile, Version
from xenoovs.openflow.text import parse_flow

HW, DEPENDS, PARTIAL, TC_SW, SW = Offload.HW, Offload.DEPENDS, Offload.PARTIAL, Offload.TC_SW, Offload.SW

GROUPS = parse_groups(
    "OFPST_GROUP_DESC reply (OF1.5) (xid=0x2):\n"
    " group_id=1,type=select,bucket=bucket_id:0,weight:1,actions=output:p1,bucket=bucket_id:1,actions=output:p2\n"
    " group_id=2,type=select,selection_method=dp_hash,bucket=bucket_id:0,actions=output:p1\n"
    " group_id=3,type=select,selection_method=hash,fields(ip_src=0.0.0.3),bucket=bucket_id:0,actions=output:p1\n"
    " group_id=4,type=select,selection_method=hash,fields(ip_src),bucket=bucket_id:0,actions=output:p1\n"
    " group_id=5,type=all,bucket=bucket_id:0,actions=output:p1,bucket=bucket_id:1,actions=output:p2\n"
    " group_id=6,type=indirect,bucket=bucket_id:0,actions=mod_dl_dst:02:00:00:00:00:01,output:p1\n"
    " group_id=7,type=indirect,bucket=bucket_id:0,actions=CONTROLLER:65535\n"
)

TC_ON_3_1 = [
    ("ip,nw_src=0.0.0.1/0.0.0.3 actions=output:p1", HW),
    ("ipv6,ipv6_src=::1/::3 actions=output:p1", HW),
    ("udp,tp_src=0/0x7 actions=output:p1", HW),
    ("ip actions=mod_dl_dst:02:00:00:00:00:01,output:p1", HW),
    ("ip actions=mod_dl_src:02:00:00:00:00:01,mod_dl_dst:02:00:00:00:00:02,output:p1", HW),
    ("udp actions=mod_nw_dst:192.0.2.7,mod_tp_dst:53,output:p1", HW),
    ("ip actions=dec_ttl,output:p1", HW),
    ("ip actions=mod_nw_tos:32,output:p1", HW),
    ("sctp actions=output:p1", HW),
    ("sctp actions=mod_tp_dst:53,output:p1", SW),
    ("sctp actions=load:0x35->OXM_OF_SCTP_DST[],output:p1", SW),
    ("icmp actions=load:0->NXM_OF_ICMP_TYPE[],output:p1", SW),
    ("ip actions=output:p1,output:p2", HW),
    ("ip actions=mod_dl_dst:02:00:00:00:00:01,output:p1,mod_dl_dst:02:00:00:00:00:02,output:p2", HW),
    ("ip actions=" + ",".join(f"output:p{n}" for n in range(16)), HW),
    ("ip actions=" + ",".join(f"output:p{n}" for n in range(17)), SW),
    ("ip actions=IN_PORT", DEPENDS),
    ("ip actions=LOCAL", TC_SW),
    ("ip actions=NORMAL", DEPENDS),
    ("ip actions=FLOOD", DEPENDS),
    ("ip actions=push_vlan:0x8100,set_field:4101->vlan_vid,output:p1", HW),
    ("ip,dl_vlan=5 actions=strip_vlan,output:p1", HW),
    ("ip,vlan_tci=0x0000/0x1fff actions=output:p1", HW),
    ("ip,vlan_tci=0x1000/0x1000 actions=output:p1", SW),
    ("ip actions=load:0x5->NXM_NX_REG5[0..7],resubmit(,1)", HW),
    ("ip actions=resubmit(1,2)", HW),
    ("ip,conj_id=7 actions=output:p1", HW),
    ("ip,nw_src=192.0.2.1 actions=conjunction(7,1/2)", HW),
    ("ip actions=note:00.01,output:p1", HW),
    ("ip actions=set_field:0x5->tun_id,output:p1", HW),
    ("ip actions=sample(probability=1,collector_set_id=1,obs_domain_id=0,obs_point_id=0),output:p1", DEPENDS),
    ("ip actions=meter:1,output:p1", HW),
    ("ip actions=group:3", HW),
    ("ip actions=group:4", HW),
    ("ip actions=group:1", SW),
    ("ip actions=group:2", SW),
    ("ip actions=group:5", HW),
    ("ip actions=group:6", HW),
    ("ip actions=group:7", SW),
    ("ip actions=group:99", DEPENDS),
    ("ip actions=multipath(symmetric_l4,1024,modulo_n,4,0,NXM_NX_REG0[0..3]),output:NXM_NX_REG0[]", HW),
    ("ip actions=bundle(symmetric_l4,0,hrw,ofport,members:1,2)", HW),
    ("tcp actions=ct(table=1)", DEPENDS),
    ("tcp actions=ct(commit,alg=ftp),output:p1", SW),
    ("ip actions=CONTROLLER:65535", SW),
    ("ip actions=controller(reason=no_match,max_len=128,id=1)", SW),
    ("ip actions=learn(table=1,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[]),output:p1", DEPENDS),
    ("ip actions=output(port=p1,max_len=100)", SW),
    ("ip,tun_id=0x5 actions=output:p1", HW),
    ("ip actions=drop", HW),
    ("ip,pkt_mark=0 actions=output:p1", HW),
    ("ip,pkt_mark=0x1 actions=output:p1", SW),
    ("ip,dp_hash=0x1/0xf actions=output:p1", SW),
    ("ip,metadata=0x1 actions=output:p1", HW),
    ("ip,actset_output=1 actions=output:p1", HW),
    ("packet_type=(1,0x800) actions=output:p1", SW),
    ("ipv6,nw_frag=later actions=output:p1", SW),
    ("ipv6,nw_frag=no actions=output:p1", HW),
    ("ip,nw_frag=later actions=output:p1", HW),
    ("ip,nw_tos=32 actions=output:p1", HW),
    ("mpls,mpls_label=16 actions=output:p1", HW),
    ("igmp actions=output:p1", HW),
    ("icmp6,icmp_type=135,nd_target=2001:db8::1 actions=output:p1", SW),
    ("ipv6,ipv6_label=0x1 actions=output:p1", SW),
    ("tcp,ct_state=+new+trk actions=output:p1", DEPENDS),
    ("tcp,ct_state=+snat+trk actions=output:p1", SW),
    ("arp,arp_tpa=192.0.2.1 actions=output:p1", HW),
    ("ip actions=write_actions(CONTROLLER:65535)", SW),
    ("ip actions=clone(output:p1)", DEPENDS),
    ("ip actions=enqueue:p1:1", SW),
    ("ip actions=load:0x1->NXM_NX_PKT_MARK[],output:p1", SW),
    ("ip,a_field_of_tomorrow=1 actions=output:p1", DEPENDS),
    ("ip actions=an_action_of_tomorrow,output:p1", DEPENDS),
]


@pytest.mark.parametrize(("text", "wanted"), TC_ON_3_1)
def test_tc_on_open_vswitch_3_1(text: str, wanted: Offload) -> None:
    found = check_flow(parse_flow(text), Profile.TC, (3, 1), groups=GROUPS)
    assert overall(found) is wanted, found


DOCA = [
    ("ip,nw_src=0.0.0.1/0.0.0.3 actions=mod_dl_dst:02:00:00:00:00:01,output:p1", HW),
    ("ip actions=group:1", DEPENDS),
    ("ip actions=output:p1,output:p2", SW),
    ("ip,nw_frag=first actions=output:p1", SW),
    ("ip,nw_proto=2 actions=output:p1", SW),
    ("ip actions=LOCAL", SW),
    ("ip actions=meter:1,output:p1", HW),
    ("tcp actions=ct(table=1)", DEPENDS),
    ("ip actions=CONTROLLER:65535", SW),
    ("ip actions=push_vlan:0x8100,set_field:4101->vlan_vid,output:p1", HW),
    ("ip actions=push_mpls:0x8847,output:p1", SW),
]


@pytest.mark.parametrize(("text", "wanted"), DOCA)
def test_doca(text: str, wanted: Offload) -> None:
    assert overall(check_flow(parse_flow(text), Profile.DOCA, (3, 1), groups=GROUPS)) is wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("ip actions=group:1", (DEPENDS, SW, HW, SW, PARTIAL)),
        ("ip,dp_hash=0x1/0xf actions=output:p1", (DEPENDS, SW, HW, SW, SW)),
        ("tcp,ct_state=+est+trk actions=output:p1", (DEPENDS, DEPENDS, SW, DEPENDS, SW)),
        ("ip,nw_src=0.0.0.1/0.0.0.3 actions=output:p1", (HW, HW, HW, HW, HW)),
    ],
)
def test_hashes_and_connections_by_provider_and_setting(text: str, wanted: tuple[Offload, ...]) -> None:
    """OVS-DOCA offloads the one or the other; TC never matches a hash of the datapath."""
    groups = parse_groups("group_id=1,type=select,bucket=actions=output:p1,bucket=actions=output:p2")
    profiles = (Profile.DOCA, Profile.DOCA_CT, Profile.DOCA_NO_CT, Profile.TC, Profile.DPDK)
    flow = parse_flow(text)
    assert tuple(overall(check_flow(flow, each, (3, 1), groups=groups)) for each in profiles) == wanted


DPDK_ON_3_1 = [
    ("ip,nw_src=0.0.0.1/0.0.0.3 actions=mod_dl_dst:02:00:00:00:00:01,output:p1", HW),
    ("ip actions=group:1", PARTIAL),
    ("ip actions=mod_nw_tos:32,output:p1", PARTIAL),
    ("ip actions=meter:1,output:p1", PARTIAL),
    ("ip actions=LOCAL", PARTIAL),
    ("ip actions=drop", HW),
    ("arp,arp_tpa=192.0.2.1 actions=output:p1", SW),
    ("icmp6,icmp_type=128 actions=output:p1", SW),
    ("tcp,ct_state=+est+trk actions=output:p1", SW),
    ("sctp actions=mod_tp_dst:53,output:p1", PARTIAL),
]


@pytest.mark.parametrize(("text", "wanted"), DPDK_ON_3_1)
def test_dpdk_on_open_vswitch_3_1(text: str, wanted: Offload) -> None:
    assert overall(check_flow(parse_flow(text), Profile.DPDK, (3, 1), groups=GROUPS)) is wanted


VERSIONS_DIFFER = [
    (Profile.TC, "ip actions=meter:1,output:p1", (2, 17), SW, (3, 0), HW),
    (Profile.TC, "ip actions=check_pkt_larger(9)->NXM_NX_REG0[0],resubmit(,1)", (2, 17), SW, (3, 0), HW),
    (Profile.TC, "icmp,icmp_type=8 actions=output:p1", (2, 15), SW, (2, 16), HW),
    (Profile.TC, "arp,arp_op=1 actions=output:p1", (2, 13), SW, (2, 14), HW),
    (Profile.TC, "ipv6,nw_frag=later actions=output:p1", (2, 17), DEPENDS, (3, 0), SW),
    (Profile.TC, "tcp,ct_state=+inv+trk actions=output:p1", (2, 15), SW, (2, 16), DEPENDS),
    (Profile.TC, "udp,nw_frag=first actions=mod_tp_dst:53,output:p1", (3, 4), DEPENDS, (3, 5), SW),
    (Profile.TC, "ip,tun_flags=+oam actions=output:p1", (3, 4), SW, (3, 5), DEPENDS),
    (Profile.TC, "tcp actions=ct(commit,alg=ftp),output:p1", (3, 0), DEPENDS, (3, 1), SW),
    (Profile.DPDK, "ip,nw_frag=first actions=output:p1", (2, 16), SW, (2, 17), HW),
    (Profile.DPDK, "ipv6 actions=output:p1", (2, 13), SW, (2, 14), HW),
    (Profile.DPDK, "ip actions=strip_vlan,output:p1", (2, 13), PARTIAL, (2, 14), HW),
]


@pytest.mark.parametrize(("profile", "text", "old", "before", "new", "after"), VERSIONS_DIFFER)
def test_versions_differ(
    profile: Profile, text: str, old: Version, before: Offload, new: Version, after: Offload
) -> None:
    flow = parse_flow(text)
    assert overall(check_flow(flow, profile, old)) is before
    assert overall(check_flow(flow, profile, new)) is after


@pytest.mark.parametrize("match", ["sctp,tp_dst=5000", "sctp,tp_src=0/0x7", "sctp6,tp_dst=5000", "sctp,sctp_dst=5000"])
def test_sctp_ports_are_not_in_hardware_as_mlx5_matches_ports_of_tcp_and_udp_only(match: str) -> None:
    flow = parse_flow(f"{match} actions=output:p1")
    assert overall(check_flow(flow, Profile.TC, (3, 1))) is TC_SW
    assert overall(check_flow(flow, Profile.DOCA, (3, 1))) is DEPENDS
    assert overall(check_flow(flow, Profile.DPDK, (3, 1))) is DEPENDS
