"""Services by source port beside services by source address, on a real ovs-vswitchd: one megaflow a block.

The masks of one key widen no megaflow of the other: `reg0` lies in the first stage of the look-up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address

import pytest

from tests.compiled import compiled
from tests.ovs.dummy import DummyBridge
from tests.ovs.simulated import Shape, install, send, send_as_predicted
from xenoovs.compile.encoding import key_match
from xenoovs.compile.plan import hardware_entries
from xenoovs.compile.program import Program, ServiceProgram
from xenoovs.datapath.megaflow import Verdict
from xenoovs.judge.expected import expected_services
from xenoovs.judge.findings import Conclusion
from xenoovs.judge.foreign import attribute
from xenoovs.judge.offload import check_dump
from xenoovs.model.address import Family, IPAddress
from xenoovs.model.load import parse_config
from xenoovs.model.packet import Packet
from xenoovs.openflow.text import parse_flow

NINE = "".join(
    f"      - {{name: b{depth}, mac: '02:00:5e:10:00:0{depth}', weight: {1 << 8 - min(depth, 8)}}}\n"
    for depth in range(1, 10)
)
"""A half, a quarter, ... 1/256, 1/256: a block of each depth from 1 to 8, and two of the last."""

SERVICES = {
    "udp-port": ("udp", 443, "source_port"),
    "udp-address": ("udp", 53, "source_address"),
    "tcp-port": ("tcp", 443, "source_port"),
    "tcp-address": ("tcp", 80, "source_address"),
    "sctp-port": ("sctp", 5060, "source_port"),
    "sctp-address": ("sctp", 5061, "source_address"),
}
VIPS = (IPv4Address("192.0.2.10"), IPv6Address("2001:db8::10"))
CONFIG = "version: 1\nswitch: {ingress: [p0], egress: p1, other_traffic: drop}\nservices:\n" + "".join(
    f"  - name: {name}\n    vip: ['192.0.2.10', '2001:db8::10']\n    protocol: {protocol}\n    ports: [{port}]\n"
    f"    match: {{field: {field}}}\n    backends:\n{NINE}"
    for name, (protocol, port, field) in SERVICES.items()
)


def test_megaflows_are_as_many_as_blocks_whatever_stands_beside_and_verify_finds_each(bridge: DummyBridge) -> None:
    program = compiled(parse_config(CONFIG, file="c.yaml"))
    packets = [packet for service in program.services for packet in everybody(service)]
    found = by_service(send_as_predicted(bridge, program.flows, packets))
    assert {name: len(shapes) for name, shapes in found.items()} == {
        made.service.name: hardware_entries(made) for made in program.services
    }
    assert {made.service.name: len(made.blocks) for made in program.services} == dict.fromkeys(SERVICES, 18)
    assert {name: keys_of(shapes) for name, shapes in found.items()} == keys_of_blocks(program)
    lines = [line.replace("dp:ovs", "offloaded:yes, dp:tc") for line in bridge.megaflows()]
    verified = check_dump(expected_services(program), lines)
    assert verified.conclusion is Conclusion.IN_HARDWARE
    assert [each.verdicts for each in verified.blocks] == [((Verdict.HW, 1),)] * 18 * len(SERVICES)
    assert (verified.unwildcardings, verified.overrides, verified.outside, verified.unparsed) == ((), (), (), ())


@pytest.mark.parametrize(
    ("match", "looked_at"), [("tp_src=0x1000/0xf000", "tp_src"), ("tp_src=9,nw_src=203.0.113.9", "nw_src")]
)
def test_a_flow_of_others_widens_both_keys_and_is_named(bridge: DummyBridge, match: str, looked_at: str) -> None:
    program = compiled(parse_config(CONFIG, file="c.yaml"))
    foreign = parse_flow(f"priority=3000,udp,{match} actions=drop")
    install(bridge, (*program.flows, foreign))
    bridge.settle(removed_s=0)
    send(bridge, [packet for made in program.services[:2] for packet in everybody(made) if packet.source in CLIENTS])
    lines = bridge.megaflows()
    found = attribute(check_dump(expected_services(program), lines), [foreign])
    assert {unwildcarding.service for unwildcarding in found.unwildcardings} == {"udp-port", "udp-address"}
    assert {unwildcarding.flows for unwildcarding in found.unwildcardings} == {(foreign,)}
    assert {name for unwildcarding in found.unwildcardings for name, _ in unwildcarding.fields} == {looked_at}


def everybody(service: ServiceProgram) -> Iterator[Packet]:
    """Every value of the low 9 bits of the port, 512 clients for it, to each VIP."""
    claim = service.service.claim
    assert claim.protocol is not None
    for vip in VIPS:
        for number in range(512):
            source = client(vip, number)
            port = 40_448 + (number * 37 + 5) % 512
            family = Family.IPV4 if vip.version == 4 else Family.IPV6
            yield Packet("p0", source, vip, claim.protocol.number(family), port, claim.ports[0].first)


CLIENTS = {IPv4Address(0xC6120000 + number) for number in range(64)}


def client(vip: IPAddress, number: int) -> IPAddress:
    return IPv4Address(0xC6120000 + number) if vip.version == 4 else IPv6Address((0x20010DB8000C << 80) + number)


def by_service(shapes: set[Shape]) -> dict[str, set[Shape]]:
    found = defaultdict[str, set[Shape]](set)
    protocols = {"tcp": 6, "udp": 17, "sctp": 132}
    names = {(protocols[protocol], port): name for name, (protocol, port, _) in SERVICES.items()}
    for shape in shapes:
        values = {name: value for name, _, value in shape[1]}
        found[names[values["nw_proto"], values["tp_dst"]]].add(shape)
    return found


def keys_of(shapes: set[Shape]) -> set[tuple[str, int, int]]:
    """What megaflows match of the source: field, mask and value."""
    return {part for _, fields, _ in shapes for part in fields if part[0] in ("nw_src", "ipv6_src", "tp_src")}


def keys_of_blocks(program: Program) -> dict[str, set[tuple[str, int, int]]]:
    return {
        made.service.name: {
            (condition.field.ovs_name, condition.mask, condition.value)
            for block in made.blocks
            for family in made.service.claim.served_families
            for condition in (key_match(made.service.key.field, family, block.rule.value, block.rule.mask),)
        }
        for made in program.services
    }
