"""Whole programs: a block is judged with the flow that classifies its packets; address resolution is separate."""

from __future__ import annotations

from fractions import Fraction
from ipaddress import ip_address

from tests.compiled import compiled
from xenoovs.compile.offloadable.check import (
    FlowRole,
    ProgramOffload,
    check_flows,
    check_program,
    count_by_service,
    describe,
    reasons,
)
from xenoovs.compile.offloadable.table import Offload, Profile, parse_version
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
    counts = {each.service: each for each in count_by_service(_judged(other=OtherTraffic.DROP))}
    assert counts["web"].flows == 3
    assert dict(counts["web"].by_offload)[Offload.HW] == 3
    assert dict(counts[None].by_offload)[Offload.SW] == 1


def test_foreign_flows_that_answer_arp_count() -> None:
    theirs = parse_flow("arp,arp_op=1 actions=load:0x2->NXM_OF_ARP_OP[],IN_PORT")
    result = check_flows([theirs], profile=Profile.TC, version=parse_version("3.1.0"))
    assert [each.role for each in result.in_software] == [FlowRole.OTHER]
