"""The packet that `xenoovs trace` asks about, out of what the user said and what the config makes likely."""

from __future__ import annotations

from ipaddress import ip_address

import click

from xenoovs.model.address import IPAddress, Mac, family_of
from xenoovs.model.balancer import Balancer
from xenoovs.model.packet import Packet
from xenoovs.model.service import Protocol, Service

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


def packet_of(
    balancer: Balancer,
    *,
    src: IPAddress,
    dst: IPAddress | None,
    protocol: str | None,
    sport: int,
    dport: int | None,
    in_port: str | None,
) -> Packet:
    """The packet. Raises click.UsageError when source and destination are not of one IP version."""
    family = family_of(src)
    service = _guess_service(balancer, src, dst)
    claim = service.claim if service else None
    kind = Protocol(protocol) if protocol else claim.protocol if claim and claim.protocol else Protocol.UDP
    vips = claim.vips_of(family) if claim else ()
    destination = dst or (vips[0] if vips else _other_than(src))
    if family_of(destination) is not family:
        raise click.UsageError(f"--src {src} and --dst {destination} are not of one IP version.")
    port = dport if dport is not None else claim.ports[0].first if claim and claim.ports else _SOME_PORT
    return Packet(
        in_port=in_port or balancer.uplinks.ingress[0],
        source=src,
        destination=destination,
        protocol=kind.number(family),
        sport=sport if kind.has_ports else _ECHO_REQUEST[src.version],
        dport=port if kind.has_ports else 0,
        dl_dst=service.vip_mac if service and service.vip_mac else Mac(0x020000000002),
    )


def _other_than(src: IPAddress) -> IPAddress:
    return next(address for text in _SOME_ADDRESSES[src.version] if (address := ip_address(text)) != src)


def _guess_service(balancer: Balancer, src: IPAddress, dst: IPAddress | None) -> Service | None:
    family = family_of(src)
    fitting = (s for s in balancer.services if family in s.claim.families and (dst is None or dst in s.claim.vips))
    return next(fitting, None)
