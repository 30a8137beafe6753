"""Balancers with tunnels, for tests: one by hand, and hypothesis strategies."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address

from hypothesis import strategies as st

from tests.strategies import balancers
from xenoovs.decision.decision import Blocks, block_at
from xenoovs.model.address import PortRange
from xenoovs.model.balancer import Balancer, OtherTraffic, Service, Uplinks
from xenoovs.model.tunnel import (
    MAX_TOS,
    Discover,
    HostTunnel,
    PathProbe,
    Paths,
    PathSelector,
    Reflect,
    Remote,
    TunnelType,
)

LOCAL, REMOTE = IPv4Address("192.168.200.2"), Remote("b", IPv4Address("192.168.200.1"))
UPLINKS = Uplinks("ovsbr1", ("p0",), "pf0hpf", OtherTraffic.PASSTHROUGH)
PORTS = (50_001, 50_002, 50_003, 50_004)
TUNNEL = HostTunnel(
    "rack7",
    LOCAL,
    "pf0hpf",
    (REMOTE,),
    Paths(PathSelector.SOURCE_PORT, 4, Discover.LIST, PORTS),
    PathProbe("xoar0"),
    source_ports=PortRange(49_152, 49_215),
)


def tunnelled(tunnel: HostTunnel = TUNNEL, *, uplinks: Uplinks = UPLINKS) -> Balancer:
    """A balancer without services of clients."""
    return Balancer(uplinks, (), tunnels=(tunnel,))


def as_unknown(balancer: Balancer) -> Balancer:
    """The balancer of a config that leaves it to the agent to find source ports."""
    return replace(balancer, tunnels=tuple(map(_without_ports, balancer.tunnels)))


def _without_ports(tunnel: HostTunnel) -> HostTunnel:
    if tunnel.paths.by is not PathSelector.SOURCE_PORT:
        return tunnel
    return replace(tunnel, paths=replace(tunnel.paths, discover=Discover.TTL, ports=()))


# 0 is allowed only where nothing is reflected.
probe_tos = st.integers(1, MAX_TOS // 4).map(lambda dscp: dscp * 4)


@st.composite
def tunnelled_balancers(draw: st.DrawFn) -> Balancer:
    """Services of clients, and up to two tunnels behind ports of their own."""
    balancer = draw(balancers(most=2))
    balancer = replace(balancer, uplinks=replace(balancer.uplinks, egress="p1"))
    return replace(balancer, tunnels=tuple(draw(_tunnels(n, balancer.uplinks)) for n in range(draw(st.integers(1, 2)))))


@st.composite
def _tunnels(draw: st.DrawFn, number: int, uplinks: Uplinks) -> HostTunnel:
    by = draw(st.sampled_from(PathSelector))
    kind = draw(st.sampled_from((TunnelType.VXLAN, TunnelType.GENEVE)))
    aliases = draw(st.integers(1, 3)) if by is PathSelector.ADDRESS else 0
    remotes = tuple(_remote(number, n, aliases) for n in range(draw(st.integers(1, 3))))
    return HostTunnel(
        f"t{number}",
        IPv4Address(f"172.16.{number}.1"),
        f"pf{number}hpf",
        remotes,
        draw(_paths(by, uplinks)),
        draw(st.none() | st.builds(PathProbe, st.just(f"xo{number}"), tos=probe_tos)),
        type=kind,
        dst_port=kind.dst_port,
        source_ports=draw(st.none() | st.just(PortRange(49_152, 49_215))),
        blocks=draw(st.sampled_from((64, 128))),
        margin_us=draw(st.none() | st.integers(1, 10**6)),
        reflect=draw(st.sampled_from(Reflect)),
        aliases=tuple(IPv4Address(f"172.17.{number}.{n + 1}") for n in range(aliases)),
    )


def _remote(tunnel: int, number: int, aliases: int) -> Remote:
    address, others = IPv4Address(f"172.18.{tunnel}.{number + 1}"), range(aliases)
    return Remote(f"r{number}", address, tuple(IPv4Address(f"172.{20 + n}.{tunnel}.{number + 1}") for n in others))


@st.composite
def _paths(draw: st.DrawFn, by: PathSelector, uplinks: Uplinks) -> Paths:
    match by:
        case PathSelector.UPLINK:
            return Paths(by, len(uplinks.ingress), uplinks=uplinks.ingress)
        case PathSelector.ADDRESS:
            return Paths(by)
        case PathSelector.SOURCE_PORT:
            ports = draw(st.lists(st.integers(1, 65_535), min_size=1, max_size=9, unique=True))
            given = Paths(by, len(ports), Discover.LIST, tuple(ports))
            return draw(st.just(given) | st.builds(Paths, st.just(by), st.integers(1, 20), st.just(Discover.NONE)))


@st.composite
def placements(draw: st.DrawFn, service: Service) -> Blocks:
    """Any blocks on any paths of a remote."""
    names, width = [backend.name for backend in service.backends], service.key.max_width
    chosen = draw(st.lists(st.sampled_from(names), min_size=1, max_size=8))
    return Blocks.of((block_at(unit, 1, width), chosen[unit % len(chosen)]) for unit in range(1 << width))
