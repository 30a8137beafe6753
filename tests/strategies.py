"""Hypothesis strategies: balancers of services of every kind, packets that tempt them, and edits of a balancer.

To make a strategy takes longer than to draw from it; what does not depend on what was drawn is made once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from itertools import count

from hypothesis import settings
from hypothesis import strategies as st

from xenoovs.model.address import Family, IPAddress, IPNetwork, Mac, Vip, family_of
from xenoovs.model.balancer import (
    Backend,
    Balancer,
    BlockKey,
    Claim,
    Drain,
    DrainMode,
    KeyField,
    OtherTraffic,
    PortRange,
    Protocol,
    Service,
    Uplinks,
)
from xenoovs.model.next_hop import NO_TAG, Direct, Unchanged
from xenoovs.model.packet import NEIGHBOUR_DISCOVERY, Packet
from xenoovs.openflow.flow import tag_of


def with_backends(balancer: Balancer, change: Callable[[Service, Backend], Backend]) -> Balancer:
    """The balancer with other backends, each in the place of one."""
    services = (replace(s, backends=tuple(change(s, backend) for backend in s.backends)) for s in balancer.services)
    return replace(balancer, services=tuple(services))


def apart(claims: Iterable[Claim]) -> list[Claim]:
    """Those claims that claim no packet of one before."""
    kept: list[Claim] = []
    for claim in claims:
        if not any(claim.overlaps(other) for other in kept):
            kept.append(claim)
    return kept


def share(part: float) -> settings:
    """This part of the profile's examples, for a law whose examples take long: `@share(0.4)`."""
    return settings(max_examples=round(part * settings().max_examples))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def damaged(draw: st.DrawFn, text: str, pieces: st.SearchStrategy[str], *, longest: int) -> str:
    """The text with one to three parts cut out, each of up to `longest` characters, and pieces put in."""
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + longest)))
        text = text[:start] + draw(pieces) + text[end:]
    return text


VIPS4 = tuple(map(IPv4Address, ("10.3.10.45", "10.3.10.46", "10.3.10.61", "10.7.0.1")))
VIPS6 = (IPv6Address("2001:db8::45"), IPv6Address("2001:db8::46"), IPv6Address("2001:db8:1::1"))
VIPS: tuple[Vip, ...] = (*VIPS4, *VIPS6)
NETS4 = tuple(map(IPv4Network, ("10.0.0.0/8", "10.3.0.0/16", "10.3.10.0/24", "10.3.10.44/31", "10.7.0.0/24")))
NETS6 = tuple(map(IPv6Network, ("2001:db8::/32", "2001:db8::/64", "2001:db8::40/124", "2001:db8:1::/48")))
NESTED: tuple[Vip, ...] = (*VIPS, *NETS4, *NETS6)
"""Addresses and prefixes, of which most hold others."""
VIP_MAC = Mac(0xC470BDA056AC)
SOURCE_MAC = Mac(0xC470BDA056BD)
INGRESS = ("p0", "p2", "p3")
EGRESS = ("p1", "pf0hpf", "en3f0pf0sf0")
VLANS = (None, None, NO_TAG, 100, 200)
_EDGES = (0, 1, 53, 80, 8000, 32767, 32768, 65534, 65535)
_TOLERANCES = (Fraction(1, 10), Fraction(1, 4), Fraction(1))
_POSITIONS_NEEDED = 10
"""Weights up to 20 on five backends: the smallest share is 1/81, which 10 bits meet within 10%."""

_IPV6_BITS = 112
"""Those that a config may name: not the first 16 of the address."""

port_numbers = st.sampled_from(_EDGES) | st.integers(0, 65535)


_RANGES = port_numbers.map(lambda port: PortRange(port, port)) | st.tuples(port_numbers, port_numbers).map(
    lambda ends: PortRange(*sorted(ends))
)
port_ranges = st.lists(_RANGES, min_size=1, max_size=3).map(tuple)
"""One to three ranges, which may touch or overlap."""

