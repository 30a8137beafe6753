"""Tunnels whose packets the host encapsulates, and the paths that we choose for them. Values only."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from ipaddress import IPv4Address

from xenoovs.dataclass import dataclass
from xenoovs.model import values
from xenoovs.model.address import Mac, PortRange
from xenoovs.model.form import Listed, entry, keyed
from xenoovs.model.next_hop import NextHop, Tunneled, port_of_remote
from xenoovs.model.values import accepts, is_int, show, whole


class TunnelType(Enum):
    """The encapsulation. The first two are UDP, and the sender may choose the source port (RFC 7348, 5; RFC 8926, 3.3);
    a host has no other."""

    VXLAN = "vxlan"
    GENEVE = "geneve"
    GRE = "gre"

    @property
    def dst_port(self) -> int:
        """The UDP port that IANA assigned (RFC 7348, 7; RFC 8926, 7); 0: GRE has none."""
        return {TunnelType.VXLAN: 4789, TunnelType.GENEVE: 6081}.get(self, 0)

    @property
    def key_bits(self) -> int:
        """Width of the VNI (RFC 7348, 5; RFC 8926, 3.4) or of the GRE key (RFC 2890, 2.1)."""
        return 32 if self is TunnelType.GRE else 24


LINUX_SOURCE_PORTS = PortRange(32_768, 60_999)
"""The outer source ports of a Linux tunnel device without `srcport`: net.ipv4.ip_local_port_range as it is set
(Documentation/networking/ip-sysctl.rst; udp_flow_src_port() in include/net/udp.h)."""

DYNAMIC_PORTS = PortRange(49_152, 65_535)
"""The ports for any use (RFC 6335, 6), from which the source ports of paths are chosen."""

REFLECTED_PORT = 4788
"""The UDP destination port of an answer to a probe, as DOCA-AR has it."""

ANSWER_SOURCE_PORTS = (REFLECTED_PORT, 4787, 4786, 4785)
"""The UDP source port of answers, for each way back. One constant port makes all answers of a round return by one path,
so that the differences within the round are those of the ways out. Another port is likely to be another path."""

PROBE_TOS = 0x20
"""The type of service of probes, as DOCA-AR has it: DSCP CS1 (RFC 2474)."""

MAX_TOS = 0xFC
"""The last DSCP."""

_UNASSIGNED_TOS = frozenset(range(0x04, MAX_TOS + 1, 0x08)) - {0x04, 0xB4}
"""The odd DSCPs: CSx, AFxx and EF are even (RFC 4594, 2.3). Two are assigned: 1 (LE, RFC 8622) and 45 (NQB,
draft-ietf-tsvwg-nqb)."""

MAX_PATHS = 64
"""To one remote."""

MIN_BLOCKS, MAX_BLOCKS = 16, 256
"""Into which the packets to one remote are split, a power of two."""


class PathSelector(Enum):
    """What selects a path. SOURCE_PORT: the UDP source port, which the fabric hashes. UPLINK: the port of the bridge.
    ADDRESS: the destination, one of several that the remote has."""

    SOURCE_PORT = "source_port"
    UPLINK = "uplink"
    ADDRESS = "address"


class Discover(Enum):
    """How the source ports of paths are found. TTL: the agent asks routers. NONE: any ports. LIST: configured."""

    TTL = "ttl"
    NONE = "none"
    LIST = "list"


class Reflect(Enum):
    """How probes of others are answered. L3: by a routed fabric. L2: to the sender's MAC, addresses unchanged."""

    L3 = "l3"
    L2 = "l2"
    OFF = "off"


MAX_TUNNEL_KEY = (1 << TunnelType.GRE.key_bits) - 1


tunnel_key = whole(0, MAX_TUNNEL_KEY, "is not a key of a tunnel; write a VNI such as 5001")
path_count = whole(1, MAX_PATHS, f"is not a number of paths; write one from 1 to {MAX_PATHS}")


@accepts(enum=[TunnelType.VXLAN.value, TunnelType.GENEVE.value])
def host_tunnel_type(value: object) -> TunnelType:
    """Read the type of a tunnel whose paths are chosen."""
    if value == TunnelType.GRE.value:
        raise ValueError("'gre' has no UDP port by which a path is chosen; write vxlan or geneve")
    if value not in (TunnelType.VXLAN.value, TunnelType.GENEVE.value):
        raise ValueError(f"{show(value)} is not one of: vxlan, geneve")
    return TunnelType(value)


@accepts(type="integer", minimum=MIN_BLOCKS, maximum=MAX_BLOCKS)
def blocks(value: object) -> int:
    """Read a number of blocks, a power of two."""
    if not is_int(value) or not MIN_BLOCKS <= value <= MAX_BLOCKS or value & (value - 1):
        raise ValueError(f"{show(value)} is not a power of two from {MIN_BLOCKS} to {MAX_BLOCKS}; write 64")
    return value


