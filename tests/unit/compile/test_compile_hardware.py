"""What widens hardware entries: bugs that were found, and tunnels."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address

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

VIP = IPv4Address("192.0.2.1")


WEB = replace(service(claim(VIP, protocol=Protocol.TCP), 1, name="web"), vip_mac=Mac(2))
PING = service(claim(protocol=Protocol.ICMP), 1, name="ping")
DNS = service(claim(protocol=Protocol.UDP, ports=[(53, 53)]), 1, name="dns")


@pytest.mark.parametrize(
    ("services", "protocol", "sport", "dport"),
    [((WEB, PING), 1, 8, 0), ((DNS, replace(WEB, vip_mac=None)), 17, 4000, 53)],
    ids=["answers to ARP", "a service with a VIP"],
)
def test_a_service_without_a_vip_is_not_matched_by_destination_for_another(
    services: tuple[Service, ...], protocol: int, sport: int, dport: int
) -> None:
    """arp_op and arp_tpa lie where nw_proto and nw_dst do: flows with them share the subtable of `tcp,nw_dst=VIP`.
    Services without a VIP come first in `classify`, with any number of conditions."""
    flows, source = compiled(balancer(*services)).flows, IPv4Address("198.51.100.7")
    destinations = map(IPv4Address, ("192.0.2.1", "192.0.2.2", "10.0.0.1", "224.0.0.1"))
    packets = [Packet("p0", source, destination, protocol, sport, dport) for destination in destinations]
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
