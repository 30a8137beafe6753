"""The first table, flow by flow."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address

import pytest

from tests.compiled import compiled
from tests.unit.balancer import balancer, claim, lines, program, service
from xenoovs.errors import CompileError
from xenoovs.model.address import Family, Mac
from xenoovs.model.balancer import Claim, OtherTraffic, Protocol
from xenoovs.openflow.flow import decode_cookie

VIP, OTHER_VIP, VIP6 = IPv4Address("192.0.2.1"), IPv4Address("192.0.2.2"), IPv6Address("2001:db8::1")
MAC = Mac(0x02005E100001)


def matches(claimed: Claim) -> list[str]:
    """Priority and conditions of the flows of one service in `classify`."""
    return [line.split(" actions=")[0] for line in lines(program(service(claimed)), table=0)]


def test_a_service_of_everything_is_one_flow() -> None:
    assert matches(claim()) == ["priority=1000,ip,in_port=p0"]


def test_a_service_writes_its_id_to_a_register_and_continues() -> None:
    compiled = program(service(claim()))
    (line,) = lines(compiled, table=0)
    assert line.endswith(f" actions=load:{compiled.services[0].service_id:#x}->NXM_NX_REG0[],resubmit(,1)")


@pytest.mark.parametrize(
    ("protocol", "keywords"),
    [
        (Protocol.TCP, ["tcp", "tcp6"]),
        (Protocol.UDP, ["udp", "udp6"]),
        (Protocol.SCTP, ["sctp", "sctp6"]),
        (Protocol.ICMP, ["icmp", "icmp6"]),
        (None, ["ip", "ipv6"]),
    ],
)
def test_each_ip_version_has_its_keyword(protocol: Protocol | None, keywords: list[str]) -> None:
    services = [m for m in matches(claim(VIP, VIP6, protocol=protocol)) if not m.startswith("priority=2000")]
    assert [match.split(",")[1] for match in services] == keywords


def test_vips_ports_and_ingress_ports_multiply() -> None:
    web = service(claim(VIP, OTHER_VIP, protocol=Protocol.TCP, ports=[(80, 80), (8000, 8003)]))
    made = compiled(balancer(web, ingress=("p0", "p2")))
    assert len(made.services[0].classify) == 2 * 2 * 2
    assert "priority=907,tcp,in_port=p2,nw_dst=192.0.2.2,tp_dst=0x1f40/0xfffc" in str(lines(made, table=0))


@pytest.mark.parametrize(
    ("ports", "conditions"),
    [
        ([(0, 0)], [",tp_dst=0"]),
        ([(65535, 65535)], [",tp_dst=65535"]),
        ([(0, 65535)], [""]),
        ([(0, 1023)], [",tp_dst=0x0/0xfc00"]),
        ([(65534, 65535)], [",tp_dst=0xfffe/0xfffe"]),
    ],
)
def test_the_edges_of_the_port_space(ports: list[tuple[int, int]], conditions: list[str]) -> None:
    found = matches(claim(VIP, protocol=Protocol.UDP, ports=ports))
    assert [match.split("nw_dst=192.0.2.1")[1] for match in found] == conditions


def test_a_port_listed_twice_is_one_flow() -> None:
    assert len(matches(claim(VIP, protocol=Protocol.UDP, ports=[(53, 53), (53, 53)]))) == 1


def test_a_family_without_a_vip_gets_no_flow() -> None:
    assert matches(Claim(frozenset(Family), (VIP,))) == ["priority=936,ip,in_port=p0,nw_dst=192.0.2.1"]


@pytest.mark.parametrize("protocol", [None, Protocol.ICMP])
def test_neighbour_discovery_is_kept_out(protocol: Protocol | None) -> None:
    guards = [match for match in matches(claim(VIP6, protocol=protocol)) if match.startswith("priority=2000")]
    assert guards == [f"priority=2000,icmp6,in_port=p0,icmp_type={number}" for number in range(133, 138)]


@pytest.mark.parametrize("claimed", [claim(), claim(VIP), claim(VIP6, protocol=Protocol.TCP)])
def test_no_guard_where_no_service_could_swallow_it(claimed: Claim) -> None:
    assert not [match for match in matches(claimed) if "icmp_type" in match]


def test_guards_are_written_once_for_all_services() -> None:
    both = program(service(claim(VIP6)), service(Claim(frozenset({Family.IPV6}), protocol=Protocol.ICMP), name="t"))
    assert sum("icmp_type" in line for line in lines(both, table=0)) == 5


def test_a_shared_vip_is_answered_for_once() -> None:
    """DNS over UDP and over TCP: two flows of one key would make every plan differ for ever."""
    udp, tcp = (
        replace(service(claim(VIP, protocol=protocol, ports=[(53, 53)]), name=protocol.value), vip_mac=MAC)
        for protocol in (Protocol.UDP, Protocol.TCP)
    )
    arp = [flow for flow in program(udp, tcp).flows if flow.priority == 500]
    assert len(arp) == 1
    assert arp == [flow for flow in program(tcp, udp).flows if flow.priority == 500]


def test_a_vip_with_two_macs_is_refused() -> None:
    one = replace(service(claim(VIP, protocol=Protocol.UDP), name="one"), vip_mac=MAC)
    two = replace(service(claim(VIP, protocol=Protocol.TCP), name="two"), vip_mac=Mac(2))
    with pytest.raises(CompileError, match=r"service two: 00:00:00:00:00:02 cannot answer for 192\.0\.2\.1"):
        program(one, two)


def test_the_answer_to_arp() -> None:
    answering = replace(service(claim(VIP, VIP6, protocol=Protocol.TCP)), vip_mac=MAC)
    (line,) = (line for line in lines(program(answering), table=0) if "arp_op" in line)
    assert line == (
        "priority=500,arp,in_port=p0,arp_tpa=192.0.2.1,arp_op=1 actions="
        "move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],mod_dl_src:02:00:5e:10:00:01,load:0x2->NXM_OF_ARP_OP[],"
        "move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[],load:0x2005e100001->NXM_NX_ARP_SHA[],"
        "move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[],load:0xc0000201->NXM_OF_ARP_SPA[],IN_PORT"
    )


@pytest.mark.parametrize(
    ("policy", "flows"),
    [
        (OtherTraffic.PASSTHROUGH, ["in_port=p0 actions=output:p1", "in_port=p1 actions=output:p0"]),
        (OtherTraffic.NORMAL, ["in_port=p0 actions=NORMAL", "in_port=p1 actions=NORMAL"]),
        (OtherTraffic.DROP, ["in_port=p0 actions=drop", "in_port=p1 actions=drop"]),
        (OtherTraffic.LEAVE, []),
    ],
)
def test_other_traffic(policy: OtherTraffic, flows: list[str]) -> None:
    assert lines(compiled(balancer(other=policy)), table=0) == [f"priority=1,{flow}" for flow in flows]


@pytest.mark.parametrize(
    ("policy", "action"),
    [
        (OtherTraffic.PASSTHROUGH, "output:p1"),
        (OtherTraffic.NORMAL, "NORMAL"),
        (OtherTraffic.DROP, "drop"),
        (OtherTraffic.LEAVE, "NORMAL"),
    ],
)
def test_neighbour_discovery_goes_where_other_traffic_goes(policy: OtherTraffic, action: str) -> None:
    made = compiled(balancer(service(claim(VIP6)), other=policy))
    assert {line.split(" actions=")[1] for line in lines(made, table=0) if "icmp_type" in line} == {action}


def test_shared_flows_carry_no_service_in_their_cookie() -> None:
    answering = replace(service(claim(VIP)), vip_mac=MAC)
    made = compiled(balancer(answering, other=OtherTraffic.NORMAL))
    cookies = [decode_cookie(flow.cookie) for flow in made.shared]
    assert [cookie.service for cookie in cookies if cookie] == [0] * len(made.shared) == [0, 0, 0]
