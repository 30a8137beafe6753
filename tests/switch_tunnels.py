"""Balancers with backends behind tunnels of Open vSwitch, for tests: one by hand, and a hypothesis strategy."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from ipaddress import IPv4Address

from hypothesis import strategies as st

from xenoovs.model.address import Family, Mac
from xenoovs.model.balancer import (
    Backend,
    Balancer,
    BlockKey,
    Claim,
    KeyField,
    OtherTraffic,
    Returns,
    Service,
    Uplinks,
)
from xenoovs.model.next_hop import Tunneled, mac_of
from xenoovs.model.tunnel import Bfd, Ipsec, IpsecOffload, SwitchTunnel, TunnelPorts, TunnelType
from xenoovs.model.values import MAX_COUNT

LOCAL = IPv4Address("192.168.77.1")
REMOTES = (IPv4Address("192.168.77.11"), IPv4Address("192.168.77.12"))
VIP = IPv4Address("10.3.10.45")
GENEVE = SwitchTunnel("gnv0", TunnelType.GENEVE, LOCAL, 5001, dst_port=TunnelType.GENEVE.dst_port)


def behind_tunnels(tunnel: SwitchTunnel = GENEVE, *, returns: Returns = Returns.SWITCH) -> Balancer:
    """A service of two backends with equal weights, each behind the tunnel with a remote and a key of its own."""
    backends = tuple(
        Backend(f"b{n + 1}", Tunneled(Mac(0x02000000_0D01 + n), tunnel.port_to(remote), remote, 5001 + n), Fraction(50))
        for n, remote in enumerate(REMOTES)
    )
    claim = Claim(frozenset({Family.IPV4}), (VIP,))
    key = BlockKey(KeyField.SOURCE_ADDRESS, None, None)
    service = Service("web", claim, backends, key=key, returns=returns)
    uplinks = Uplinks("ovsbr1", ("p0",), "p1", OtherTraffic.PASSTHROUGH)
    return Balancer(uplinks, (service,), switch_tunnels=(tunnel,))


@st.composite
def moved_behind_tunnels(draw: st.DrawFn, balancer: Balancer) -> Balancer:
    """The same balancer with tunnels, and some backends that have a MAC behind one of them."""
    tunnels = tuple(draw(_tunnels(number)) for number in range(draw(st.integers(1, 3))))
    services = tuple(draw(_moved(service, tunnels, balancer)) for service in balancer.services)
    return replace(balancer, services=services, switch_tunnels=tunnels)


@st.composite
def _tunnels(draw: st.DrawFn, number: int) -> SwitchTunnel:
    kind = draw(st.sampled_from(TunnelType))
    ipsec = draw(
        st.none()
        | st.builds(Ipsec, psk_file=st.just("/etc/psk"), offload=st.sampled_from(IpsecOffload))
        | st.builds(Ipsec, remote_name=st.just("rack 7".replace(" ", ".")))
    )
    bfd = draw(st.none() | st.builds(Bfd, st.integers(1, 10_000), st.integers(1, MAX_COUNT)))
    return SwitchTunnel(
        f"t{number}",
        kind,
        IPv4Address(f"172.16.{number}.1"),
        draw(st.none() | _keys(kind)),
        draw(st.sampled_from(TunnelPorts)) if ipsec is None and bfd is None else TunnelPorts.EACH,
        draw(st.sampled_from((kind.dst_port, kind.dst_port + 1))) if kind.dst_port and ipsec is None else kind.dst_port,
        ipsec,
        bfd,
    )


def _keys(kind: TunnelType) -> st.SearchStrategy[int]:
    return st.integers(0, (1 << kind.key_bits) - 1)


@st.composite
def _moved(draw: st.DrawFn, service: Service, tunnels: tuple[SwitchTunnel, ...], balancer: Balancer) -> Service:
    backends = []
    for backend in service.backends:
        tunnel, mac = draw(st.none() | st.sampled_from(tunnels)), mac_of(backend.next_hop)
        if tunnel is None or mac is None or service.nat is not None:
            backends.append(backend)
            continue
        remote = IPv4Address(f"172.18.0.{draw(st.integers(1, 3))}")
        hop = Tunneled(mac, tunnel.port_to(remote), remote, draw(_keys(tunnel.type)))
        backends.append(replace(backend, next_hop=hop))
    is_switch = backends != list(service.backends) and service.claim.vips and len(balancer.uplinks.ingress) == 1
    returns = draw(st.sampled_from(Returns)) if is_switch else Returns.DIRECT
    return replace(service, backends=tuple(backends), returns=returns)
