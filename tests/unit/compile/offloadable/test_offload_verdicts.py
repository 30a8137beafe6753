"""Expected verdicts of spellings and combinations that no example of the table has, written by hand: observed on a real
switch or in its code."""

from __future__ import annotations

import pytest

from tests.judged import check_flow
from xenoovs.compile.offloadable.check import overall
from xenoovs.compile.offloadable.openflow_topics import parse_groups
from xenoovs.compile.offloadable.table import Offload, Profile
from xenoovs.openflow.text import parse_flow

HW, DEPENDS, PARTIAL, TC_SW, SW = Offload.HW, Offload.DEPENDS, Offload.PARTIAL, Offload.TC_SW, Offload.SW

GROUPS = parse_groups("group_id=7,type=indirect,bucket=bucket_id:0,actions=CONTROLLER:65535\n")

TC_ON_3_1 = [
    ("ipv6,ipv6_src=::1/::3 actions=output:p1", HW),
    ("udp,tp_src=0/0x7 actions=output:p1", HW),
    ("udp actions=mod_nw_dst:192.0.2.7,mod_tp_dst:53,output:p1", HW),
    ("sctp actions=output:p1", HW),
    ("sctp actions=mod_tp_dst:53,output:p1", SW),
    ("sctp actions=load:0x35->OXM_OF_SCTP_DST[],output:p1", SW),
    ("ip actions=mod_dl_dst:02:00:00:00:00:01,output:p1,mod_dl_dst:02:00:00:00:00:02,output:p2", HW),
    ("ip actions=" + ",".join(f"output:p{n}" for n in range(16)), HW),
    ("ip actions=" + ",".join(f"output:p{n}" for n in range(17)), SW),
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
    ("ip actions=group:7", SW),
    ("ip actions=group:99", DEPENDS),
    ("ip actions=multipath(symmetric_l4,1024,modulo_n,4,0,NXM_NX_REG0[0..3]),output:NXM_NX_REG0[]", HW),
    ("ip actions=bundle(symmetric_l4,0,hrw,ofport,members:1,2)", HW),
    ("tcp actions=ct(table=1)", DEPENDS),
    ("tcp actions=ct(commit,alg=ftp),output:p1", SW),
    ("ip actions=controller(reason=no_match,max_len=128,id=1)", SW),
    ("ip,metadata=0x1 actions=output:p1", HW),
    ("ip,actset_output=1 actions=output:p1", HW),
    ("ipv6,nw_frag=no actions=output:p1", HW),
    ("igmp actions=output:p1", HW),
    ("icmp6,icmp_type=135,nd_target=2001:db8::1 actions=output:p1", SW),
    ("ipv6,ipv6_label=0x1 actions=output:p1", SW),
    ("tcp,ct_state=+new+trk actions=output:p1", DEPENDS),
    ("tcp,ct_state=+snat+trk actions=output:p1", SW),
    ("arp,arp_tpa=192.0.2.1 actions=output:p1", HW),
    ("ip actions=write_actions(CONTROLLER:65535)", SW),
    ("ip actions=clone(output:p1)", DEPENDS),
    ("ip actions=enqueue:p1:1", SW),
    ("ip,a_field_of_tomorrow=1 actions=output:p1", DEPENDS),
    ("ip actions=an_action_of_tomorrow,output:p1", DEPENDS),
]


OF_OTHERS = [
    (Profile.DOCA, "ip actions=output:p1,output:p2", SW),
    (Profile.DOCA, "ip,nw_frag=first actions=output:p1", SW),
    (Profile.DOCA, "tcp actions=ct(table=1)", DEPENDS),
    (Profile.DOCA, "ip actions=push_vlan:0x8100,set_field:4101->vlan_vid,output:p1", HW),
    (Profile.DPDK, "arp,arp_tpa=192.0.2.1 actions=output:p1", SW),
    (Profile.DPDK, "sctp actions=mod_tp_dst:53,output:p1", PARTIAL),
]


@pytest.mark.parametrize(
    ("profile", "text", "wanted"), [*((Profile.TC, text, wanted) for text, wanted in TC_ON_3_1), *OF_OTHERS]
)
def test_flows_on_open_vswitch_3_1(profile: Profile, text: str, wanted: Offload) -> None:
    found = check_flow(parse_flow(text), profile, (3, 1), groups=GROUPS)
    assert overall(found) is wanted, found


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("ip actions=group:1", (DEPENDS, SW, HW, SW, PARTIAL)),
        ("ip,dp_hash=0x1/0xf actions=output:p1", (DEPENDS, SW, HW, SW, SW)),
        ("tcp,ct_state=+est+trk actions=output:p1", (DEPENDS, DEPENDS, SW, DEPENDS, SW)),
        ("ip,nw_src=0.0.0.1/0.0.0.3 actions=output:p1", (HW, HW, HW, HW, HW)),
        # mlx5 matches ports of TCP and UDP only.
        *(
            (f"{match} actions=output:p1", (DEPENDS, DEPENDS, DEPENDS, TC_SW, DEPENDS))
            for match in ("sctp,tp_dst=5000", "sctp,tp_src=0/0x7", "sctp6,tp_dst=5000", "sctp,sctp_dst=5000")
        ),
    ],
)
def test_hashes_connections_and_ports_of_sctp_by_provider_and_setting(text: str, wanted: tuple[Offload, ...]) -> None:
    """OVS-DOCA offloads the one or the other; TC never matches a hash of the datapath."""
    groups = parse_groups("group_id=1,type=select,bucket=actions=output:p1,bucket=actions=output:p2")
    profiles = (Profile.DOCA, Profile.DOCA_CT, Profile.DOCA_NO_CT, Profile.TC, Profile.DPDK)
    flow = parse_flow(text)
    assert tuple(overall(check_flow(flow, each, (3, 1), groups=groups)) for each in profiles) == wanted
