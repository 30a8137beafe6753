"""The predicted number of hardware entries against the tuple-space model, with every class of clients sending."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address
from itertools import product

from hypothesis import assume, given, settings

from tests.compiled import compiled
from tests.strategies import VIPS4, VIPS6, balancers
from xenoovs.compile.encoding import key_match, port_masks
from xenoovs.compile.plan import hardware_entries
from xenoovs.compile.program import Program, ServiceProgram
from xenoovs.model.address import Family, IPAddress
from xenoovs.model.balancer import Balancer, KeyField, Protocol
from xenoovs.model.packet import Packet
from xenoovs.simulate.megaflows import pipeline_of

_MOST = 600


@settings(max_examples=80)
@given(balancers())
def test_entries_are_as_predicted_beside_other_services(balancer: Balancer) -> None:
    program = compiled(balancer)
    for service in program.services:
        if hardware_entries(service) <= _MOST:
            assert megaflows(program, service, balancer) == hardware_entries(service)


@settings(max_examples=40)
@given(balancers(most=1))
def test_each_client_side_mac_costs_as_much_again_when_it_is_rewritten(balancer: Balancer) -> None:
    program = compiled(balancer)
    assume(program.services and hardware_entries(program.services[0]) <= _MOST)
    (service,) = program.services
    macs = 2 if service.service.source_mac else 1
    assert megaflows(program, service, balancer, client_macs=2) == macs * hardware_entries(service)


def megaflows(program: Program, service: ServiceProgram, balancer: Balancer, *, client_macs: int = 1) -> int:
    pipeline = pipeline_of(program.flows)
    sent = (
        replace(packet, dl_src=replace(packet.dl_src, value=packet.dl_src.value + extra))
        for packet in all_clients(service, balancer)
        for extra in range(client_macs)
    )
    return len({pipeline.predict(packet)[0] for packet in sent})


def all_clients(service: ServiceProgram, balancer: Balancer) -> Iterator[Packet]:
    """Packets of each class of clients, by each port, to each VIP (two where there is none) and each port mask.

    Two of each class, which differ in all that does not choose their block.
    """
    claim, field = service.service.claim, service.service.key.field
    ports = [mask.value for mask in port_masks(claim.ports)] or [0]
    deepest = max(block.rule for block in service.blocks).mask
    for in_port, family, port in product(balancer.uplinks.ingress, claim.served_families, ports):
        known: tuple[IPAddress, ...] = VIPS4 if family is Family.IPV4 else VIPS6
        protocol = (claim.protocol or Protocol.UDP).number(family)
        sport = {1: 8, 58: 128}.get(protocol, 4000)
        for vip, bits in product(claim.vips_of(family) or known[:2], submasks(deepest)):
            chosen = key_match(field, family, bits, deepest).value
            of_address = field is KeyField.SOURCE_ADDRESS
            for rest in (0, 0xFFFF):
                # Types of ICMP stay those that no flow is for.
                by_address = chosen, sport ^ rest if claim.protocol and claim.protocol.has_ports else sport
                source, source_port = by_address if of_address else (rest, chosen)
                address = IPv4Address(source) if family is Family.IPV4 else IPv6Address(source)
                yield Packet(in_port, address, vip, protocol, source_port, port)


def submasks(mask: int) -> Iterator[int]:
    """Every number whose bits lie in the mask."""
    value = 0
    while True:
        yield value
        value = (value - mask) & mask
        if value == 0:
            return
