"""Random programs and packets for the tests of the simulation, alone and against a real ovs-vswitchd."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv6Address
from random import Random

from tests.strategies import VIPS4, VIPS6
from xenoovs.model.address import Family, IPAddress, Mac
from xenoovs.model.balancer import Claim, PortRange, Protocol
from xenoovs.model.packet import Packet
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.text import parse_flow
from xenoovs.partition.block import Block, spread

VIP_MACS = (Mac(0xC470BDA056AC), Mac(0xC470BDA056AD))
CLIENT_MACS = (Mac(0x020000000001), Mac(0x020000000002), Mac(0x020000000003))
_VIPS: dict[Family, tuple[IPAddress, ...]] = {Family.IPV4: VIPS4, Family.IPV6: VIPS6}
_PORTS = (53, 80, 443, 8000, 8003, 22, 5000)
_KEYWORDS = {Protocol.UDP: "udp", Protocol.TCP: "tcp", Protocol.SCTP: "sctp", Protocol.ICMP: "icmp"}


def random_blocks(random: Random, *, max_depth: int) -> list[Block]:
    """A prefix-free cover of the address space: blocks are split at random, shallow first."""
    blocks = [Block(0, 0)]
    for _ in range(random.randrange(1, 24)):
        chosen = random.randrange(len(blocks))
        if blocks[chosen].depth < max_depth:
            block = blocks.pop(chosen)
            blocks += [Block(block.value | bit << block.depth, block.depth + 1) for bit in (0, 1)]
    return sorted(blocks, key=lambda block: (block.depth, block.value))


def balance_flows(
    identity: int,
    blocks: Sequence[Block],
    *,
    positions: Sequence[int],
    family: Family = Family.IPV4,
    base: int = 1000,
    protocol: str = "",
) -> list[str]:
    """The balance table of one service, priority falling with depth; a MAC and egress port for each block.

    protocol: keyword of ovs-ofctl; with it the source port splits clients, else their address.
    """
    keyword, source, written = _key(family, protocol)
    flows = []
    for i, block in enumerate(blocks):
        value, mask = spread(block, positions)
        match = f",{source}={written(value)}/{written(mask)}" if mask else ""
        actions = f"mod_dl_dst:0a:00:00:00:{identity:02x}:{i:02x},output:p1"
        flows.append(f"table=1, priority={base - block.depth},{keyword},reg0={identity:#x}{match} actions={actions}")
    return flows


def _key(family: Family, protocol: str) -> tuple[str, str, Callable[[int], object]]:
    """Keyword and field of the flows, and how bits of the field are written."""
    if protocol:
        return protocol, "tp_src", hex
    return ("ip", "nw_src", IPv4Address) if family is Family.IPV4 else ("ipv6", "ipv6_src", IPv6Address)


def random_claims(random: Random, *, count: int) -> list[Claim]:
    """Claims of which no two are for the same packet."""
    claims: list[Claim] = []
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


def classify_flow(claim: Claim, identity: int, *, in_port: str, priority: int) -> str:
    """What marks the packets of a claim with its service id."""
    (family,) = claim.families
    six = "" if family is Family.IPV4 else "6"
    keyword = _KEYWORDS[claim.protocol] + six if claim.protocol else f"ip{'v6' if six else ''}"
    ports = "".join(f",tp_dst={_port_match(ports)}" for ports in claim.ports)
    destination = f"{'ipv6' if six else 'nw'}_dst={claim.vips[0]}"
    actions = f"load:{identity:#x}->NXM_NX_REG0[],resubmit(,1)"
    return f"table=0, priority={priority},{keyword},in_port={in_port},{destination}{ports} actions={actions}"


def _port_match(ports: PortRange) -> str:
    return str(ports.first) if ports.first == ports.last else f"{ports.first:#x}/0xfffc"


def random_program(random: Random) -> list[Flow]:
    """Several services of different widths, bit lists, families and claims, with flows of others beside them."""
    texts: list[str] = []
    by_claim = random.random() < 0.5
    for identity, claim in enumerate(random_claims(random, count=random.randrange(1, 7)), start=1):
        (family,) = claim.families
        specificity = (claim.protocol is not None) + bool(claim.ports)
        priority = 100 + specificity if by_claim else 100
        texts += [classify_flow(claim, identity, in_port=port, priority=priority) for port in ("p0", "p2")]
        width = random.randrange(1, 9)
        by_port = claim.protocol is not None and claim.protocol.has_ports and random.random() < 0.5
        bits = 16 if by_port else family.bits
        # Of IPv6, the lower half or a prefix: ovs-ofctl takes a mask that starts with a digit for a prefix length.
        anywhere = random.sample(range(min(64, bits)), width)
        prefix = range(bits - 1, bits - 1 - width, -1)
        positions: Sequence[int] = random.choice((range(width), anywhere, prefix))
        keyword = (
            f"{_KEYWORDS[claim.protocol]}{'' if family is Family.IPV4 else '6'}" if by_port and claim.protocol else ""
        )
        blocks = random_blocks(random, max_depth=width)
        flows = balance_flows(identity, blocks, positions=positions, family=family, protocol=keyword)
        if random.random() < 0.2:
            flows = [flow.replace("mod_dl_dst", "mod_dl_src:06:00:00:00:00:01,mod_dl_dst") for flow in flows]
        texts += flows
    texts += [f"table=0, {text}" for text in _OTHERS if random.random() < 0.3]
    other = random.choice(("output:p1", "NORMAL", "drop", None))
    texts += [f"table=0, priority=1,in_port={port} actions={other}" for port in ("p0", "p2") if other]
    return [parse_flow(text) for text in texts]


_OTHERS = (
    "priority=500,ip,nw_src=203.0.113.9 actions=output:p2",
    "priority=500,ip,nw_src=203.0.112.0/20 actions=drop",
    "priority=50,ip,nw_dst=10.3.0.0/16 actions=output:p2",
    "priority=400,tcp,tp_dst=22 actions=drop",
    "priority=400,udp,tp_src=0x1000/0xf000 actions=output:p1",
    "priority=300,arp,arp_tpa=10.3.10.46,arp_op=1 actions=IN_PORT",
    "priority=300,dl_dst=01:00:00:00:00:00/01:00:00:00:00:00 actions=drop",
    "priority=450,icmp6,icmp_type=135 actions=NORMAL",
    "priority=350,ipv6,ipv6_src=2001:db8:ffff::/48 actions=drop",
    "priority=350,icmp,icmp_type=0 actions=drop",
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