_USUAL_PATHS = 4


@keyed()
class Paths:
    """The paths to each remote.

    by: source_port (the fabric hashes it: one megaflow for each source port in use), uplink (a port of the bridge) or
        address (one of several that the remote has); these two: one megaflow a block.
    count: Number of paths by source port.
    discover: How their source ports are found: ttl (the agent asks routers which of them take different ways), none
        (any ports), or list; left out: list with `ports`, else ttl.
    ports: The source ports, with `discover: list`.
    uplinks: Ports of the bridge, with `by: uplink`; each of them is in `ingress`.
    """

    by: PathSelector = entry(PathSelector, default=PathSelector.SOURCE_PORT)
    count: int = entry(path_count, default=_USUAL_PATHS)
    discover: Discover | None = entry(Discover, default=None)
    ports: tuple[int, ...] = entry(Listed(values.port, may_be_one=True), [50001, 50002], default=())
    uplinks: tuple[str, ...] = entry(Listed(values.port_name, may_be_one=True), ["p0", "p1"], default=())

    def __post_init__(self) -> None:
        count, discover = self.count, self.discover
        match self.by:
            case PathSelector.SOURCE_PORT:
                count, discover = len(self.ports) or count, discover or (Discover.LIST if self.ports else Discover.TTL)
            case PathSelector.UPLINK:
                count = len(self.uplinks)
            case PathSelector.ADDRESS:
                # Each remote has as many paths as addresses.
                count = _USUAL_PATHS
        object.__setattr__(self, "count", count)
        object.__setattr__(self, "discover", discover)


@keyed()
class PathProbe:
    """Probes of paths, made by `xenoovs agent`.

    port: Internal port of the bridge that the agent sends and receives by.
    interval_ms: Time between two rounds; in each round one probe takes each path.
    timeout_ms: A probe without an answer by then is lost.
    tos: Type of service of probes, a multiple of 4. Three odd DSCPs near it ask for answers by other ways: with 0x20
        they are 0x24, 0x2c and 0x34. The reflector returns every tunnel packet that has one of the four, so the host's
        own packets must not; choose a value that the fabric queues as it queues them.
    gateway: MAC of the next hop towards the remotes; auto: the agent finds it.
    """

    port: str = entry(values.port_name, "xoar0")
    interval_ms: int = entry(values.duration_ms, default=10)
    timeout_ms: int = entry(values.duration_ms, default=60)
    tos: int = entry(values.tos, 32, default=PROBE_TOS)
    gateway: Mac | None = entry(values.gateway, "02:00:5e:10:00:fe", default=None)

    @property
    def ways_back(self) -> dict[int, int]:
        """The ways by which answers to probes return: by the type of service of a probe, which its answer has too, and
        by which the remote's flows recognise it, the UDP source port of the answer, by which the fabric chooses a path.
        The next one is for the time in which nothing comes by the one before. Behind `tos` come unassigned DSCPs, first
        those that share the most leading bits with it: fabrics that queue by the first three (RFC 2474, 4.2.2) then
        queue all probes alike."""
        others = sorted(_UNASSIGNED_TOS - {self.tos}, key=lambda tos: tos ^ self.tos)
        return dict(zip((self.tos, *others), ANSWER_SOURCE_PORTS, strict=False))


_ADDRESSES = Listed(values.tunnel_address, may_be_one=True)


@keyed()
class Remote:
    """Another host's end of a tunnel.

    name: Unique in the tunnel.
    address: Where the host sends the tunnel packets for it.
    aliases: Its other addresses, each of them a path, with `by: address`.
    """

    name: str = entry(values.name, "b")
    address: IPv4Address = entry(values.tunnel_address, "192.168.200.1")
    aliases: tuple[IPv4Address, ...] = entry(_ADDRESSES, ["192.168.201.1"], default=())


