"""Tunnels of Open vSwitch itself, behind which backends are. Values only; `model.tunnel` has those of hosts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv4Address

from xenoovs.model.address import Mac
from xenoovs.model.next_hop import NextHop, Tunneled, port_of_remote
from xenoovs.model.tunnel import TunnelType

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
    """How Open vSwitch's IPsec monitor authenticates remotes; exactly one of the first three is there.

    Attributes:
        remote_cert: File with the remote's certificate, which signed itself.
        remote_name: Common name in the remote's certificate, which an authority signed.
    """

    psk_file: str | None = None
    remote_cert: str | None = None
    remote_name: str | None = None
    offload: IpsecOffload = IpsecOffload.NONE

    @property
    def option(self) -> str:
        """The option of an interface by which a remote is known (ovs-vswitchd.conf.db(5), "Tunnel Options: IPsec")."""
        if self.psk_file is not None:
            return "psk"
        return "remote_name" if self.remote_cert is None else "remote_cert"


@dataclass(frozen=True, slots=True)
class SwitchTunnel:
    """A tunnel whose packets Open vSwitch encapsulates.

    Attributes:
        name: Of the port with `SHARED`; else what the names of the ports start with.
        local: This end.
        key: VNI, or GRE key, of backends that name none; None: each of them names one.
        dst_port: UDP destination port; 0: GRE has none.
    """

    name: str
    type: TunnelType
    local: IPv4Address
    key: int | None = None
    ports: TunnelPorts = TunnelPorts.SHARED
    dst_port: int = 0
    ipsec: Ipsec | None = None

    @property
    def is_encrypted_by_cpu(self) -> bool:
        """Whether its packets belong in software: what the NIC encapsulates, only it can encrypt."""
        return self.ipsec is not None and self.ipsec.offload is not IpsecOffload.PACKET

    def port_to(self, remote: IPv4Address) -> str:
        """Return the name of the port that packets to a remote leave by."""
        return self.name if self.ports is TunnelPorts.SHARED else port_of_remote(self.name, remote)


@dataclass(frozen=True, slots=True)
class RemoteEnd:
    """The far end of a tunnel, where a backend is.

    Attributes:
        tunnel: The tunnel, as this end of it is configured.
        port: The port of the bridge that packets leave by.
        remote: The address of the far end.
        key: VNI, or GRE key, that packets are sent with.
        mac: Of the backend, inside of the tunnel.
    """

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
