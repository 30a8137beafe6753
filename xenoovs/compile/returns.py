"""The flows for packets that come back: answers out of tunnels, answers that NAT gives the address of the VIP, and
probes.

They keep no state. With NAT, all that a backend sends from the address and port to which the service sends is an
answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv4Network
from itertools import product

from xenoovs.compile.encoding import comes_from, destination_is, family_is, port_masks, source_is, vlan_is
from xenoovs.compile.pipeline import (
    ALIAS_PRIORITY,
    PROBE_PRIORITY,
    SWAPPED_MAC,
    TUNNEL_RETURN_PRIORITY,
    Stage,
    below,
    cookie_of,
    return_priority,
)
from xenoovs.errors import CompileError
from xenoovs.model.address import Family, IPNetwork
from xenoovs.model.balancer import Balancer, Claim, Nat, Protocol, Returns, Service
from xenoovs.model.next_hop import NextHop, Translated, is_tunneled
from xenoovs.model.remote import probe_source_ports
from xenoovs.model.tunnel import REFLECTED_PORT, Discover, HostTunnel, PathSelector, Reflect
from xenoovs.openflow.flow import (
    Action,
    Field,
    Flow,
    FlowKey,
    Masked,
    Move,
    Output,
    OutputInPort,
    SetField,
    exact,
    match_of,
    tag_of,
)


def return_flows(service: Service, hops: Iterable[NextHop], *, service_id: int, port: str) -> Iterator[Flow]:
    """Yield the flows for packets from these next hops to clients, for each next hop with NAT. Raises CompileError: the
    config of the service does not determine the address, or the port, to which clients send."""
    nat = service.nat or Nat()
    clients: tuple[IPv4Network | None, ...] = nat.clients or (None,)
    for hop in hops:
        if isinstance(hop, Translated):
            actions: tuple[Action, ...] = (*_rewrites(service, nat, hop), *_retag(service, hop), Output(port))
            for net, ports in product(clients, _ports(service, hop)):
                yield _flow(service, hop, net, ports, actions, service_id)


def _flow(
    service: Service,
    hop: Translated,
    net: IPv4Network | None,
    ports: Masked | None,
    actions: tuple[Action, ...],
    service_id: int,
) -> Flow:
    protocol = service.claim.protocol
    vlan = service.claim.vlan if hop.vlan is None else hop.vlan
    conditions = [family_is(Family.IPV4), *vlan_is(vlan), exact(Field.NW_SRC, int(hop.address))]
    if protocol is not None:
        conditions.append(exact(Field.NW_PROTO, protocol.number(Family.IPV4)))
    if ports is not None:
        conditions.append(ports)
    if net is not None:
        conditions.append(Masked(Field.NW_DST, int(net.network_address), int(net.netmask)))
    priority = return_priority(
        has_protocol=protocol is not None,
        port_bits=0 if ports is None else ports.mask.bit_count(),
        client_bits=0 if net is None else net.prefixlen,
        has_vlan=vlan is not None,
    )
    key = FlowKey(Stage.CLASSIFY.table, priority, match_of(conditions, in_port=hop.port))
    return Flow(key, cookie_of(Stage.CLASSIFY, service_id), actions)


def _ports(service: Service, hop: Translated) -> tuple[Masked | None, ...]:
    """Return the ports from which a server answers; None for any port."""
    own = hop.l4_port
    return (exact(Field.TP_SRC, own),) if own is not None else port_masks(Field.TP_SRC, service.claim.ports) or (None,)


def _retag(service: Service, hop: Translated) -> Iterator[SetField]:
    """Yield the action that gives a server's packets the tag of the clients."""
    if hop.vlan is None:
        return
    if service.claim.vlan is None:
        raise CompileError(service=service.name, reason="NAT into another VLAN needs the VLAN of the service")
    yield SetField(Field.VLAN, tag_of(service.claim.vlan))


def _rewrites(service: Service, nat: Nat, hop: Translated) -> Iterator[SetField]:
    """Yield the actions that write the source that clients expect."""
    vips, ports = service.claim.vips, service.claim.ports
    if nat.return_mac is not None:
        yield SetField(Field.DL_DST, nat.return_mac.value)
    if len(vips) != 1 or isinstance(vips[0], IPNetwork):
        raise CompileError(service=service.name, reason="NAT needs exactly one address, which backends answer as")
    yield SetField(Field.NW_SRC, int(vips[0]))
    if hop.l4_port is None:
        return
    if len(ports) != 1 or len(ports[0]) != 1:
        raise CompileError(service=service.name, reason="a port of a backend needs exactly one port of the service")
    yield SetField(Field.TP_SRC, ports[0].first)


def tunnel_return_flows(balancer: Balancer, leaving: Mapping[Claim, Iterable[NextHop]]) -> Iterator[Flow]:
    """Yield the flows that send answers out of tunnels to the clients, for each remote and VIP.

    They belong to no service: services may share a VIP and a remote. They match remote and key, so that no other host
    can send packets with the address of a VIP. A megaflow has both in any case (tnl_wc_init(), ofproto/tunnel.c).
    `leaving`: by service, next hops that are no longer in the config and still have clients.
    """
    made = dict[FlowKey, Flow]()
    for service in balancer.services:
        configured = tuple(backend.next_hop for backend in service.backends)
        # `return` has no meaning without a backend behind a tunnel; one that leaves may still be behind one.
        is_unsaid = len(balancer.uplinks.ingress) == 1 and not any(map(is_tunneled, configured))
        if service.returns is not Returns.SWITCH and not is_unsaid:
            continue
        hops = (*configured, *leaving.get(service.claim, ()))
        origins = [origin for hop in hops if (origin := comes_from(hop)) is not None]
        for (port, entered), family in product(origins, service.claim.served_families):
            for vip in service.claim.vips_of(family):
                match = match_of((*entered, family_is(family), source_is(vip)), in_port=port)
                key = FlowKey(Stage.CLASSIFY.table, below(TUNNEL_RETURN_PRIORITY, vip), match)
                made[key] = Flow(key, cookie_of(Stage.CLASSIFY), (Output(balancer.uplinks.ingress[0]),))
    yield from made.values()


