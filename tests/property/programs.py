"""Random programs and packets for the tests of the simulation, alone and against a real ovs-vswitchd."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from ipaddress import IPv4Address, IPv6Address
from random import Random

from tests.compiled import compiled
from tests.strategies import VIPS4, VIPS6
from tests.unit import balancer as small
from xenoovs.model.address import Family, IPAddress, Mac
from xenoovs.model.balancer import BlockKey, Claim, KeyField, OtherTraffic, PortRange, Protocol
from xenoovs.model.packet import Packet
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.text import parse_flow

VIP_MACS = (Mac(0xC470BDA056AC), Mac(0xC470BDA056AD))
CLIENT_MACS = (Mac(0x020000000001), Mac(0x020000000002), Mac(0x020000000003))
_VIPS: dict[Family, tuple[IPAddress, ...]] = {Family.IPV4: VIPS4, Family.IPV6: VIPS6}
_PORTS = (53, 80, 443, 8000, 8003, 22, 5000)


def random_claims(random: Random) -> list[Claim]:
    """Claims of which no two are for the same packet."""
    claims, count = list[Claim](), random.randrange(1, 7)
    while len(claims) < count:
        family = random.choice((Family.IPV4, Family.IPV4, Family.IPV6))
        vip = random.choice(_VIPS[family])
        protocol = random.choice((None, *Protocol))
        ports: tuple[PortRange, ...] = ()
        if protocol and protocol.has_ports and random.random() < 0.8:
            first = random.choice((53, 80, 443, 8000, 5000))
            ports = (PortRange(first, first + 3 if first == 8000 else first),)
        claim = Claim(frozenset({family}), (vip,), protocol, ports)
        if not any(claim.overlaps(other) for other in claims):
            claims.append(claim)
    return claims


def random_program(random: Random) -> list[Flow]:
    """Several services of different widths, bit lists, families and claims, with flows of others beside them."""
    services = []
    for number, claim in enumerate(random_claims(random)):
        (family,) = claim.families
        by_port = claim.protocol is not None and claim.protocol.has_ports and random.random() < 0.5
        field = KeyField.SOURCE_PORT if by_port else KeyField.SOURCE_ADDRESS
        bits, width = field.width(family), random.randrange(6, 10)
        # Of IPv6, the lower half or a prefix: ovs-ofctl takes a mask that starts with a digit for a prefix length.
        anywhere = random.sample(range(min(64, bits)), width)
        prefix = range(bits - 1, bits - 1 - width, -1)
        key = BlockKey(field, tuple(random.choice((range(width), anywhere, prefix))))
        weights = [random.randrange(1, 9) for _ in range(random.randrange(1, 7))]
        made = small.service(claim, *weights, name=f"s{number}")
        source_mac = Mac(0x060000000001) if random.random() < 0.2 else None
        services.append(replace(made, key=key, tolerance=Fraction(1, 2), source_mac=source_mac))
    other = random.choice((OtherTraffic.NORMAL, OtherTraffic.DROP, OtherTraffic.LEAVE))
    flows = compiled(small.balancer(*services, other=other, ingress=("p0", "p2"))).flows
    return [*flows, *(parse_flow(text) for text in _OTHERS if random.random() < 0.3)]


_OTHERS = (
    "priority=2500,ip,nw_src=203.0.113.9 actions=output:p2",
    "priority=2500,ip,nw_src=203.0.112.0/20 actions=drop",
    "priority=50,ip,nw_dst=10.3.0.0/16 actions=output:p2",
    "priority=2000,tcp,tp_dst=22 actions=drop",
    "priority=2000,udp,tp_src=0x1000/0xf000 actions=output:p1",
    "priority=1500,arp,arp_tpa=10.3.10.46,arp_op=1 actions=IN_PORT",
    "priority=1500,dl_dst=01:00:00:00:00:00/01:00:00:00:00:00 actions=drop",
    "priority=2250,icmp6,icmp_type=135 actions=NORMAL",
    "priority=1750,ipv6,ipv6_src=2001:db8:ffff::/48 actions=drop",
    "priority=1750,icmp,icmp_type=0 actions=drop",
    "priority=20,ip actions=mod_dl_src:06:00:00:00:00:07,IN_PORT",
)


def random_packets(random: Random, *, count: int) -> list[Packet]:
    """Packets from as many different clients, most of them to a VIP."""
    seen: set[int] = set()
    packets: list[Packet] = []
    while len(packets) < count:
        packet = _random_packet(random)
        if int(packet.source) not in seen:
            seen.add(int(packet.source))
            packets.append(packet)
    return packets


def _random_packet(random: Random) -> Packet:
    is_ipv4 = random.random() < 0.7
    protocol = random.choice((6, 17, 132, 1 if is_ipv4 else 58))
    sport, dport = random.choice((1024, 4096, 40000)) + random.randrange(8), random.choice(_PORTS)
    if protocol in (1, 58):
        sport, dport = (random.choice((0, 8)) if protocol == 1 else random.choice((128, 129))), 0
    family, other = (Family.IPV4, IPv4Address("10.3.11.1")) if is_ipv4 else (Family.IPV6, IPv6Address("2001:db8::99"))
    return Packet(
        random.choice(("p0", "p0", "p2")),
        _random_source(random, is_ipv4),
        random.choice((*_VIPS[family], other)),
        protocol,
        sport,
        dport,
        random.choice(CLIENT_MACS),
        random.choice(VIP_MACS),
    )


def _random_source(random: Random, is_ipv4: bool) -> IPAddress:
    if is_ipv4:
        near = random.choice((0xCB007100, 0xCB007000, 0xC6336400))
        return IPv4Address(
            random.choice((random.getrandbits(32) & 0x7FFFFFFF | 0x10000000, near | random.getrandbits(8)))
        )
    return IPv6Address(0x20010DB8 << 96 | random.choice((0, 0xFFFF)) << 80 | random.getrandbits(64))
