"""The oracle itself: which service a packet belongs to."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address

import pytest

from tests.unit.balancer import balancer, claim, service
from xenoovs.model.address import Family
from xenoovs.model.balancer import Claim, Protocol
from xenoovs.model.intent import allowed_backends, claims, service_of
from xenoovs.model.packet import Packet

VIP, CLIENT = IPv4Address("192.0.2.1"), IPv4Address("198.51.100.7")
VIP6, CLIENT6 = IPv6Address("2001:db8::1"), IPv6Address("2001:db8:c::7")
DNS = claim(VIP, protocol=Protocol.UDP, ports=[(53, 53), (5353, 5360)])
QUERY = Packet("p0", CLIENT, VIP, 17, 4000, 53)


@pytest.mark.parametrize(
    ("change", "claimed"),
    [
        ({}, True),
        ({"dport": 5353}, True),
        ({"dport": 5360}, True),
        ({"dport": 5361}, False),
        ({"dport": 54}, False),
        ({"protocol": 6}, False),
        ({"destination": IPv4Address("192.0.2.2")}, False),
        ({"sport": 53}, True),
    ],
)
def test_a_claim_matches_vip_protocol_and_port(change: dict[str, object], *, claimed: bool) -> None:
    assert claims(DNS, replace(QUERY, **change)) is claimed  # type: ignore[arg-type]


def test_a_packet_of_another_port_is_other_traffic() -> None:
    only = balancer(service(DNS))
    assert service_of(only, QUERY) is only.services[0]
    assert service_of(only, replace(QUERY, in_port="p1")) is None


@pytest.mark.parametrize(("icmp_type", "claimed"), [(128, True), (132, True), (133, False), (137, False), (138, True)])
def test_neighbour_discovery_belongs_to_no_service(icmp_type: int, *, claimed: bool) -> None:
    packet = Packet("p0", CLIENT6, VIP6, 58, icmp_type, 0)
    assert claims(Claim(frozenset({Family.IPV6})), packet) is claimed
    assert claims(claim(VIP6, protocol=Protocol.ICMP), packet) is claimed


def test_protocol_58_over_ipv4_is_no_neighbour_discovery() -> None:
    assert claims(claim(), Packet("p0", CLIENT, VIP, 58, 135, 0))


def test_a_vip_of_one_version_claims_nothing_of_the_other() -> None:
    assert not claims(Claim(frozenset(Family), (VIP,)), Packet("p0", CLIENT6, VIP6, 17, 4000, 53))


def test_a_backend_without_weight_gets_no_clients() -> None:
    assert [backend.name for backend in allowed_backends(service(DNS, 1, 0, 2))] == ["b0", "b2"]
