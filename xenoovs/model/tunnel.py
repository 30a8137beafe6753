"""Tunnels whose packets the host encapsulates, and the paths that we choose for them. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv4Address

from xenoovs.model.address import Mac, PortRange


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

    @property
    def overhead(self) -> int:
        """Bytes by which IP packets grow: IPv4 (20), UDP (8) and VXLAN or Geneve without options (8), or GRE with a key
        (8), and the Ethernet header inside (14)."""
        return 42 if self is TunnelType.GRE else 50


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


@dataclass(frozen=True, slots=True)
class Paths:
    """The paths to each remote of a tunnel.

    Attributes:
        count: How many, 1..MAX_PATHS; of uplinks as many as these. By address each remote has as many as addresses.
        ports: With Discover.LIST the source ports, `count` of them.
        uplinks: With PathSelector.UPLINK, at least one.
    """

    by: PathSelector
    count: int = 4
    discover: Discover = Discover.TTL
    ports: tuple[int, ...] = ()
    uplinks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WayBack:
    """How the answers to probes return. The remote's flows recognise it by the TOS of a probe.

    Attributes:
        tos: Type of service of the probes, and of their answers.
        source_port: UDP source port of the answers, by which the fabric chooses their path.
    """

    tos: int
    source_port: int


@dataclass(frozen=True, slots=True)
class PathProbe:
    """How paths are probed. Times in milliseconds, 1 or more.

    Attributes:
        port: The port of the bridge that the agent sends and receives by.
        tos: Type of service of probes, a multiple of 4 (the ECN bits are 0). `ways_back` has three more.
        gateway: The MAC of the next hop towards the remotes; None: the agent finds it.
    """

    port: str
    interval_ms: int = 10
    timeout_ms: int = 60
    tos: int = PROBE_TOS
    gateway: Mac | None = None

    @property
    def ways_back(self) -> tuple[WayBack, ...]:
        """Each way back: the next one is for the time in which nothing comes by the one before.

        Behind `tos` come unassigned DSCPs, first those that share the most leading bits with it: fabrics that queue by
        the first three (RFC 2474, 4.2.2) then queue all probes alike.
        """
        others = sorted(_UNASSIGNED_TOS - {self.tos}, key=lambda tos: tos ^ self.tos)
        return tuple(map(WayBack, (self.tos, *others), ANSWER_SOURCE_PORTS))


@dataclass(frozen=True, slots=True)
class Remote:
    """Another host's end of the tunnel.

    Attributes:
        address: The destination of the tunnel packets that the host sends to it.
        aliases: Its other addresses, by each of which a path leads (PathSelector.ADDRESS).
    """

    name: str
    address: IPv4Address
    aliases: tuple[IPv4Address, ...] = ()


@dataclass(frozen=True, slots=True)
class HostTunnel:
    """A tunnel of the host behind a port of the bridge.

    Attributes:
        local: The host's end.
        host_port: The port of the bridge that its packets enter by.
        probe: None: nothing is probed, and no block leaves a path by itself.
        dst_port: UDP destination port.
        source_ports: UDP source ports that the host uses; None: not known, LINUX_SOURCE_PORTS are likely.
        blocks: A power of two, MIN_BLOCKS..MAX_BLOCKS.
        margin_us: By how many microseconds a path may be slower than the best one; None: as measured.
        aliases: Other addresses of the host, to which remotes send by other paths.
    """

    name: str
    local: IPv4Address
    host_port: str
    remotes: tuple[Remote, ...]
    paths: Paths
    probe: PathProbe | None = None
    type: TunnelType = TunnelType.VXLAN
    dst_port: int = TunnelType.VXLAN.dst_port
    source_ports: PortRange | None = None
    blocks: int = 64
    margin_us: int | None = None
    reflect: Reflect = Reflect.L3
    aliases: tuple[IPv4Address, ...] = ()

    @property
    def ports(self) -> tuple[str, ...]:
        """Every port of the bridge that it names."""
        probe = () if self.probe is None else (self.probe.port,)
        return tuple(dict.fromkeys((self.host_port, *self.paths.uplinks, *probe)))
