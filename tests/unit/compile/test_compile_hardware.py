"""Predicted hardware entries of small services."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address

import pytest

from tests.compiled import compiled
from tests.predicted import predict_megaflows
from tests.switch_tunnels import VIP as TUNNELED_VIP
from tests.switch_tunnels import behind_tunnels
from tests.unit.balancer import balancer, claim, service
from xenoovs.compile.plan import hardware_entries, most_entries
from xenoovs.model.address import Mac
from xenoovs.model.balancer import Protocol, Service
from xenoovs.model.packet import Packet

VIP, VIP6 = IPv4Address("192.0.2.1"), IPv6Address("2001:db8::1")


def entries(made: Service, *, ingress: tuple[str, ...] = ("p0",)) -> int:
    (only,) = compiled(balancer(made, ingress=ingress)).services
    return hardware_entries(only)


@pytest.mark.parametrize(
    ("made", "number"),
    [
        (service(claim(), 1, 1), 2),
        (service(claim(VIP), 128, 64, 32, 16, 8, 4, 2, 1, 1), 9),
        (service(claim(VIP, IPv4Address("192.0.2.2"))), 4),
        (service(claim(VIP, VIP6)), 4),
        (service(claim(VIP, protocol=Protocol.TCP, ports=[(80, 80), (8000, 8003)])), 4),
        (service(claim(VIP, protocol=Protocol.TCP, ports=[(1, 65535)])), 32),
    ],
)
def test_classes_times_ways_in(made: Service, number: int) -> None:
    assert entries(made) == number
    assert entries(made, ingress=("p0", "p2", "p3")) == 3 * number


def test_answers_to_arp_widen_no_entry_of_another_service() -> None:
    """arp_op and arp_tpa lie where nw_proto and nw_dst do: these flows share the subtable of `tcp,nw_dst=VIP`."""
    web = replace(service(claim(VIP, protocol=Protocol.TCP), 1, name="web"), vip_mac=Mac(2))
    ping = service(claim(protocol=Protocol.ICMP), 1, name="ping")
    flows = compiled(balancer(web, ping)).flows
    destinations = map(IPv4Address, ("192.0.2.1", "192.0.2.2", "10.0.0.1", "224.0.0.1"))
    packets = [Packet("p0", IPv4Address("198.51.100.7"), destination, 1, 8, 0) for destination in destinations]
    assert len(predict_megaflows(flows, packets)) == 1


def test_services_without_a_vip_are_not_matched_by_destination() -> None:
    """They come first in `classify`, with any number of conditions."""
    dns = service(claim(protocol=Protocol.UDP, ports=[(53, 53)]), 1, name="dns")
    web = service(claim(VIP, protocol=Protocol.TCP), 1, name="web")
    flows = compiled(balancer(dns, web)).flows
    destinations = map(IPv4Address, ("192.0.2.1", "192.0.2.2", "10.0.0.1", "224.0.0.1"))
    packets = [Packet("p0", IPv4Address("198.51.100.7"), destination, 17, 4000, 53) for destination in destinations]
    assert len(predict_megaflows(flows, packets)) == 1


def test_behind_a_tunnel_each_ecn_code_point_is_an_entry() -> None:
    program = compiled(behind_tunnels())
    (made,) = program.services
    packets = [
        Packet("p0", IPv4Address(0xC6336400 + client), TUNNELED_VIP, protocol=6, sport=4000, dport=80, tos=ecn)
        for client in range(8)
        for ecn in range(4)
    ]
    assert (hardware_entries(made), most_entries(made)) == (2, 8)
    assert len(predict_megaflows(program.flows, packets)) == most_entries(made)
