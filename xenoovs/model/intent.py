"""The intent of a config: which backends may answer a packet, without tables, masks and flows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xenoovs.model.address import Family
from xenoovs.model.balancer import Backend, Balancer, Claim, Protocol, Service
from xenoovs.model.remote import every_service

if TYPE_CHECKING:
    from xenoovs.model.packet import Packet

# Neighbour discovery (RFC 4861, section 4: types 133 to 137) keeps the link alive and is no client traffic.
NEIGHBOUR_DISCOVERY = range(133, 138)


def claims(claim: Claim, packet: Packet) -> bool:
    """Whether the packet is one of those that `claim` describes."""
    if packet.family not in claim.families or (claim.vips and packet.destination not in claim.vips):
        return False
    if _is_neighbour_discovery(packet):
        return False
    if claim.protocol is not None and packet.protocol != claim.protocol.number(packet.family):
        return False
    return not claim.ports or any(packet.dport in ports for ports in claim.ports)


def _is_neighbour_discovery(packet: Packet) -> bool:
    is_icmpv6 = packet.family is Family.IPV6 and packet.protocol == Protocol.ICMP.number(Family.IPV6)
    return is_icmpv6 and packet.sport in NEIGHBOUR_DISCOVERY


def service_of(balancer: Balancer, packet: Packet) -> Service | None:
    """The service of clients, or of a remote, whose packet this is; None: other traffic."""
    ingress = balancer.uplinks.ingress
    return next(
        (
            service
            for service in every_service(balancer)
            if packet.in_port in (ingress if service.claim.in_port is None else (service.claim.in_port,))
            and claims(service.claim, packet)
        ),
        None,
    )


def allowed_backends(service: Service) -> tuple[Backend, ...]:
    """The backends that may answer a client of the service."""
    return tuple(backend for backend in service.backends if backend.weight > 0)
