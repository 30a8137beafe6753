"""Claims, ports and protocols."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest

from tests.unit.balancer import claim
from xenoovs.model.address import Family
from xenoovs.model.balancer import Claim, PortRange, Protocol, merge_ports

V4, V4B, V6 = IPv4Address("192.0.2.1"), IPv4Address("192.0.2.2"), IPv6Address("2001:db8::1")
ANY4, ANY6 = Claim(frozenset({Family.IPV4})), Claim(frozenset({Family.IPV6}))


@pytest.mark.parametrize(
    ("protocol", "number4", "number6"),
    [(Protocol.TCP, 6, 6), (Protocol.UDP, 17, 17), (Protocol.SCTP, 132, 132), (Protocol.ICMP, 1, 58)],
)
def test_protocol_numbers(protocol: Protocol, number4: int, number6: int) -> None:
    assert (protocol.number(Family.IPV4), protocol.number(Family.IPV6)) == (number4, number6)


def test_icmp_alone_has_no_ports() -> None:
    assert [protocol for protocol in Protocol if not protocol.has_ports] == [Protocol.ICMP]


def test_both_ends_of_a_range_belong_to_it() -> None:
    ports = PortRange(8000, 8003)
    assert [port in ports for port in (7999, 8000, 8003, 8004)] == [False, True, True, False]


def test_a_range_of_one_reads_as_a_port() -> None:
    assert [str(PortRange(53, 53)), str(PortRange(0, 65535))] == ["53", "0-65535"]


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


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        (claim(V4), claim(V4), True),
        (claim(V4), claim(V4B), False),
        (claim(V4), ANY4, True),
        (claim(V6), ANY4, False),
        (ANY4, ANY6, False),
        (claim(V4, V6), ANY6, True),
        (claim(V4, protocol=Protocol.UDP), claim(V4, protocol=Protocol.TCP), False),
        (claim(V4, protocol=Protocol.UDP), claim(V4), True),
        (claim(protocol=Protocol.UDP), claim(V4, protocol=Protocol.TCP), False),
        (claim(V4, protocol=Protocol.UDP, ports=[(53, 53)]), claim(V4, protocol=Protocol.UDP, ports=[(54, 60)]), False),
        (claim(V4, protocol=Protocol.UDP, ports=[(53, 53)]), claim(V4, protocol=Protocol.UDP, ports=[(1, 53)]), True),
        (claim(V4, protocol=Protocol.UDP, ports=[(53, 53)]), claim(V4, protocol=Protocol.UDP), True),
        (claim(V4, protocol=Protocol.UDP, ports=[(53, 53)]), claim(V4, protocol=Protocol.TCP, ports=[(53, 53)]), False),
    ],
)
def test_two_claims_overlap_either_way_round(one: Claim, other: Claim, *, overlap: bool) -> None:
    assert one.overlaps(other) is other.overlaps(one) is overlap


def test_families_served_are_those_with_a_vip() -> None:
    assert claim(V6, V4).served_families == (Family.IPV4, Family.IPV6)
    assert Claim(frozenset(Family), (V6,)).served_families == (Family.IPV6,)
    assert Claim(frozenset(Family)).served_families == (Family.IPV4, Family.IPV6)