_PORTS = port_ranges | st.just(())
_PROTOCOLS = st.sampled_from((None, *Protocol))
_FAMILIES = st.sampled_from([frozenset({family}) for family in Family] + [frozenset(Family)])
_VLAN = st.sampled_from(VLANS)


@st.composite
def _claims(draw: st.DrawFn, vips: st.SearchStrategy[list[Vip]]) -> Claim:
    protocol = draw(_PROTOCOLS)
    ports = draw(_PORTS) if protocol is not None and protocol.has_ports else ()
    drawn = tuple(draw(vips))
    families = frozenset(family_of(vip) for vip in drawn) or draw(_FAMILIES)
    return Claim(families, drawn, protocol, ports, vlan=draw(_VLAN))


@cache
def claims(vips: tuple[Vip, ...] = VIPS) -> st.SearchStrategy[Claim]:
    return _claims(st.lists(st.sampled_from(vips), unique=True, max_size=3))


_MOST_BACKENDS = 5
_WEIGHTS = st.lists(
    st.tuples(st.integers(0, 20).map(Fraction) | st.just(Fraction(1, 2)), st.sampled_from(EGRESS)),
    min_size=1,
    max_size=_MOST_BACKENDS,
).filter(lambda drawn: any(weight for weight, _ in drawn))
"""Weights and ports of backends."""

_BACKUPS = st.sets(st.integers(0, _MOST_BACKENDS - 1)) | st.just(set[int]())
_UNCHANGED = st.sampled_from((None, None, 0))


@st.composite
def backends_of(draw: st.DrawFn, *, vlans: Sequence[int | None] = (None,)) -> tuple[Backend, ...]:
    """Up to five backends on up to three ports, at least one with a weight; the first may take packets unchanged.

    `vlans`: those that packets may leave with.
    """
    weights, ports = zip(*draw(_WEIGHTS), strict=True)
    unchanged = draw(_UNCHANGED)
    backups = draw(_BACKUPS)
    vlan = draw(st.sampled_from(vlans)) if len(vlans) > 1 else vlans[0]
    hops = [
        Unchanged(port, vlan) if i == unchanged else Direct(Mac(0x0A0000000000 + i), port, vlan)
        for i, port in enumerate(ports)
    ]
    return tuple(
        Backend(f"b{i}", hop, weight, is_backup=i in backups)
        for i, (hop, weight) in enumerate(zip(hops, weights, strict=True))
    )


@cache
def _positions(bits: int) -> st.SearchStrategy[tuple[int, ...] | None]:
    drawn = st.lists(st.integers(0, bits - 1), unique=True, min_size=_POSITIONS_NEEDED, max_size=16)
    return st.none() | drawn.map(tuple)


_FIELDS = st.sampled_from(KeyField)
_WIDTHS = st.none() | st.integers(_POSITIONS_NEEDED, 16)


@st.composite
def block_keys(draw: st.DrawFn, claim: Claim) -> BlockKey:
    """Enough bits for every weight that `backends_of` draws, of any key that the packets of the claim have."""
    has_ports = claim.protocol is not None and claim.protocol.has_ports
    field = draw(_FIELDS) if has_ports else KeyField.SOURCE_ADDRESS
    chosen = draw(_positions(min(field.width(claim.served_families[0]), _IPV6_BITS)))
    return BlockKey(field, chosen, None if chosen is not None else draw(_WIDTHS))


_MILLISECONDS = st.sampled_from((1, 1500, 3_600_000))
drains = st.builds(Drain, st.sampled_from(DrainMode), _MILLISECONDS, _MILLISECONDS)
_TOLERANCE = st.sampled_from(_TOLERANCES)
_VIP_MAC = st.sampled_from((None, VIP_MAC))
_SOURCE_MAC = st.sampled_from((None, SOURCE_MAC))


def _backends_beside(claim: Claim) -> st.SearchStrategy[tuple[Backend, ...]]:
    return backends_of(vlans=[vlan for vlan in (None, None, NO_TAG, 300) if vlan != claim.vlan])


