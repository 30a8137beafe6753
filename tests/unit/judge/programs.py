"""A small program for the tests of verify: two services of two backends, and the megaflows that a NIC would show."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from ipaddress import ip_address

from tests.compiled import compiled
from xenoovs.compile.program import Program
from xenoovs.datapath.megaflow import Megaflow, Verdict
from xenoovs.datapath.parse import parse_megaflow
from xenoovs.judge.expected import ExpectedBlock, expected_services
from xenoovs.judge.findings import Anomaly, BlockOffload, OffloadFindings
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


def shown(found: OffloadFindings) -> str:
    """Blocks with megaflows, overridden blocks, what is outside, and what is concluded, also with required shares."""
    lines = [
        f"{_block(one.block)}: {one.verdict.value}, {one.hw_packets} of {one.packets} packets in hardware, "
        f"{one.hw_bytes} of {one.bytes} bytes; {_counted(one.verdicts)}{_anomalies(one)}"
        for one in found.blocks
        if one.megaflows
    ]
    lines += [f"  {one}" for one in found.unproven]
    for over in found.overrides:
        keys = ", ".join(str(block.key.value) for block in over.blocks)
        lines.append(f"overridden: {over.service} {keys}, {over.megaflows} megaflows -> {over.actions}")
    for other in found.outside:
        where = f" from {other.in_port}" if other.in_port else ""
        of = f" of {', '.join(other.services)}" if other.services else ""
        lines.append(f"{other.kind.value}{where}{of}: {other.verdict.value} {other.megaflows}")
    lines.append(f"all: {found.conclusion_for(None).name}")
    lines += [f"{required:.0%}: {found.conclusion_for(required).name}" for required in (0.01, 0.5, 0.9)]
    return "\n".join(lines[:-3]) + "; " + "; ".join(lines[-3:])


def _block(block: ExpectedBlock) -> str:
    return f"{block.service} {block.backend} {block.key.value}/{block.key.mask}"


def _counted(verdicts: Counter[Verdict]) -> str:
    return ", ".join(f"{verdicts[verdict]} {verdict.value}" for verdict in Verdict if verdicts[verdict])


def _anomalies(found: BlockOffload) -> str:
    return "".join(f"; {count} {anomaly.value}" for anomaly in Anomaly if (count := found.anomalies[anomaly]))