@keyed()
class HostTunnel:
    """A tunnel that a host behind a port of the bridge encapsulates; xenoovs chooses the paths of its packets.

    name: Unique on its bridge.
    type: Encapsulation: vxlan (UDP 4789) or geneve (UDP 6081).
    local: Address of the host's end.
    host_port: Port of the bridge that the host is behind.
    dst_port: UDP destination port; left out: that of the type.
    source_ports: UDP source ports that the host uses: `ip link add ... type vxlan srcport 49152 49216`. With paths by
        source port they limit the megaflows. Left out: the 28,232 default ports of Linux are assumed.
    remotes: The other ends of the tunnel.
    aliases: Other addresses of the host, to which remotes send with `by: address`.
    blocks: Into how many parts the packets for a remote are split; a power of two, 16 to 256.
    probe: Probes of paths; left out: no block leaves a path by itself.
    margin_us: How much later than the best path a path may answer before blocks leave it; auto: from the noise.
    reflect: How flows answer the probes of others: l3 (a routed fabric), l2 (one Ethernet: addresses of IP stay) or
        off. The remotes need the same.
    """

    name: str = entry(values.name, "rack7")
    type: TunnelType = entry(host_tunnel_type, default=TunnelType.VXLAN, kw_only=True)
    local: IPv4Address = entry(values.tunnel_address, "192.168.200.2")
    host_port: str = entry(values.port_name, "pf0hpf")
    dst_port: int = entry(values.port, 4789, default=0, kw_only=True)
    source_ports: PortRange | None = entry(values.ports, "49152-49215", default=None, kw_only=True)
    remotes: tuple[Remote, ...] = entry(Listed(Remote, least=1))
    aliases: tuple[IPv4Address, ...] = entry(_ADDRESSES, ["192.168.201.2"], default=(), kw_only=True)
    paths: Paths = entry(Paths, default=Paths())
    blocks: int = entry(blocks, default=64, kw_only=True)
    probe: PathProbe | None = entry(PathProbe, default=None)
    margin_us: int | None = entry(values.margin_us, "30us", default=None, kw_only=True)
    reflect: Reflect = entry(Reflect, default=Reflect.L3, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dst_port", self.dst_port or self.type.dst_port)

    @property
    def ports(self) -> tuple[str, ...]:
        """Every port of the bridge that it names."""
        probe = () if self.probe is None else (self.probe.port,)
        return tuple(dict.fromkeys((self.host_port, *self.paths.uplinks, *probe)))


# Tunnels of the switch.


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


@keyed()
class Ipsec:
    """IPsec by Open vSwitch's own monitor (ovs-monitor-ipsec); exactly one of the first three keys.

    psk_file: File with the pre-shared key.
    remote_cert: Certificate of the remotes that they signed themselves.
    remote_name: Common name in the certificate of the remotes, which the authority of Open vSwitch signed.
    offload: What the NIC does of it: none, crypto, or packet. Only with packet can it encapsulate too.
    """

    psk_file: str | None = entry(values.file, "/etc/xenoovs/psk", default=None)
    remote_cert: str | None = entry(values.file, "/etc/keys/remote.pem", default=None)
    remote_name: str | None = entry(values.host, "rack7", default=None)
    offload: IpsecOffload = entry(IpsecOffload, default=IpsecOffload.NONE)

    @property
    def option(self) -> str:
        """The option of an interface by which a remote is known (ovs-vswitchd.conf.db(5), "Tunnel Options: IPsec")."""
        if self.psk_file is not None:
            return "psk"
        return "remote_name" if self.remote_cert is None else "remote_cert"


@keyed()
class Bfd:
    """Sessions of Open vSwitch itself with the other ends (RFC 5880), over the tunnel. Both ends need the same.

    interval_ms: Time between two messages, each way; 1ms to 10s.
    multiplier: After so many lost messages in a row the session is down, and the remote is left.
    """

    interval_ms: int = entry(values.bfd_interval_ms, "100ms", default=100)
    multiplier: int = entry(values.count, default=3)


@keyed()
class SwitchTunnel:
    """A tunnel of Open vSwitch itself, behind which backends are: an entry of `tunnels` without `host_port`.

    name: Of its port on the bridge; `egress` of backends names it.
    type: Encapsulation: geneve (UDP 6081), vxlan (UDP 4789) or gre.
    local: Our end; a device of this host has this address.
    key: VNI (24 bits), or GRE key (32), of backends that name none.
    ports: shared (one port to all remotes, and flows say to which) or each (a port for each remote, such as
        gnv0-c0a84d0b); left out: shared, each with `ipsec` or `bfd`.
    dst_port: UDP destination port; left out: that of the type. With `ipsec` no other: ovs-monitor-ipsec has policies
        for that one alone.
    ipsec: Encrypt what the tunnel carries; left out: nothing is encrypted.
    bfd: Watch each remote by BFD; left out: health checks alone say whether a backend lives.
    """

    name: str = entry(values.port_name, "gnv0")
    type: TunnelType = entry(TunnelType)
    local: IPv4Address = entry(values.tunnel_address, "192.168.77.1")
    key: int | None = entry(tunnel_key, 5001, default=None)
    ports: TunnelPorts = entry(TunnelPorts, default=None)
    dst_port: int = entry(values.port, 6081, default=0)
    ipsec: Ipsec | None = entry(Ipsec, default=None)
    bfd: Bfd | None = entry(Bfd, default=None)

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
    """Return the end of a tunnel that a next hop is; None if it is not behind one of `tunnels`."""
    if not isinstance(hop, Tunneled):
        return None
    found = (tunnel for tunnel in tunnels if tunnel.port_to(hop.remote) == hop.port)
    return next((RemoteEnd(tunnel, hop.port, hop.remote, hop.key, hop.mac) for tunnel in found), None)
