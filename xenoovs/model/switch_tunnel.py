"""Tunnels of Open vSwitch itself, behind which backends are. Values only; `model.tunnel` has those of hosts."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from ipaddress import IPv4Address
from typing import Annotated

from xenoovs.dataclass import dataclass
from xenoovs.model import values
from xenoovs.model.address import Mac
from xenoovs.model.next_hop import NextHop, Tunneled, port_of_remote
from xenoovs.model.tunnel import TunnelType, tunnel_key
from xenoovs.model.values import Key, choice

ECN_CODE_POINTS = 4
"""Not-ECT, ECT(1), ECT(0) and CE (RFC 3168, 5). Open vSwitch copies them to the outer header, so that a block behind a
tunnel has a megaflow for each one that its packets have (compose_output_action__() of ofproto/ofproto-dpif-xlate.c)."""


class TunnelPorts(Enum):
    """SHARED: one port to all remotes, which flows set. EACH: a port for each remote."""

    SHARED = "shared"
    EACH = "each"


class IpsecOffload(Enum):
    """What the NIC does of IPsec (ip-xfrm(8), `offload`)."""

    NONE = "none"
    CRYPTO = "crypto"
    PACKET = "packet"


@dataclass(frozen=True, slots=True)
class Ipsec:
    """IPsec by Open vSwitch's own monitor (ovs-monitor-ipsec); exactly one of the first three keys."""

    psk_file: Annotated[str | None, Key(values.file, "File with the pre-shared key.", "/etc/xenoovs/psk")] = None
    remote_cert: Annotated[
        str | None, Key(values.file, "Certificate of the remotes that they signed themselves.", "/etc/keys/remote.pem")
    ] = None
    remote_name: Annotated[
        str | None,
        Key(
            values.host,
            "Common name in the certificate of the remotes, which the authority of Open vSwitch signed.",
            "rack7",
        ),
    ] = None
    offload: Annotated[
        IpsecOffload,
        Key(
            choice(IpsecOffload),
            "What the NIC does of it: none, crypto, or packet. Only with packet can it encapsulate too.",
        ),
    ] = IpsecOffload.NONE

    @property
    def option(self) -> str:
        """The option of an interface by which a remote is known (ovs-vswitchd.conf.db(5), "Tunnel Options: IPsec")."""
        if self.psk_file is not None:
            return "psk"
        return "remote_name" if self.remote_cert is None else "remote_cert"


@dataclass(frozen=True, slots=True)
class Bfd:
    """Sessions of Open vSwitch itself with the other ends (RFC 5880), over the tunnel. Both ends need the same."""

    interval_ms: Annotated[int, Key(values.duration_ms, "Time between two messages, each way.", "100ms")] = 100
    multiplier: Annotated[
        int, Key(values.count, "After so many lost messages in a row the session is down, and the remote is left.")
    ] = 3


@dataclass(frozen=True, slots=True)
class SwitchTunnel:
    """A tunnel of Open vSwitch itself, behind which backends are: an entry of `tunnels` without `host_port`.

    Attributes:
        name: Of the port with `SHARED`; else what the names of the ports start with.
        dst_port: 0: GRE has none.
    """

    name: Annotated[str, Key(values.port_name, "Of its port on the bridge; `egress` of backends names it.", "gnv0")]
    type: Annotated[TunnelType, Key(choice(TunnelType), "Encapsulation: geneve (UDP 6081), vxlan (UDP 4789) or gre.")]
    local: Annotated[
        IPv4Address, Key(values.tunnel_address, "Our end; a device of this host has this address.", "192.168.77.1")
    ]
    key: Annotated[int | None, Key(tunnel_key, "VNI (24 bits), or GRE key (32), of backends that name none.", 5001)] = (
        None
    )
    ports: Annotated[
        TunnelPorts,
        Key(
            choice(TunnelPorts),
            "shared (one port to all remotes, and flows say to which) or each (a port for each remote, such as "
            "gnv0-c0a84d0b); left out: shared, each with `ipsec` or `bfd`.",
        ),
    ] = None  # type: ignore[assignment]  # it follows from these
    dst_port: Annotated[
        int,
        Key(
            values.port,
            "UDP destination port; left out: that of the type. With `ipsec` no other: ovs-monitor-ipsec has policies "
            "for that one alone.",
            6081,
        ),
    ] = 0
    ipsec: Annotated[Ipsec | None, Key(Ipsec, "Encrypt what the tunnel carries; left out: nothing is encrypted.")] = (
        None
    )
    bfd: Annotated[
        Bfd | None, Key(Bfd, "Watch each remote by BFD; left out: health checks alone say whether a backend lives.")
    ] = None

    def __post_init__(self) -> None:
        usual = TunnelPorts.SHARED if self.ipsec is None and self.bfd is None else TunnelPorts.EACH
        object.__setattr__(self, "ports", self.ports or usual)
        object.__setattr__(self, "dst_port", self.dst_port or self.type.dst_port)

    @property
    def is_encrypted_by_cpu(self) -> bool:
        """Whether its packets belong in software: what the NIC encapsulates, only it can encrypt."""
        return self.ipsec is not None and self.ipsec.offload is not IpsecOffload.PACKET

    def port_to(self, remote: IPv4Address) -> str:
        """Return the name of the port that packets to a remote leave by."""
        return self.name if self.ports is TunnelPorts.SHARED else port_of_remote(self.name, remote)


@dataclass(frozen=True, slots=True)
class RemoteEnd:
    """The far end of a tunnel, where a backend is. `tunnel`: as it is at this end. `mac`: of the backend, inside."""

    tunnel: SwitchTunnel
    port: str
    remote: IPv4Address
    key: int
    mac: Mac


def remote_end_of(hop: NextHop, tunnels: Iterable[SwitchTunnel]) -> RemoteEnd | None:
    """Return the end of a tunnel that a next hop is; None: it is not behind one of `tunnels`."""
    if not isinstance(hop, Tunneled):
        return None
    found = (tunnel for tunnel in tunnels if tunnel.port_to(hop.remote) == hop.port)
    return next((RemoteEnd(tunnel, hop.port, hop.remote, hop.key, hop.mac) for tunnel in found), None)
