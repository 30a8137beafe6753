"""Real packets over hand-written flows: the counts are exactly what the lowest bit of each client says."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path

import pytest

from tests.ovs.lab_support import (
    BACK,
    EVEN_MAC,
    ODD_MAC,
    THIRD_MAC,
    VIP_MAC,
    assert_split_by_lowest_bit,
    backend,
    balancer,
    lab_fixture,
    pair,
    running_lab,
    service,
    set_flows,
    split,
)
from xenoovs.errors import LabError
from xenoovs.lab.lab import Lab
from xenoovs.lab.traffic import LabReport, Load, ServiceTraffic, send
from xenoovs.model.address import Family
from xenoovs.model.balancer import Claim, OtherTraffic, PortRange, Protocol

V4, V6 = frozenset({Family.IPV4}), frozenset({Family.IPV6})
VIP, VIP6 = "10.3.10.45", "2001:db8:10::80"

DNS = service("dns", Claim(V4, (ip_address(VIP),), Protocol.UDP, (PortRange(53, 53),)), vip_mac=VIP_MAC)
WEB = service("web", Claim(V4, (ip_address(VIP),), Protocol.TCP, (PortRange(80, 81),)), vip_mac=VIP_MAC)
PING = service("ping", Claim(V4, (ip_address(VIP),), Protocol.ICMP), vip_mac=VIP_MAC)
SIX = service("six", Claim(V6, (ip_address(VIP6),)))
LONE = service(
    "lone", Claim(V4, (ip_address(VIP),), Protocol.TCP, (PortRange(90, 90),)), backends=[backend("third", THIRD_MAC)]
)
BALANCER = balancer(DNS, WEB, PING, SIX, LONE)

ARP = (
    f"priority=20,in_port=p0,arp,arp_tpa={VIP},arp_op=1 actions=move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],"
    f"mod_dl_src:{VIP_MAC},load:2->NXM_OF_ARP_OP[],move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[],"
    f"load:0x{VIP_MAC.replace(':', '')}->NXM_NX_ARP_SHA[],move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[],"
    f"load:0x{int(ip_address(VIP)):x}->NXM_OF_ARP_SPA[],IN_PORT"
)
BIT4, BIT6 = "nw_src=0.0.0.{}/0.0.0.1", "ipv6_src=::{}/::1"
ALL = (ARP, BACK, *split("ip", BIT4), *split("ipv6", BIT6))


lab = lab_fixture("traffic", BALANCER)


def _of(report: LabReport, name: str) -> ServiceTraffic:
    return next(service for service in report.services if service.service == name)


def _load(protocol: Protocol | None, *, clients: int = 200, packets: int = 2000) -> Load:
    return Load(clients=clients, packets=packets, protocol=protocol)


def test_each_client_gets_the_backend_of_its_lowest_bit(lab: Lab) -> None:
    for protocol, names in (
        (Protocol.UDP, ["dns", "six"]),
        (Protocol.TCP, ["web", "six"]),
        (Protocol.ICMP, ["ping", "six"]),
    ):
        set_flows(lab, *ALL)
        report = send(lab, BALANCER, load=_load(protocol))
        assert (report.duplicates, report.failures) == (0, ())
        for name in names:
            traffic = _of(report, name)
            assert traffic.sent >= 600
            assert {backend.name for backend in traffic.backends if backend.answered} == {"even", "odd"}
            assert_split_by_lowest_bit(traffic)
    assert report.skipped == tuple((name, "it does not serve icmp") for name in ("dns", "web", "lone"))


def test_each_service_by_its_own_protocol(lab: Lab) -> None:
    third = f"priority=10,in_port=p0,tcp,tp_dst=90 actions=mod_dl_dst:{THIRD_MAC},output:p1"
    set_flows(lab, third, *ALL)
    report = send(lab, BALANCER, load=_load(None, clients=20, packets=100))
    assert [(traffic.service, traffic.protocol, traffic.sent, traffic.answered) for traffic in report.services] == [
        ("dns", Protocol.UDP, 20, 20),
        ("web", Protocol.TCP, 20, 20),
        ("ping", Protocol.ICMP, 20, 20),
        ("six", Protocol.UDP, 20, 20),
        ("lone", Protocol.TCP, 20, 20),
    ]
    assert [(seen.name, seen.answered) for seen in _of(report, "lone").backends] == [("third", 20)]


def test_what_no_flow_forwards_is_lost(lab: Lab) -> None:
    for protocol in (Protocol.UDP, Protocol.TCP, Protocol.ICMP):
        set_flows(lab, ARP, BACK, split("ip", BIT4)[0], split("ipv6", BIT6)[0])
        report = send(lab, BALANCER, load=_load(protocol, clients=20, packets=120))
        for traffic in report.services:
            if traffic.service != "lone":
                assert {backend for _, backend in traffic.answers} == {"even"}
                assert all(int(ip_address(client)) % 2 == 0 for client, _ in traffic.answers)
                assert 0 < traffic.lost == traffic.sent - traffic.backends[0].answered


def test_the_packets_tell_who_answered_even_against_the_config(lab: Lab) -> None:
    wrong = f"priority=10,in_port=p0,icmp actions=mod_dl_dst:{THIRD_MAC},output:p1"
    set_flows(lab, wrong, *ALL)
    traffic = _of(send(lab, BALANCER, load=_load(Protocol.ICMP, packets=100)), "ping")
    assert traffic.foreign_answers == (("(third, of another service)", 50),)
    assert [seen.answered for seen in traffic.backends] == [0, 0]


def test_a_packet_that_reaches_two_backends_is_seen_twice(lab: Lab) -> None:
    both = f"mod_dl_dst:{EVEN_MAC},output:p1,mod_dl_dst:{ODD_MAC},output:p1"
    for protocol in (Protocol.UDP, Protocol.ICMP):
        set_flows(lab, ARP, BACK, f"priority=9,in_port=p0,ip actions={both}", *split("ipv6", BIT6))
        report = send(lab, BALANCER, load=_load(protocol, clients=10, packets=40))
        assert [traffic.lost for traffic in report.services] == [0, 0]
        assert report.duplicates == 20


def test_each_run_asks_by_arp_anew(lab: Lab) -> None:
    set_flows(lab, *ALL)
    assert _of(send(lab, BALANCER, load=_load(Protocol.ICMP, clients=5, packets=20)), "ping").answered == 10
    set_flows(lab, BACK, *split("ip", BIT4))
    unheard = _of(send(lab, BALANCER, load=_load(Protocol.ICMP, clients=5, packets=20)), "ping")
    assert (unheard.sent, unheard.answered) == (10, 0)


def test_a_lab_of_another_config_is_refused(lab: Lab) -> None:
    other = balancer(service("dns", DNS.claim, backends=[*pair(), backend("third", THIRD_MAC)]))
    with pytest.raises(LabError, match="built for another config"):
        send(lab, other)


def test_without_a_way_back_through_the_bridge_answers_return_directly(tmp_path: Path) -> None:
    anything = service("all", Claim(frozenset(Family)))
    wanted = balancer(anything, other=OtherTraffic.DROP)
    with running_lab("direct", wanted, tmp_path) as made:
        set_flows(made, *split("ip", BIT4), *split("ipv6", BIT6))
        for protocol in (Protocol.UDP, Protocol.TCP, Protocol.ICMP):
            traffic = send(made, wanted, load=_load(protocol, packets=400)).services[0]
            assert {ip_address(client).version for client, _ in traffic.answers} == {4, 6}
            assert_split_by_lowest_bit(traffic)
