"""Who answers for the IPv6 addresses of the services: packet-in to packet-out, and the flows that bring the packets.

Open vSwitch makes an answer to ARP out of the request; a neighbour solicitation has no room for one, because the option
with the asker's address may be missing. So those for our VIPs come to the controller. Their flows are no part of the
program: they would be wrong without a controller, so they live for seconds only and are added again and again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import IPv6Address
from itertools import product

from xenoovs.compile.pipeline import NEIGHBOUR_DISCOVERY_PRIORITY, Stage
from xenoovs.controller.solicitation import advertisement, parse_solicitation
from xenoovs.model.address import Family
from xenoovs.model.balancer import Balancer
from xenoovs.model.service import Protocol
from xenoovs.openflow.action import Foreign, Output
from xenoovs.openflow.cookie import ANSWER_OWNER
from xenoovs.openflow.field import ETH_IPV6, Field
from xenoovs.openflow.flow import Flow, FlowKey
from xenoovs.openflow.match import exact, match_of
from xenoovs.openflow.value import render_ipv6
from xenoovs.openflow.wire.features import WHOLE_PACKET
from xenoovs.openflow.wire.packet import PacketIn, PacketOut

LEASE_S = 10
"""After so many seconds without a controller neighbour discovery goes where it would go without one."""

PRIORITY = NEIGHBOUR_DISCOVERY_PRIORITY + 1
"""Above what keeps neighbour discovery out of services."""

_SOLICITATION = 135
"""RFC 4861, 4.3."""
_TO_CONTROLLER = Foreign(f"CONTROLLER:{WHOLE_PACKET}")

Macs = Mapping[int, bytes]
"""The MAC that answers for an IPv6 address, 6 bytes by 128 bits."""


def macs_of(balancer: Balancer) -> dict[int, bytes]:
    """Of all services that name a `vip_mac`, as ARP for their IPv4 addresses is answered."""
    return {
        int(vip): service.vip_mac.value.to_bytes(6)
        for service in balancer.services
        if service.vip_mac is not None
        for vip in service.claim.vips_of(Family.IPV6)
    }


def answer_flows(balancer: Balancer) -> Iterator[Flow]:
    """Sends solicitations for our addresses here: one flow for each ingress port and address."""
    for in_port, vip in product(balancer.uplinks.ingress, sorted(macs_of(balancer))):
        conditions = (
            exact(Field.DL_TYPE, ETH_IPV6),
            exact(Field.NW_PROTO, Protocol.ICMP.number(Family.IPV6)),
            exact(Field.ICMP_TYPE, _SOLICITATION),
            exact(Field.ICMP_CODE, 0),
        )
        match = match_of(conditions, in_port=in_port, foreign=(f"nd_target={render_ipv6(vip)}",))
        key = FlowKey(Stage.CLASSIFY.table, PRIORITY, match)
        yield Flow(key, ANSWER_OWNER << 48, (_TO_CONTROLLER,), (f"hard_timeout={LEASE_S}",))


def answer(packet: PacketIn, macs: Macs) -> PacketOut | None:
    """What to send back by the port that asked; None for a packet that asks for none of our addresses."""
    asked = parse_solicitation(packet.data)
    if asked is None or packet.match.in_port is None:
        return None
    mac = macs.get(int(IPv6Address(asked.target)))
    return None if mac is None else PacketOut((Output(packet.match.in_port),), advertisement(asked, mac))
