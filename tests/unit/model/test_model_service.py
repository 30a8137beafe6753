"""Claims, ports and protocols."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address

import pytest

from tests.unit.balancer import backends, balancer, claim, service
from xenoovs.model.address import Family
from xenoovs.model.balancer import MAX_KEY_BITS, Claim, PortRange, Protocol, merge_ports, service_ids
from xenoovs.model.packet import Packet, claims
from xenoovs.partition.block import MAX_WIDTH

VIP, OTHER_VIP, VIP6 = IPv4Address("192.0.2.1"), IPv4Address("192.0.2.2"), IPv6Address("2001:db8::1")


@pytest.mark.parametrize(
    ("ranges", "merged"),
    [
        ([], []),
        ([(53, 53), (53, 53)], [(53, 53)]),
        ([(8001, 8001), (8000, 8000)], [(8000, 8001)]),
        ([(1, 10), (3, 4), (20, 30)], [(1, 10), (20, 30)]),
        ([(1, 10), (5, 20), (22, 22)], [(1, 20), (22, 22)]),
        ([(0, 0), (65535, 65535)], [(0, 0), (65535, 65535)]),
    ],
)
def test_merged_ports(ranges: list[tuple[int, int]], merged: list[tuple[int, int]]) -> None:
    assert merge_ports(PortRange(*pair) for pair in ranges) == tuple(PortRange(*pair) for pair in merged)


def test_the_partition_has_as_many_bits() -> None:
    assert MAX_KEY_BITS == MAX_WIDTH


def id_of(claimed: Claim) -> int:
    return service_ids([claimed])[claimed]


def test_ids_are_these_for_ever() -> None:
    """A changed hash would rewrite every flow of every bridge on the next apply."""
    assert id_of(claim()) == 0xF11F9601
    assert id_of(claim(VIP, VIP6, protocol=Protocol.TCP, ports=[(80, 80), (8000, 8003)])) == 0x2D29B906


def test_the_same_packets_are_the_same_id() -> None:
    """Their order does not matter either (tests/property/test_compile_program.py)."""
    one, other = (claim(VIP, protocol=Protocol.TCP, ports=ports) for ports in ([(80, 81)], [(81, 81), (80, 80)]))
    assert id_of(one) == id_of(other)
    assert id_of(claim(VIP)) == id_of(Claim(frozenset(Family), (VIP,)))


def test_a_collision_takes_the_next_id_whatever_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    class Constant:
        def digest(self) -> bytes:
            return b"\xff\xff\xff\xff"

    monkeypatch.setattr("hashlib.blake2s", lambda *_, **__: Constant())
    claims = [claim(IPv4Address(i)) for i in (1, 2, 3)]
    found = service_ids(claims)
    assert service_ids(reversed(claims)) == found
    # After the last number comes 1: 0 means no service.
    assert sorted(found.values()) == [1, 2, 0xFFFFFFFF]


def test_egress_ports_start_with_the_default_and_every_port_is_named_once() -> None:
    away = [*backends(1, egress="z"), *backends(1, egress="p1"), *backends(1, egress="a")]
    made = balancer(replace(service(claim()), backends=tuple(away)), ingress=("p0", "p2"))
    assert (made.egress_ports, made.ports) == (("p1", "a", "z"), ("p0", "p2", "p1", "a", "z"))


CLIENT, CLIENT6 = IPv4Address("198.51.100.7"), IPv6Address("2001:db8:c::7")


@pytest.mark.parametrize(("icmp_type", "claimed"), [(128, True), (132, True), (133, False), (137, False), (138, True)])
def test_neighbour_discovery_belongs_to_no_service(icmp_type: int, *, claimed: bool) -> None:
    packet = Packet("p0", CLIENT6, VIP6, 58, icmp_type, 0)
    assert claims(Claim(frozenset({Family.IPV6})), packet) is claimed
    assert claims(claim(VIP6, protocol=Protocol.ICMP), packet) is claimed
