"""The first stage: is this packet a service's, and which one's? ARP for a VIP; everything else by policy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product

from xenoovs.compile.matching import destination_is, family_is
from xenoovs.compile.pipeline import (
    ARP_PRIORITY,
    NEIGHBOUR_DISCOVERY_PRIORITY,
    OTHER_PRIORITY,
    SERVICE_ID,
    Stage,
    cookie_of,
    service_priority,
)
from xenoovs.compile.port_masks import PortMask, port_masks
from xenoovs.errors import CompileError
from xenoovs.model.address import Family, Mac
from xenoovs.model.balancer import Balancer, OtherTraffic
from xenoovs.model.intent import NEIGHBOUR_DISCOVERY
from xenoovs.model.service import Claim, Protocol, Service
from xenoovs.openflow.action import Action, Move, Normal, Output, OutputInPort, Resubmit, SetField
from xenoovs.openflow.field import ETH_ARP, Field
from xenoovs.openflow.flow import Flow, FlowKey
from xenoovs.openflow.match import Masked, Match, exact, match_of

_TABLE = Stage.CLASSIFY.table
_ARP_REQUEST, _ARP_REPLY = 1, 2
"""RFC 826, ar$op."""


def service_flows(service: Service, *, service_id: int, ingress: tuple[str, ...]) -> Iterator[Flow]:
    """One flow for each ingress port, VIP and port mask of the service: remember whose packet it is and go on."""
    actions = (SetField(SERVICE_ID, service_id), Resubmit(Stage.BALANCE.table))
    cookie = cookie_of(Stage.CLASSIFY, service_id)
    for in_port, (conditions, port_bits) in product(ingress, _conditions(service.claim)):
        key = FlowKey(
            _TABLE, service_priority(service.claim, port_bits=port_bits), match_of(conditions, in_port=in_port)
        )
        yield Flow(key, cookie, actions)


def arp_flows(balancer: Balancer) -> Iterator[Flow]:
    """Answers ARP requests for the IPv4 VIPs with the VIP's MAC, inside the switch (RFC 826).

    Services can share a VIP (DNS over UDP and over TCP), so that an answer belongs to none of them. Raises CompileError
    for two MACs of one VIP.
    """
    for in_port, (vip, mac) in product(balancer.uplinks.ingress, sorted(_vip_macs(balancer.services).items())):
        conditions = (exact(Field.DL_TYPE, ETH_ARP), exact(Field.ARP_OP, _ARP_REQUEST), exact(Field.ARP_TPA, vip))
        key = FlowKey(_TABLE, ARP_PRIORITY, match_of(conditions, in_port=in_port))
        yield Flow(key, cookie_of(Stage.CLASSIFY), _arp_reply(mac, vip))


def neighbour_discovery_flows(balancer: Balancer) -> Iterator[Flow]:
    """Keeps neighbour discovery out of a service that would take every IPv6 packet (RFC 4861)."""
    if not any(_swallows_neighbour_discovery(service.claim) for service in balancer.services):
        return
    for in_port, icmp_type in product(balancer.uplinks.ingress, NEIGHBOUR_DISCOVERY):
        conditions = (
            family_is(Family.IPV6),
            exact(Field.NW_PROTO, Protocol.ICMP.number(Family.IPV6)),
            exact(Field.ICMP_TYPE, icmp_type),
        )
        key = FlowKey(_TABLE, NEIGHBOUR_DISCOVERY_PRIORITY, match_of(conditions, in_port=in_port))
        # Where the flows of others decide there is no going back to them from here: a learning switch comes closest.
        actions = _other_actions(balancer, in_port)
        yield Flow(key, cookie_of(Stage.CLASSIFY), (Normal(),) if actions is None else actions)


def other_flows(balancer: Balancer) -> Iterator[Flow]:
    """What happens to packets of no service, for each port that the config names."""
    for port in balancer.ports:
        actions = _other_actions(balancer, port)
        if actions is not None:
            key = FlowKey(_TABLE, OTHER_PRIORITY, Match(in_port=port))
            yield Flow(key, cookie_of(Stage.CLASSIFY), actions)


def _other_actions(balancer: Balancer, in_port: str) -> tuple[Action, ...] | None:
    uplinks = balancer.uplinks
    match uplinks.other_traffic:
        case OtherTraffic.PASSTHROUGH:
            return (Output(uplinks.egress if in_port in uplinks.ingress else uplinks.ingress[0]),)
        case OtherTraffic.NORMAL:
            return (Normal(),)
        case OtherTraffic.DROP:
            return ()
        case OtherTraffic.LEAVE:
            return None


def _conditions(claim: Claim) -> Iterator[tuple[tuple[Masked, ...], int]]:
    masks: tuple[PortMask | None, ...] = port_masks(claim.ports) or (None,)
    for family in claim.served_families:
        first = [family_is(family)]
        if claim.protocol is not None:
            first.append(exact(Field.NW_PROTO, claim.protocol.number(family)))
        vips: list[tuple[Masked, ...]] = [(destination_is(vip, family),) for vip in claim.vips_of(family)] or [()]
        for vip, ports in product(vips, masks):
            last = () if ports is None else (Masked(Field.TP_DST, ports.value, ports.mask),)
            yield (*first, *vip, *last), 0 if ports is None else ports.bits


def _swallows_neighbour_discovery(claim: Claim) -> bool:
    return Family.IPV6 in claim.served_families and claim.protocol in (None, Protocol.ICMP)


def _vip_macs(services: Iterable[Service]) -> dict[int, Mac]:
    found: dict[int, Mac] = {}
    for service in services:
        mac = service.vip_mac
        if mac is None:
            continue
        for vip in service.claim.vips_of(Family.IPV4):
            other = found.setdefault(int(vip), mac)
            if other != mac:
                reason = f"{mac} cannot answer for {vip}, for which {other} answers; write one vip_mac for one address"
                raise CompileError(service=service.name, reason=reason)
    return found


def _arp_reply(mac: Mac, vip: int) -> tuple[Action, ...]:
    return (
        Move(Field.DL_SRC, Field.DL_DST),
        SetField(Field.DL_SRC, mac.value),
        SetField(Field.ARP_OP, _ARP_REPLY),
        Move(Field.ARP_SHA, Field.ARP_THA),
        SetField(Field.ARP_SHA, mac.value),
        Move(Field.ARP_SPA, Field.ARP_TPA),
        SetField(Field.ARP_SPA, vip),
        OutputInPort(),
    )
