"""The fields of a client's packet that a balancer uses, and which service has the packet."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from operator import itemgetter

from xenoovs.dataclass import dataclass, replace
from xenoovs.model.address import Family, IPAddress, IPNetwork, Mac, Vip, family_of, prefix_of
from xenoovs.model.balancer import Balancer, Claim, PortRange, Protocol, Service, share_frames
from xenoovs.model.next_hop import NO_TAG
from xenoovs.model.remote import every_service
from xenoovs.openflow.flow import UNTAGGED, tag_of


@dataclass(frozen=True, slots=True)
class Packet:
    """An IP packet on a port of the bridge. `protocol`: IANA number; ports are 0 for protocols without any.

    For ICMP, `sport` is the type and `dport` the code, as Open vSwitch keeps them (ovs-fields(7), "ICMP").
    tos: the type of service with the ECN bits, or the traffic class of IPv6.
    vlan: as `openflow.flow.Field.VLAN`.
    tcp_flags: of a TCP packet, as the header has them (RFC 9293, 3.1): ACK, the middle of a connection, or 0x002, SYN.
    """

    in_port: str
    source: IPAddress
    destination: IPAddress
    protocol: int
    sport: int = 0
    dport: int = 0
    dl_src: Mac = Mac(0x020000000001)
    dl_dst: Mac = Mac(0x020000000002)
    ttl: int = 64
    tcp_flags: int = 0x010
    tos: int = 0
    vlan: int = UNTAGGED

    @property
    def family(self) -> Family:
        return family_of(self.source)


# Neighbour discovery (RFC 4861, section 4: types 133 to 137) keeps the link alive and is no client traffic.
NEIGHBOUR_DISCOVERY = range(133, 138)


def claims(claim: Claim, packet: Packet) -> bool:
    """Return whether `claim` has the packet."""
    if packet.family not in claim.families or claim.prefix_length(packet.destination) is None:
        return False
    is_icmpv6 = packet.family is Family.IPV6 and packet.protocol == Protocol.ICMP.number(Family.IPV6)
    if is_icmpv6 and packet.sport in NEIGHBOUR_DISCOVERY:
        return False
    if claim.vlan is not None and packet.vlan != tag_of(claim.vlan):
        return False
    if claim.protocol is not None and packet.protocol != claim.protocol.number(packet.family):
        return False
    return not claim.ports or any(packet.dport in ports for ports in claim.ports)


def service_of(balancer: Balancer, packet: Packet) -> Service | None:
    """Return the service of clients, or of a remote, that has this packet; None for other traffic. Of nested claims one
    of a VLAN goes first, then the longest prefix."""
    ingress = balancer.uplinks.ingress
    claimed = (
        service
        for service in every_service(balancer)
        if packet.in_port in (ingress if service.claim.in_port is None else (service.claim.in_port,))
        and claims(service.claim, packet)
    )

    def precedence(service: Service) -> tuple[bool, int]:
        return service.claim.vlan is not None, service.claim.prefix_length(packet.destination) or 0

    return max(claimed, key=precedence, default=None)


ANY_PORT = 7
"""The port at which services without ports are tried: echo (RFC 862)."""


def own_addresses(service: Service, family: Family, services: Iterable[Service]) -> tuple[IPAddress, ...]:
    """Return addresses of the VIPs of a service: of a prefix the second, the first and the last to which no other
    service has its packets, or those without a tag to one port; of VIPs that it has no packet to, the second."""
    claim = service.claim
    vips, others = claim.vips_of(family), [each.claim for each in services if each is not service]
    # Of packets to one address, only a claim of a VLAN has some before another claim.
    goes_first = claim.vlan is not None or all(other.vlan is None for other in others)
    if goes_first and not any(isinstance(vip, IPNetwork) for vip in vips):
        return tuple(prefix_of(vip)[0] for vip in vips)
    every, protocol = replace(claim, vips=()), claim.protocol or Protocol.UDP
    port = claim.ports[0].first if claim.ports else ANY_PORT
    ports = (PortRange(port, port),) if protocol.has_ports else ()
    one = replace(every, protocol=protocol, ports=ports, vlan=claim.vlan or NO_TAG)
    found = tuple(each for vip in vips for each in _own(vip, every, claim, others) or _own(vip, one, claim, others))
    return found or tuple(vip[1] if isinstance(vip, IPNetwork) else vip for vip in vips)


def _own(vip: Vip, packets: Claim, claim: Claim, others: Iterable[Claim]) -> list[IPAddress]:
    """Return the addresses of one VIP of `claim`, of all packets that are as `packets`."""
    start, length = prefix_of(vip)
    begin, taken, kind = int(start), list[tuple[int, int]](), type(start)
    end = begin + (1 << start.max_prefixlen - length)
    for other in others:
        for net in other.vips_of(family_of(vip)):
            first, longer = int(prefix_of(net)[0]), prefix_of(net)[1]
            last = first + (1 << start.max_prefixlen - longer)
            if first < end and begin < last and (other.vlan is not None, longer) > (claim.vlan is not None, length):
                taken += [(first, last)] if packets.overlaps(other) else []
    free, at = list[tuple[int, int]](), begin
    for first, last in (*sorted(taken), (end, end)):
        free += [(at, first - 1)] if at < first else []
        at = max(at, last)
    if not free:
        return []
    low, high = free[0]
    return list(dict.fromkeys(kind(number) for number in (min(low + (low == begin), high), low, free[-1][1])))


# The packet of a client of whom only some is known.


_SOME_ADDRESSES = {4: ("192.0.2.1", "192.0.2.2"), 6: ("2001:db8::1", "2001:db8::2")}
"""Documentation addresses (RFC 5737, RFC 3849), for services that accept any destination, and for no service."""

_ECHO_REQUEST = {4: 8, 6: 128}
"""ICMP types (RFC 792, RFC 4443)."""


def likely_packet(
    balancer: Balancer,
    src: IPAddress,
    dst: IPAddress | None,
    *,
    protocol: Protocol | None,
    sport: int,
    dport: int | None,
    vlan: int | None,
    in_port: str | None,
) -> Packet:
    """Return the packet of a client. Omitted values are those of the first service that such a packet can belong to,
    else of the first one. The addresses have one IP version."""
    family = family_of(src)

    def fits(claim: Claim) -> bool:
        speaks = share_frames(vlan, claim.vlan) and (protocol is None or claim.protocol in (None, protocol))
        return speaks and (dport is None or not claim.ports or any(p.first <= dport <= p.last for p in claim.ports))

    services = [service for service in balancer.services if family in service.claim.families]
    if dst is not None:
        lengths = [(s.claim.vlan is not None, s.claim.prefix_length(dst) or 0, s) for s in services if s.claim.vips]
        services = [s for _, length, s in sorted(lengths, key=itemgetter(0, 1), reverse=True) if length]
    service = next((each for each in services if fits(each.claim)), services[0] if services else None)
    claim = service.claim if service else None
    kind = protocol or (claim.protocol if claim and claim.protocol else Protocol.UDP)
    vips = own_addresses(service, family, balancer.services) if service else ()
    others = (address for text in _SOME_ADDRESSES[src.version] if (address := ip_address(text)) != src)
    port = dport if dport is not None else claim.ports[0].first if claim and claim.ports else ANY_PORT
    return Packet(
        in_port=in_port or balancer.uplinks.ingress[0],
        source=src,
        destination=dst or (vips[0] if vips else next(others)),
        protocol=kind.number(family),
        sport=sport if kind.has_ports else _ECHO_REQUEST[src.version],
        dport=port if kind.has_ports else 0,
        vlan=tag_of(vlan if vlan is not None else claim.vlan or 0 if claim else 0),
        dl_dst=service.vip_mac if service and service.vip_mac else Mac(0x020000000002),
    )