# The flows around the paths of tunnels: probes out, answers home, and the probes of others back.
#
# The packets of the host itself are those of services (`model.remote`), in the stages of all services.


_TIME_EXCEEDED = 11
"""The type of the message by which a router reports that the TTL of a packet was used up (RFC 792)."""


def tunnel_flows(balancer: Balancer) -> tuple[Flow, ...]:
    """Return the flows of all tunnels that belong to no service, no two with one key."""
    ingress = balancer.uplinks.ingress
    found = (
        flow
        for tunnel in balancer.tunnels
        for flow in (*_probes(tunnel, ingress), *_reflector(tunnel, ingress), *_aliases(tunnel, ingress))
    )
    return tuple({flow.key: flow for flow in found}.values())


def _probes(tunnel: HostTunnel, ingress: tuple[str, ...]) -> Iterator[Flow]:
    """Yield the flows for our own probes and their answers."""
    probe = tunnel.probe
    if probe is None:
        return
    to_tunnel = exact(Field.TP_DST, tunnel.dst_port)
    if tunnel.paths.by is PathSelector.UPLINK:
        for port, source_port in zip(tunnel.paths.uplinks, probe_source_ports(tunnel), strict=True):
            selected = (exact(Field.TP_SRC, source_port), to_tunnel)
            yield _tunnel_flow(probe.port, _udp(*selected), (Output(port),))
    else:
        yield _tunnel_flow(probe.port, _udp(to_tunnel), (Output(ingress[0]),))
    for in_port, address, tos in product(ingress, _answered(tunnel), probe.ways_back):
        yield _tunnel_flow(in_port, _udp(*_of_probe(tos, address, REFLECTED_PORT)), (Output(probe.port),))
    if tunnel.paths.by is PathSelector.SOURCE_PORT and tunnel.paths.discover is Discover.TTL:
        conditions = (
            family_is(Family.IPV4),
            exact(Field.NW_PROTO, Protocol.ICMP.number(Family.IPV4)),
            destination_is(tunnel.local),
            exact(Field.ICMP_TYPE, _TIME_EXCEEDED),
        )
        # The host may wait for such a message too.
        for in_port in ingress:
            yield _tunnel_flow(in_port, conditions, (Output(probe.port), Output(tunnel.host_port)))


def _answered(tunnel: HostTunnel) -> tuple[int, ...]:
    """Return the destinations of answers: on one Ethernet the addresses of a probe are not exchanged."""
    if tunnel.reflect is Reflect.L2:
        return tuple(int(address) for remote in tunnel.remotes for address in (remote.address, *remote.aliases))
    return (int(tunnel.local),)


def _reflector(tunnel: HostTunnel, ingress: tuple[str, ...]) -> Iterator[Flow]:
    """Yield the flows that send probes of other hosts back through the port that they entered by. They match no source
    address, as this would split the megaflows of all packets from an uplink by their senders."""
    probe = tunnel.probe
    if probe is None or tunnel.reflect is Reflect.OFF:
        return
    addresses = Move(Field.NW_SRC, Field.NW_DST), SetField(Field.NW_SRC, int(tunnel.local))
    swapped = (*_SWAP_MACS, *(addresses if tunnel.reflect is Reflect.L3 else ()))
    ends = (tunnel.local, *tunnel.aliases)
    for in_port, address, (tos, source_port) in product(ingress, ends, probe.ways_back.items()):
        answer = SetField(Field.TP_SRC, source_port), SetField(Field.TP_DST, REFLECTED_PORT), OutputInPort()
        yield _tunnel_flow(in_port, _udp(*_of_probe(tos, int(address), tunnel.dst_port)), (*swapped, *answer))


_SWAP_MACS: tuple[Action, ...] = (
    Move(Field.DL_DST, SWAPPED_MAC),
    Move(Field.DL_SRC, Field.DL_DST),
    Move(SWAPPED_MAC, Field.DL_SRC),
)


def _aliases(tunnel: HostTunnel, ingress: tuple[str, ...]) -> Iterator[Flow]:
    """Yield the flows that deliver packets to the host that took the path of another of its addresses."""
    for in_port, alias in product(ingress, tunnel.aliases):
        conditions = _udp(destination_is(alias), exact(Field.TP_DST, tunnel.dst_port))
        actions = (SetField(Field.NW_DST, int(tunnel.local)), Output(tunnel.host_port))
        yield _tunnel_flow(in_port, conditions, actions, priority=ALIAS_PRIORITY)


def _udp(*conditions: Masked) -> tuple[Masked, ...]:
    protocol = Protocol.UDP.number(Family.IPV4)
    return (family_is(Family.IPV4), exact(Field.NW_PROTO, protocol), *conditions)


def _of_probe(tos: int, address: int, port: int) -> tuple[Masked, ...]:
    return exact(Field.NW_DST, address), exact(Field.NW_TOS, tos), exact(Field.TP_DST, port)


def _tunnel_flow(
    in_port: str, conditions: Iterable[Masked], actions: tuple[Action, ...], *, priority: int = PROBE_PRIORITY
) -> Flow:
    key = FlowKey(Stage.CLASSIFY.table, priority, match_of(conditions, in_port=in_port))
    return Flow(key, cookie_of(Stage.CLASSIFY), actions)
