"""A small program for the tests of verify: two services of two backends, and the megaflows that a NIC would show."""

from __future__ import annotations

from fractions import Fraction
from ipaddress import ip_address

from tests.compiled import compiled
from xenoovs.compile.program import Program
from xenoovs.datapath.megaflow import Megaflow
from xenoovs.datapath.parse import parse_megaflow
from xenoovs.judge.expected import ExpectedBlock, expected_services
from xenoovs.model.address import Family, Mac
from xenoovs.model.balancer import Backend, Balancer, Claim, OtherTraffic, PortRange, Protocol, Service, Uplinks
from xenoovs.model.next_hop import Direct, mac_and_port

IN_HARDWARE = ", offloaded:yes, dp:tc"


def two_services() -> Program:
    """`dns` on 10.3.10.45 (UDP port 53) and `web` on 10.3.10.46 (any protocol); MACs end in 01 and 02."""
    return compiled(Balancer(Uplinks("ovsbr1", ("p0",), "p1", OtherTraffic.PASSTHROUGH), (_dns(), _web())))


def _backends() -> tuple[Backend, ...]:
    return tuple(Backend(f"b{i}", Direct(Mac(0x020000000000 + i), "p1"), Fraction(1)) for i in (1, 2))


def _dns() -> Service:
    claim = Claim(frozenset({Family.IPV4}), (ip_address("10.3.10.45"),), Protocol.UDP, (PortRange(53, 53),))
    return Service("dns", claim, _backends())


def _web() -> Service:
    return Service("web", Claim(frozenset({Family.IPV4}), (ip_address("10.3.10.46"),)), _backends())


def blocks(program: Program) -> list[ExpectedBlock]:
    return [block for service in expected_services(program) for block in service.blocks]


def megaflow_of(block: ExpectedBlock, *, where: str = IN_HARDWARE, packets: int = 10, actions: str = "") -> Megaflow:
    """A megaflow of the block, as the kernel datapath prints it."""
    l4 = "dst=10.3.10.45,proto=17,frag=no),udp(dst=53)" if block.service == "dns" else "dst=10.3.10.46,frag=no)"
    source = f"0.0.0.{block.key.value}/0.0.0.{block.key.mask}"
    mac, port = mac_and_port(block.hops[0])
    deliver = f"set(eth(dst={mac})),{port}"
    return parse_megaflow(
        f"ufid:1, recirc_id(0),in_port(p0),eth(dst=c4:70:bd:a0:56:ac),eth_type(0x0800),ipv4(src={source},{l4}, "
        f"packets:{packets}, bytes:{packets * 100}, used:0.100s{where}, actions:{actions or deliver}"
    )
