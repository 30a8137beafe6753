"""Whole programs: a block is judged with the flow that classifies its packets; address resolution is separate."""

from __future__ import annotations

from fractions import Fraction
from ipaddress import ip_address

import pytest

from tests.compiled import compiled
from tests.judged import check_flow
from xenoovs.compile.offloadable.check import (
    FlowRole,
    ProgramOffload,
    check_flows,
    check_program,
    count_by_service,
    describe,
    overall,
    reasons,
)
from xenoovs.compile.offloadable.openflow_topics import parse_groups
from xenoovs.compile.offloadable.table import DEFAULT_VERSION, Offload, Profile, parse_version
from xenoovs.errors import ParseError
from xenoovs.model.address import Family, Mac
from xenoovs.model.balancer import Backend, Balancer, Claim, OtherTraffic, PortRange, Protocol, Service, Uplinks
from xenoovs.model.next_hop import Direct
from xenoovs.openflow.text import parse_flow

VIP4, VIP6 = ip_address("192.0.2.10"), ip_address("2001:db8::10")


def _judged(*, other: OtherTraffic, profile: Profile = Profile.TC, both: bool = False) -> ProgramOffload:
    vips = (VIP4, VIP6) if both else (VIP4,)
    families = frozenset(Family) if both else frozenset({Family.IPV4})
    claim = Claim(families, vips, Protocol.UDP, (PortRange(8000, 8001),))
    backends = tuple(Backend(f"b{n}", Direct(Mac(0x020000000000 + n), "p1"), Fraction(1)) for n in (1, 2))
    service = Service("web", claim, backends, vip_mac=Mac(0x020000000099))
    uplinks = Uplinks("ovsbr1", ("p0",), "p1", other)
    return check_program(compiled(Balancer(uplinks, (service,))), profile=profile, version=(3, 1))


def _blocks(result: ProgramOffload) -> list[list[str]]:
    return [[found.topic.name for found in each.results] for each in result.flows if each.role is FlowRole.BLOCK]


def test_a_block_is_judged_with_its_classify_flow() -> None:
    blocks = _blocks(_judged(other=OtherTraffic.PASSTHROUGH))
    assert len(blocks) == 2
    # The masked port stands in `classify`, the masked address in `balance`: one megaflow has both.
    assert all({"masked-port", "masked-address", "set-ethernet", "output"} <= set(topics) for topics in blocks)


def test_a_block_is_not_judged_with_classify_flows_of_the_other_ip_version() -> None:
    blocks = _blocks(_judged(other=OtherTraffic.PASSTHROUGH, both=True, profile=Profile.DOCA))
    assert ["ipv6" in topics for topics in blocks] == [False, False, True, True]
    assert ["wide-match" in topics for topics in blocks] == [False, False, True, True]


def test_arp_is_address_resolution_and_does_not_count() -> None:
    result = _judged(other=OtherTraffic.PASSTHROUGH)
    resolution = [each for each in result.flows if each.role is FlowRole.RESOLUTION]
    assert [each.offload for each in resolution] == [Offload.SW]
    assert result.in_software == result.undetermined == ()
    assert describe(result) == "the NIC can take all 5 flows"


def test_the_summary_counts_what_depends() -> None:
    result = _judged(other=OtherTraffic.NORMAL)
    assert describe(result) == (
        "the NIC can take 3 of 5 flows; for 2 it depends (Forward as a learning switch (NORMAL, FLOOD, ALL))"
    )
    worst = reasons(result.undetermined)[0]
    assert (worst.count, worst.service, worst.result.topic.name) == (2, None, "normal")


def test_counts_by_service() -> None:
    counts = count_by_service(_judged(other=OtherTraffic.DROP))
    assert sum(counts["web"].values()) == counts["web"][Offload.HW] == 3
    assert counts[None][Offload.SW] == 1


def test_foreign_flows_that_answer_arp_count() -> None:
    theirs = parse_flow("arp,arp_op=1 actions=load:0x2->NXM_OF_ARP_OP[],IN_PORT")
    result = check_flows([theirs], profile=Profile.TC, version=parse_version("3.1.0"))
    assert [each.role for each in result.in_software] == [FlowRole.OTHER]


