"""Law 1: a packet ends at a backend that intent allows, and a packet of no service where the policy sends it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.compiled import compiled
from tests.strategies import balancers, packets, port_numbers, sources
from xenoovs.compile.encoding import arrives
from xenoovs.errors import assert_never
from xenoovs.model.address import Family
from xenoovs.model.balancer import Balancer, KeyField, OtherTraffic, Service
from xenoovs.model.intent import NEIGHBOUR_DISCOVERY, allowed_backends, service_of
from xenoovs.model.packet import Packet
from xenoovs.simulate.headers import headers_of
from xenoovs.simulate.walk import Outcome, tables_of


@given(st.data(), balancers())
def test_a_packet_reaches_the_destination_of_the_intent(data: st.DataObject, balancer: Balancer) -> None:
    tables = tables_of(compiled(balancer).flows)
    for _ in range(5):
        packet = data.draw(packets(balancer))
        service, outcome = service_of(balancer, packet), tables.run(packet)
        if service is None:
            assert outcome_ports(outcome) == ports_of_other_traffic(balancer, packet)
            assert all((c.dl_src, c.dl_dst) == (packet.dl_src.value, packet.dl_dst.value) for c in outcome.copies)
        else:
            assert_served(service, packet, outcome)


@given(st.data(), balancers())
def test_the_key_alone_chooses_the_backend(data: st.DataObject, balancer: Balancer) -> None:
    tables = tables_of(compiled(balancer).flows)
    packet = data.draw(packets(balancer))
    service = service_of(balancer, packet)
    other = replace(packet, dport=data.draw(port_numbers), ttl=3)
    if service is not None and service.key.field is KeyField.SOURCE_PORT:
        other = replace(other, source=data.draw(sources(packet.family)))
    else:
        other = replace(other, sport=packet.sport ^ 1)
    if service is not None and service_of(balancer, other) is service:
        assert tables.run(packet).copies[0].dl_dst == tables.run(other).copies[0].dl_dst


def assert_served(service: Service, packet: Packet, outcome: Outcome) -> None:
    (copy,) = outcome.copies
    hops = [backend.next_hop for backend in allowed_backends(service)]
    assert any(arrives(hop, port=copy.port, sent=copy.headers.get, original=headers_of(packet).get) for hop in hops)
    assert copy.dl_src == (service.source_mac or packet.dl_src).value


def outcome_ports(outcome: Outcome) -> list[str | None]:
    return [copy.port for copy in outcome.copies]


def ports_of_other_traffic(balancer: Balancer, packet: Packet) -> list[str | None]:
    """Return the ports by which the policy sends the packet, computed independently; None: by MAC learning."""
    uplinks = balancer.uplinks
    if packet.in_port not in balancer.ports:
        return []
    match uplinks.other_traffic:
        case OtherTraffic.PASSTHROUGH:
            return [uplinks.egress if packet.in_port in uplinks.ingress else uplinks.ingress[0]]
        case OtherTraffic.NORMAL:
            return [None]
        case OtherTraffic.DROP:
            return []
        case OtherTraffic.LEAVE:
            return [None] if is_guarded(balancer, packet) else []
        case _:
            assert_never(uplinks.other_traffic)


def is_guarded(balancer: Balancer, packet: Packet) -> bool:
    """Return whether a flow keeps this neighbour discovery out of a service; it is then forwarded by MAC learning."""
    if packet.family is not Family.IPV6 or packet.protocol != 58 or packet.sport not in NEIGHBOUR_DISCOVERY:
        return False
    takes = (s.claim for s in balancer.services if s.claim.protocol is None or s.claim.protocol.value == "icmp")
    return packet.in_port in balancer.uplinks.ingress and any(Family.IPV6 in claim.served_families for claim in takes)
