"""The index of claims finds the same conflicts as comparing every pair."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

from hypothesis import given, settings
from hypothesis import strategies as st

from xenoovs.config.claims import Occupancy
from xenoovs.model.address import Family, IPAddress, family_of
from xenoovs.model.balancer import Claim, PortRange, Protocol

VIPS: tuple[IPAddress, ...] = (IPv4Address("192.0.2.1"), IPv4Address("192.0.2.2"), IPv6Address("2001:db8::1"))


@st.composite
def claims(draw: st.DrawFn) -> Claim:
    vips = tuple(draw(st.lists(st.sampled_from(VIPS), max_size=2, unique=True)))
    families = frozenset(map(family_of, vips)) or frozenset({draw(st.sampled_from(Family))})
    protocol = draw(st.none() | st.sampled_from(Protocol))
    ports: list[PortRange] = []
    if protocol is not None and protocol.has_ports:
        edges = sorted(draw(st.sets(st.integers(0, 12), max_size=6)))
        ports = [PortRange(first, last) for first, last in zip(edges[::2], edges[1::2], strict=False)]
    return Claim(families, vips, protocol, tuple(draw(st.permutations(ports))))


@given(st.lists(claims(), max_size=8))
@settings(max_examples=500, deadline=None)
def test_the_same_as_every_pair(wanted: list[Claim]) -> None:
    occupancy = Occupancy()
    held: list[int] = []
    ordered = sorted(wanted, key=lambda claim: bool(claim.vips))
    for index, claim in enumerate(ordered):
        rivals = {other for other in held if ordered[other].overlaps(claim)}
        clash = occupancy.add(claim, owner=index)
        assert (clash is None) == (not rivals)
        if clash is None:
            held.append(index)
        else:
            assert clash.owner in rivals
