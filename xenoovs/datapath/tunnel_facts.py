"""Facts about the tunnels of Open vSwitch itself: what the host must have so that their packets leave, by the NIC."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from xenoovs.dataclass import dataclass, field
from xenoovs.datapath.certificate import CertificateFiles
from xenoovs.datapath.database import BridgeState, PortState
from xenoovs.datapath.fact import Fact
from xenoovs.datapath.ike_log import IkeFailure
from xenoovs.datapath.ipsec import IpsecState, RouteTo
from xenoovs.datapath.megaflow import parse_value
from xenoovs.datapath.outer import GRE, UDP, Encapsulation
from xenoovs.datapath.tunnel import IPSEC_OPTIONS, TUNNEL_DEVICES

_DST_PORTS = {"vxlan": 4789, "geneve": 6081}
"""As IANA assigned them (RFC 7348, 7; RFC 8926, 7), and Open vSwitch has by default."""
_OVERHEADS = {"vxlan": 50, "geneve": 50, "gre": 42, "erspan": 50}
"""Bytes that a packet grows by, with outer IPv4 and without options: the inner Ethernet header, IPv4, UDP or GRE with a
key, and the header of the tunnel (RFC 7348, 5; RFC 8926, 3.4; RFC 2890)."""
_IPV6_MORE = 20
ESP_OVERHEAD = 37
"""Bytes of ESP in transport mode with AES-GCM: header 8, IV 8, padding up to 3, trailer 2, ICV 16 (RFC 4303; RFC 4106).
"""


@dataclass(frozen=True, slots=True)
class TunnelEnd:
    """One remote of a tunnel port. `device`: the tunnel's port in the datapath, such as `genev_sys_6081`. `local`:
    None: the route decides. `dst_port`: UDP port; None: GRE. `is_userspace`: the datapath of its bridge is not the
    kernel's. `is_encrypted`: the port has options for ovs-monitor-ipsec, or the config requires IPsec."""

    port: str
    kind: str
    device: str
    remote: str
    local: str | None = None
    dst_port: int | None = None
    is_userspace: bool = False
    is_encrypted: bool = False
    has_checksum: bool = False

    @property
    def is_ipv6(self) -> bool:
        return ":" in self.remote

    @property
    def overhead(self) -> int:
        """Bytes that a packet grows by, without options of Geneve and without ESP."""
        return _OVERHEADS.get(self.kind, 50) + (_IPV6_MORE if self.is_ipv6 else 0)

    @property
    def outer(self) -> Encapsulation:
        """What leaves by it, without a key."""
        width = 128 if self.is_ipv6 else 32
        return Encapsulation(
            device=self.device,
            remote=parse_value(self.remote, width),
            local=None if self.local is None else parse_value(self.local, width),
            protocol=GRE if self.dst_port is None else UDP,
            dst_port=self.dst_port,
            is_ipv6=self.is_ipv6,
        )


def tunnel_ends(bridge: BridgeState, remotes: Mapping[str, Iterable[str]]) -> Iterator[TunnelEnd]:
    """Yield the remotes of the tunnel ports of a bridge. `bridge`: with the options of its ports. `remotes`: port ->
    remotes that flows choose (remote_ip=flow)."""
    for port in bridge.ports:
        if port.type not in TUNNEL_DEVICES:
            continue
        fixed = port.options.get("remote_ip", "flow")
        for remote in dict.fromkeys(remotes.get(port.name, ()) if fixed == "flow" else (fixed,)):
            try:
                end = _end(bridge, port, remote)
                end.outer  # noqa: B018  (reads the addresses)
            except ValueError:
                # A name in place of an address: Open vSwitch refuses it, which the port's own row says.
                continue
            yield end


def _end(bridge: BridgeState, port: PortState, remote: str) -> TunnelEnd:
    default = _DST_PORTS.get(port.type)
    dst_port = int(port.options.get("dst_port", default or 0)) or None
    device = TUNNEL_DEVICES[port.type]
    local = port.options.get("local_ip", "flow")
    return TunnelEnd(
        port=port.name,
        kind=port.type,
        device=f"{device}{dst_port}" if device.endswith("_") else device,
        remote=remote,
        local=None if local == "flow" else local,
        dst_port=dst_port,
        is_userspace=bridge.datapath_type != "system",
        is_encrypted=any(name in port.options for name in IPSEC_OPTIONS),
        has_checksum=port.options.get("csum") == "true",
    )


@dataclass(frozen=True, slots=True)
class Neighbour:
    """An entry of the neighbour table. `mac`: None if unknown. `state`: as ip-neighbour(8) prints it."""

    address: str
    mac: str | None
    device: str = ""
    state: str = "REACHABLE"

    @property
    def is_valid(self) -> bool:
        """Whether packets can be sent to it (NUD_VALID of include/net/neighbour.h)."""
        return self.mac is not None and self.state not in ("FAILED", "INCOMPLETE", "NONE")


@dataclass(frozen=True, slots=True)
class TunnelFacts:
    """What the host has for tunnels. `routes`: by remote; `addresses`: by device; `neighbours`: by address. `cached`:
    address -> MAC in the cache of a userspace datapath (`tnl/neigh/show`). `programs`: which of ovs-monitor-ipsec,
    charon (strongSwan) and pluto (Libreswan) run. `ike_failures`: by the address of the remote or by the port."""

    ends: tuple[TunnelEnd, ...]
    routes: Mapping[str, Fact[RouteTo]] = field(default_factory=dict, hash=False)
    addresses: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    neighbours: Mapping[str, Neighbour] = field(default_factory=dict, hash=False)
    cached: Mapping[str, str] = field(default_factory=dict, hash=False)
    ipsec: Fact[IpsecState] = field(default_factory=IpsecState, hash=False)
    programs: frozenset[str] = frozenset()
    files: CertificateFiles = field(default_factory=CertificateFiles, hash=False)
    ike_failures: Mapping[str, IkeFailure] = field(default_factory=dict, hash=False)

    def neighbour(self, remote: str) -> tuple[str, Neighbour | None] | None:
        """Return the next hop to a remote with its entry, if there is one; None if no route is known."""
        route = self.routes.get(remote)
        if not isinstance(route, RouteTo):
            return None
        hop = route.gateway or remote
        return hop, self.neighbours.get(hop)

    def ike_failure(self, end: TunnelEnd) -> IkeFailure | None:
        """Return why there is no SA, as the log of the IKE daemon has it; None if it has nothing about this remote."""
        return self.ike_failures.get(end.remote) or self.ike_failures.get(end.port)
