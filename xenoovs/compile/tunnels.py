"""The flows around the paths of tunnels: probes out, answers home, and the probes of others back.

The packets of the host itself are those of services (`model.remote`), in the stages of all services.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product

from xenoovs.compile.encoding import destination_is, family_is
from xenoovs.compile.pipeline import ALIAS_PRIORITY, PROBE_PRIORITY, SWAPPED_MAC, Stage, cookie_of
from xenoovs.model.address import Family
from xenoovs.model.balancer import Balancer, Protocol
from xenoovs.model.remote import probe_source_ports
from xenoovs.model.tunnel import REFLECTED_PORT, Discover, HostTunnel, PathSelector, Reflect, WayBack
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
)

_TIME_EXCEEDED = 11
"""The type of the message by which a router says that the TTL of a packet was used up (RFC 792)."""


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
    """Yield the flows for our own probes and what comes back for them."""
    probe = tunnel.probe
    if probe is None:
        return
    to_tunnel = exact(Field.TP_DST, tunnel.dst_port)
    if tunnel.paths.by is PathSelector.UPLINK:
        for port, source_port in zip(tunnel.paths.uplinks, probe_source_ports(tunnel), strict=True):
            selected = (exact(Field.TP_SRC, source_port), to_tunnel)
            yield _flow(probe.port, _udp(*selected), (Output(port),))
    else:
        yield _flow(probe.port, _udp(to_tunnel), (Output(ingress[0]),))
    for in_port, address, way in product(ingress, _answered(tunnel), probe.ways_back):
        yield _flow(in_port, _udp(*_of_probe(way, address, REFLECTED_PORT)), (Output(probe.port),))
    if tunnel.paths.by is PathSelector.SOURCE_PORT and tunnel.paths.discover is Discover.TTL:
        conditions = (
            family_is(Family.IPV4),
            exact(Field.NW_PROTO, Protocol.ICMP.number(Family.IPV4)),
            destination_is(tunnel.local),
            exact(Field.ICMP_TYPE, _TIME_EXCEEDED),
        )
        # The host may wait for such a message too.
        for in_port in ingress:
            yield _flow(in_port, conditions, (Output(probe.port), Output(tunnel.host_port)))


def _answered(tunnel: HostTunnel) -> tuple[int, ...]:
    """Return the destinations of answers: on one Ethernet the addresses of a probe are not exchanged."""
    if tunnel.reflect is Reflect.L2:
        return tuple(int(address) for remote in tunnel.remotes for address in (remote.address, *remote.aliases))
    return (int(tunnel.local),)


def _reflector(tunnel: HostTunnel, ingress: tuple[str, ...]) -> Iterator[Flow]:
    """Yield the flows that send the probes of others back by the port that they came by.

    They match no source address: it would split the megaflows of all packets from an uplink by their senders.
    """
    probe = tunnel.probe
    if probe is None or tunnel.reflect is Reflect.OFF:
        return
    swapped = (*_SWAP_MACS, *(_swap_addresses(tunnel) if tunnel.reflect is Reflect.L3 else ()))
    for in_port, address, way in product(ingress, (tunnel.local, *tunnel.aliases), probe.ways_back):
        yield _flow(in_port, _udp(*_of_probe(way, int(address), tunnel.dst_port)), (*swapped, *_answer(way)))


_SWAP_MACS: tuple[Action, ...] = (
    Move(Field.DL_DST, SWAPPED_MAC),
    Move(Field.DL_SRC, Field.DL_DST),
    Move(SWAPPED_MAC, Field.DL_SRC),
)


def _answer(way: WayBack) -> tuple[Action, ...]:
    return SetField(Field.TP_SRC, way.source_port), SetField(Field.TP_DST, REFLECTED_PORT), OutputInPort()


def _swap_addresses(tunnel: HostTunnel) -> tuple[Action, ...]:
    return (Move(Field.NW_SRC, Field.NW_DST), SetField(Field.NW_SRC, int(tunnel.local)))


def _aliases(tunnel: HostTunnel, ingress: tuple[str, ...]) -> Iterator[Flow]:
    """Yield the flows that give the host the packets which took the path of another address of it."""
    for in_port, alias in product(ingress, tunnel.aliases):
        conditions = _udp(destination_is(alias), exact(Field.TP_DST, tunnel.dst_port))
        actions = (SetField(Field.NW_DST, int(tunnel.local)), Output(tunnel.host_port))
        yield _flow(in_port, conditions, actions, priority=ALIAS_PRIORITY)


def _udp(*conditions: Masked) -> tuple[Masked, ...]:
    protocol = Protocol.UDP.number(Family.IPV4)
    return (family_is(Family.IPV4), exact(Field.NW_PROTO, protocol), *conditions)


def _of_probe(way: WayBack, address: int, port: int) -> tuple[Masked, ...]:
    return exact(Field.NW_DST, address), exact(Field.NW_TOS, way.tos), exact(Field.TP_DST, port)


def _flow(
    in_port: str, conditions: Iterable[Masked], actions: tuple[Action, ...], *, priority: int = PROBE_PRIORITY
) -> Flow:
    key = FlowKey(Stage.CLASSIFY.table, priority, match_of(conditions, in_port=in_port))
    return Flow(key, cookie_of(Stage.CLASSIFY), actions)
