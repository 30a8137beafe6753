"""Ids of services: stable against everything but the claim, and never twice the same."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest

from tests.unit.balancer import claim
from xenoovs.model import balancer
from xenoovs.model.address import Family
from xenoovs.model.balancer import Claim, Protocol, service_ids

VIP, OTHER_VIP, VIP6 = IPv4Address("192.0.2.1"), IPv4Address("192.0.2.2"), IPv6Address("2001:db8::1")


def id_of(claimed: Claim) -> int:
    return service_ids([claimed])[claimed]


def test_ids_are_these_for_ever() -> None:
    """A changed hash would rewrite every flow of every bridge on the next apply."""
    assert id_of(claim()) == 0xF11F9601
    assert id_of(claim(VIP, VIP6, protocol=Protocol.TCP, ports=[(80, 80), (8000, 8003)])) == 0x2D29B906


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (claim(VIP, OTHER_VIP), claim(OTHER_VIP, VIP)),
        (
            claim(VIP, protocol=Protocol.TCP, ports=[(80, 80), (443, 443)]),
            claim(VIP, protocol=Protocol.TCP, ports=[(443, 443), (80, 80)]),
        ),
        (
            claim(VIP, protocol=Protocol.TCP, ports=[(80, 81)]),
            claim(VIP, protocol=Protocol.TCP, ports=[(81, 81), (80, 80)]),
        ),
        (claim(VIP), Claim(frozenset(Family), (VIP,))),
    ],
)
def test_the_same_packets_are_the_same_id(one: Claim, other: Claim) -> None:
    assert id_of(one) == id_of(other)


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
    assert len(set(service_ids(claims).values())) == len(claims)


def test_a_thousand_services_have_a_thousand_ids() -> None:
    claims = [claim(IPv4Address(i)) for i in range(1, 1001)]
    found = set(service_ids(claims).values())
    assert len(found) == 1000
    assert all(0 < number < 1 << 32 for number in found)


def test_a_collision_takes_the_next_id_whatever_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    class Constant:
        def digest(self) -> bytes:
            return b"\xff\xff\xff\xff"

    monkeypatch.setattr(balancer, "blake2s", lambda *_, **__: Constant())
    claims = [claim(IPv4Address(i)) for i in (1, 2, 3)]
    found = service_ids(claims)
    assert service_ids(reversed(claims)) == found
    # After the last number comes 1: 0 means no service.
    assert sorted(found.values()) == [1, 2, 0xFFFFFFFF]