@st.composite
def services(draw: st.DrawFn, claim: Claim, name: str) -> Service:
    return Service(
        name=name,
        claim=claim,
        backends=draw(_backends_beside(claim)),
        key=draw(block_keys(claim)),
        tolerance=draw(_TOLERANCE),
        vip_mac=draw(_VIP_MAC) if claim.vips else None,
        source_mac=draw(_SOURCE_MAC),
        drain=draw(drains),
    )


_INGRESS = st.lists(st.sampled_from(INGRESS), unique=True, min_size=1, max_size=3)


@st.composite
def uplinks(draw: st.DrawFn) -> Uplinks:
    ingress = tuple(draw(_INGRESS))
    kinds = [kind for kind in OtherTraffic if len(ingress) == 1 or kind is not OtherTraffic.PASSTHROUGH]
    return Uplinks("ovsbr1", ingress, "p1", draw(st.sampled_from(kinds)))


@cache
def _claim_lists(most: int, vips: tuple[Vip, ...]) -> st.SearchStrategy[list[Claim]]:
    return st.lists(claims(vips), max_size=most)


_UPLINKS = uplinks()


@st.composite
def balancers(draw: st.DrawFn, *, most: int = 4, vips: tuple[Vip, ...] = VIPS) -> Balancer:
    """Up to `most` services of which no two claim one packet with prefixes of one length."""
    return Balancer(draw(_UPLINKS), _with_services(draw, (), draw(_claim_lists(most, vips))))


def _with_services(draw: st.DrawFn, kept: Sequence[Service], claims: Sequence[Claim]) -> tuple[Service, ...]:
    """Add services that claim no packet of one before, with the first names that are free."""
    found = list(kept)
    for claim in claims:
        if not any(claim.overlaps(other.claim) for other in found):
            names = {service.name for service in found}
            found.append(draw(services(claim, next(name for i in count() if (name := f"s{i}") not in names))))
    return tuple(found)


_IS_KEPT = st.integers(0, 3).map(bool)
_IS_OTHER = st.booleans()
_EDITS = st.sampled_from(("none", "all", "backends", "policies", "tolerance"))


@st.composite
def edits(draw: st.DrawFn, balancer: Balancer) -> Balancer:
    """The balancer after a day of work on it: services gone, new, or with other backends, bits, policies or claims."""
    kept = [_edited(draw, service) for service in balancer.services if draw(_IS_KEPT)]
    uplinks = draw(_UPLINKS) if draw(_IS_OTHER) else balancer.uplinks
    return Balancer(uplinks, _with_services(draw, kept, draw(_claim_lists(4, VIPS))))


def _edited(draw: st.DrawFn, service: Service) -> Service:
    match draw(_EDITS):
        case "all":
            return draw(services(service.claim, service.name))
        case "backends":
            return replace(service, backends=draw(_backends_beside(service.claim)))
        case "policies":
            return replace(service, source_mac=draw(_SOURCE_MAC), drain=draw(drains))
        case "tolerance":
            return replace(service, tolerance=Fraction(1, 10))
    return service


def sources(family: Family) -> st.SearchStrategy[IPAddress]:
    """Addresses whose low bits vary more often than the others."""
    kind = IPv4Address if family is Family.IPV4 else IPv6Address
    base = int(IPv4Address("198.51.100.0")) if family is Family.IPV4 else int(IPv6Address("2001:db8:c::"))
    near = st.integers(0, 255).map(lambda low: kind(base | low))
    return near | st.integers(0, (1 << family.bits) - 1).map(kind)


def packets(balancer: Balancer) -> st.SearchStrategy[Packet]:
    """A packet for one of the services, nearly for one, or for none."""
    near = _near_packets(balancer)
    if not balancer.services:
        return near
    return near | st.sampled_from(balancer.services).flatmap(lambda s: claimed_packets(s.claim, balancer.uplinks))


