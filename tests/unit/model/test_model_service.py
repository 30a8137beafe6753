"""Claims, ports and protocols."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address

import pytest

from tests.unit.balancer import backends, balancer, claim, service
from xenoovs.model.address import Family, parse_mac
from xenoovs.model.balancer import MAX_KEY_BITS, Claim, PortRange, Protocol, merge_ports, service_ids
from xenoovs.model.packet import Packet, claims, service_of
from xenoovs.partition.block import MAX_WIDTH

VIP, OTHER_VIP, VIP6 = IPv4Address("192.0.2.1"), IPv4Address("192.0.2.2"), IPv6Address("2001:db8::1")


@pytest.mark.parametrize(
    ("protocol", "number4", "number6"),
    [(Protocol.TCP, 6, 6), (Protocol.UDP, 17, 17), (Protocol.SCTP, 132, 132), (Protocol.ICMP, 1, 58)],
)
def test_protocol_numbers(protocol: Protocol, number4: int, number6: int) -> None:
    assert (protocol.number(Family.IPV4), protocol.number(Family.IPV6)) == (number4, number6)


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


def test_families_served_are_those_with_a_vip() -> None:
    assert claim(VIP6, VIP).served_families == (Family.IPV4, Family.IPV6)
    assert Claim(frozenset(Family), (VIP6,)).served_families == (Family.IPV6,)
    assert Claim(frozenset(Family)).served_families == (Family.IPV4, Family.IPV6)


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


def test_other_packets_are_another_id() -> None:
    claims = [
        claim(),
        claim(VIP),
        claim(VIP6),
        claim(VIP, VIP6),
        claim(VIP, protocol=Protocol.UDP),
        claim(VIP, protocol=Protocol.UDP, ports=[(53, 53)]),
        claim(VIP, protocol=Protocol.TCP, ports=[(53, 53)]),
        Claim(frozenset(Family)),
    ]
    assert len(set(map(id_of, claims))) == len(claims)


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


@pytest.mark.parametrize(
    "text",
    [
        "",
        "02:00:5e:10:00",
        "02:00:5e:10:00:01:02",
        "2:0:5e:10:0:1",
        "02-00-5e-10-00-01",
        "02:00:5e:10:00:0g",
        " 02:00:5e:10:00:01",
        "02:00:5e:10:00:01\n",
        "٠٢:00:5e:10:00:01",
        "02005e100001",
    ],
)
def test_anything_else_is_refused_with_the_value(text: str) -> None:
    with pytest.raises(ValueError, match="is not a MAC address") as caught:
        parse_mac(text)
    assert repr(text) in str(caught.value)


def test_egress_ports_start_with_the_default_and_every_port_is_named_once() -> None:
    away = [*backends(1, egress="z"), *backends(1, egress="p1"), *backends(1, egress="a")]
    made = balancer(replace(service(claim()), backends=tuple(away)), ingress=("p0", "p2"))
    assert (made.egress_ports, made.ports) == (("p1", "a", "z"), ("p0", "p2", "p1", "a", "z"))


CLIENT, CLIENT6 = IPv4Address("198.51.100.7"), IPv6Address("2001:db8:c::7")
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
