"""The packet that `xenoovs trace` asks about, out of what the user said and what the config makes likely."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address

import click

from xenoovs.model.address import IPAddress, Mac, family_of
from xenoovs.model.balancer import Balancer
from xenoovs.model.packet import Packet
from xenoovs.model.service import Claim, Protocol, Service

_SOME_ADDRESSES = {4: ("192.0.2.1", "192.0.2.2"), 6: ("2001:db8::1", "2001:db8::2")}
"""Documentation addresses (RFC 5737, RFC 3849), for services that take any destination, and for no service."""

_ECHO_REQUEST = {4: 8, 6: 128}
"""ICMP types (RFC 792, RFC 4443)."""

_SOME_PORT = 80


def address(text: str) -> IPAddress:
    """An address given as an option. Raises click.BadParameter."""
    try:
        return ip_address(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user said of the packet; None: nothing, and what is likely is taken."""

    src: IPAddress
    dst: IPAddress | None
    protocol: str | None
    sport: int
    dport: int | None
    in_port: str | None


def packet_of(balancer: Balancer, asked: Asked) -> Packet:
    """The packet. Raises click.UsageError when source and destination are not of one IP version."""
    src, dport, family = asked.src, asked.dport, family_of(asked.src)
    protocol = Protocol(asked.protocol) if asked.protocol else None
    service = _guess_service(_for_addresses(balancer, src, asked.dst), protocol=protocol, dport=dport)
    claim = service.claim if service else None
    kind = protocol or (claim.protocol if claim and claim.protocol else Protocol.UDP)
    vips = claim.vips_of(family) if claim else ()
    destination = asked.dst or (vips[0] if vips else _other_than(src))
    if family_of(destination) is not family:
        raise click.UsageError(f"--src {src} and --dst {destination} are not of one IP version.")
    port = dport if dport is not None else claim.ports[0].first if claim and claim.ports else _SOME_PORT
    return Packet(
        in_port=asked.in_port or balancer.uplinks.ingress[0],
        source=src,
        destination=destination,
        protocol=kind.number(family),
        sport=asked.sport if kind.has_ports else _ECHO_REQUEST[src.version],
        dport=port if kind.has_ports else 0,
        dl_dst=service.vip_mac if service and service.vip_mac else Mac(0x020000000002),
    )


def _other_than(src: IPAddress) -> IPAddress:
    return next(address for text in _SOME_ADDRESSES[src.version] if (address := ip_address(text)) != src)


def _for_addresses(balancer: Balancer, src: IPAddress, dst: IPAddress | None) -> list[Service]:
    family = family_of(src)
    return [s for s in balancer.services if family in s.claim.families and (dst is None or dst in s.claim.vips)]


def _guess_service(services: list[Service], *, protocol: Protocol | None, dport: int | None) -> Service | None:
    """The first that such a packet can be of, else the first, whose packet it is not."""

    def fits(claim: Claim) -> bool:
        speaks = protocol is None or claim.protocol in (None, protocol)
        return speaks and (dport is None or not claim.ports or any(p.first <= dport <= p.last for p in claim.ports))

    return next((service for service in services if fits(service.claim)), services[0] if services else None)