@st.composite
def claimed_packets(draw: st.DrawFn, claim: Claim, uplinks: Uplinks) -> Packet:
    """A packet of a service."""
    family = draw(st.sampled_from(claim.served_families))
    vips = claim.vips_of(family)
    protocol = (claim.protocol or draw(st.sampled_from(Protocol))).number(family)
    ports = draw(st.sampled_from(claim.ports)) if claim.ports else PortRange(1, 65535)
    return Packet(
        in_port=draw(st.sampled_from(uplinks.ingress)),
        source=draw(sources(family)),
        destination=draw(st.sampled_from(vips).flatmap(addresses_in) if vips else sources(family)),
        protocol=protocol,
        sport=128 if protocol == 58 else 8 if protocol == 1 else draw(port_numbers),
        dport=0 if protocol in (1, 58) else draw(st.integers(ports.first, ports.last)),
        vlan=tag_of(draw(st.sampled_from((NO_TAG, 100))) if claim.vlan is None else claim.vlan),
    )


def addresses_in(vip: Vip) -> st.SearchStrategy[IPAddress]:
    """An address of a VIP; of a prefix often one that a longer one has too."""
    if not isinstance(vip, IPNetwork):
        return st.just(vip)
    longer = [other for other in VIPS if not isinstance(other, IPNetwork) and other in vip]
    return st.sampled_from([vip[0], vip[-1], *longer]) | st.integers(0, vip.num_addresses - 1).map(vip.__getitem__)


@st.composite
def _near_packets(draw: st.DrawFn, balancer: Balancer) -> Packet:
    claimed = draw(st.sampled_from([service.claim for service in balancer.services] or [Claim(frozenset(Family))]))
    family = draw(st.sampled_from(Family) | st.sampled_from(claimed.served_families))
    known: tuple[Vip, ...] = claimed.vips_of(family) or (VIPS4 if family is Family.IPV4 else VIPS6)
    protocol = draw(_protocols(claimed, family))
    sport, dport = draw(_l4(claimed, family, protocol))
    return Packet(
        in_port=draw(st.sampled_from((*balancer.ports, balancer.uplinks.ingress[0], "p9"))),
        source=draw(sources(family)),
        destination=draw(st.sampled_from(known).flatmap(addresses_in) | sources(family)),
        protocol=protocol,
        sport=sport,
        dport=dport,
        vlan=tag_of(draw(st.sampled_from((NO_TAG, claimed.vlan or 100, 200)))),
    )


@st.composite
def _protocols(draw: st.DrawFn, claim: Claim, family: Family) -> int:
    wanted = (claim.protocol or draw(st.sampled_from(Protocol))).number(family)
    number: int = draw(st.sampled_from((wanted, wanted, wanted, 6, 17, 132, 1, 58, 47)))
    return number


@st.composite
def _l4(draw: st.DrawFn, claim: Claim, family: Family, protocol: int) -> tuple[int, int]:
    """Source and destination port, or ICMP type and code; the edges of the claimed ranges from both sides."""
    if protocol in (Protocol.ICMP.number(other) for other in Family):
        is_neighbourly = (family, protocol) == (Family.IPV6, Protocol.ICMP.number(Family.IPV6))
        types: Sequence[int] = (*NEIGHBOUR_DISCOVERY, 128, 129, 132, 138) if is_neighbourly else (0, 8)
        return (draw(st.sampled_from(types)), 0) if _has_l4(family, protocol) else (0, 0)
    if not _has_l4(family, protocol):
        return 0, 0
    edges = [edge + step for ports in claim.ports for edge in (ports.first, ports.last) for step in (-1, 0, 1)]
    inside = [edge for edge in edges if 0 <= edge <= 65535]
    return draw(st.integers(1024, 65535)), draw(st.sampled_from(inside) | port_numbers if inside else port_numbers)


def _has_l4(family: Family, protocol: int) -> bool:
    """ICMP of the other IP version is a protocol that Open vSwitch does not look into."""
    return protocol in (6, 17, 132, Protocol.ICMP.number(family))