_PLAIN = "priority=50,ip actions=output:p1"


@pytest.mark.parametrize(
    ("flow", "role"),
    [
        ("priority=100,metadata=0x1,vlan_tci=0x1000/0x1000 actions=drop", FlowRole.TAGGED_DROP),
        ("priority=100,dl_vlan=5 actions=drop", FlowRole.TAGGED_DROP),
        ("priority=100,dl_vlan=0xffff actions=drop", FlowRole.OTHER),
        ("priority=100,vlan_tci=0x0000/0x1000 actions=drop", FlowRole.OTHER),
        ("priority=100,vlan_tci=0x1000/0x1000 actions=output:p1", FlowRole.OTHER),
        ("priority=100,tp_dst=80,tcp actions=drop", FlowRole.OTHER),
    ],
)
def test_what_a_flow_is_for(flow: str, role: FlowRole) -> None:
    judged = check_flows(map(parse_flow, (flow, _PLAIN)), profile=Profile.TC, version=DEFAULT_VERSION)
    assert [each.role for each in judged.flows] == [role, FlowRole.OTHER]


def test_flows_that_drop_tagged_packets_are_not_counted() -> None:
    """They cost other packets nothing: OVN has one for each logical switch."""
    flows = map(parse_flow, ("priority=100,vlan_tci=0x1000/0x1000 actions=drop", _PLAIN))
    judged = check_flows(flows, profile=Profile.TC, version=DEFAULT_VERSION)
    assert (describe(judged), judged.in_software) == ("the NIC can take 1 flow", ())


@pytest.mark.parametrize(
    ("group", "topic"),
    [
        ("type=select,bucket=actions=output:p1", "group-dp-hash"),
        ("type=select,selection_method=dp_hash,selection_method_param=1,bucket=actions=output:p1", "group-dp-hash"),
        ("type=select,selection_method=hash,bucket=actions=output:p1", "group-hash-exact"),
        ("type=select,selection_method=hash,fields=ip_src,bucket=actions=output:p1", "group-hash-exact"),
        (
            "type=select,selection_method=hash,fields(ip_src=0.0.0.7,eth_type),bucket=actions=output:p1",
            "group-hash-masked",
        ),
        ("type=select,selection_method=doca,bucket=actions=output:p1", "group"),
        ("type=all", "group-all"),
        ("type=ff,bucket=watch_port:p1,actions=output:p1", "group-one"),
        ("type=indirect,bucket=actions=output:p1", "group-one"),
    ],
)
def test_kinds_of_groups(group: str, topic: str) -> None:
    assert parse_groups(f" group_id=7,{group}\n")[7].topic == topic


def test_buckets_of_every_version_of_openflow() -> None:
    text = (
        "OFPST_GROUP_DESC reply (OF1.5) (xid=0x2):\n"
        " group_id=1,type=all,bucket=bucket_id:0,actions=mod_dl_dst:02:00:00:00:00:01,output:p1,"
        "bucket=bucket_id:1,weight:5,actions=output:p2\n"
        "OFPST_GROUP_DESC reply (OF1.3) (xid=0x2):\n"
        " group_id=2,type=select,bucket=weight:1,actions=output:p1\n\n"
    )
    groups = parse_groups(text)
    assert groups[1].buckets == ("mod_dl_dst:02:00:00:00:00:01,output:p1", "output:p2")
    assert groups[2].buckets == ("output:p1",)


def test_copies_count_for_groups_that_copy_and_not_for_those_that_choose() -> None:
    buckets = "bucket=actions=output:p1,bucket=actions=output:p2"
    groups = parse_groups(f"group_id=1,type=all,{buckets}\ngroup_id=2,type=ff,{buckets}\n")
    copying, choosing = (parse_flow(f"ip actions=group:{number}") for number in (1, 2))
    assert overall(check_flow(copying, Profile.DOCA, (3, 1), groups=groups)) is Offload.SW
    assert overall(check_flow(choosing, Profile.DOCA, (3, 1), groups=groups)) is Offload.HW


def test_a_line_that_is_no_group() -> None:
    with pytest.raises(ParseError, match="line 2"):
        parse_groups("group_id=1,type=all\ngroup_id=x,type=all\n")
