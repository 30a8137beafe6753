"""The balancer of a config: one bridge, its ports, services and backends. Values only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from ipaddress import IPv4Network
from types import MappingProxyType

from xenoovs.dataclass import dataclass, replace
from xenoovs.model import values
from xenoovs.model.address import Family, IPAddress, Mac, Vip, family_of, holds, prefix_of
from xenoovs.model.address import PortRange as PortRange
from xenoovs.model.address import merge_ports as merge_ports
from xenoovs.model.block_key import LOW_SOURCE_BITS as LOW_SOURCE_BITS
from xenoovs.model.block_key import MAX_KEY_BITS as MAX_KEY_BITS
from xenoovs.model.block_key import BlockKey as BlockKey
from xenoovs.model.block_key import KeyField as KeyField
from xenoovs.model.form import Listed, entry, keyed
from xenoovs.model.next_hop import NextHop, is_tunneled, l4_port_of, vlan_text, with_mac
from xenoovs.model.tunnel import HostTunnel, RemoteEnd, SwitchTunnel, remote_end_of
from xenoovs.model.values import NO_QUERY as NO_QUERY

# Drain: what happens to the open connections of clients that get another backend.


class DrainMode(Enum):
    """NONE: clients move at once. PIN: connections that are open stay with the old backend for a while."""

    NONE = "none"
    PIN = "pin"


@keyed()
class Drain:
    """Open connections of clients that get another backend. A key of a service goes before the one of the file.

    mode: none (clients move at once) or pin (open connections stay with the old backend for a while, new TCP
        connections go to the new one).
    timeout_ms: Clients move after this time, with all connections that are still open.
    idle_timeout_ms: They move earlier when the old backend has received no packet of them for this time.
    """

    mode: DrainMode = entry(DrainMode, default=DrainMode.NONE)
    timeout_ms: int = entry(values.duration_ms, default=60_000)
    idle_timeout_ms: int = entry(values.duration_ms, default=10_000)


AT_ONCE = Drain()
"""The drain of a service without `drain`."""


# Health checks, and how many backends they may eject.


class ProbeKind(Enum):
    """What a health check sends. NONE: nothing, the backend counts as up."""

    NONE = "none"
    ICMP = "icmp"
    ARP = "arp"
    TCP = "tcp"
    HTTP = "http"
    HTTPS = "https"
    DNS = "dns"
    UDP = "udp"
    EXEC = "exec"

    @property
    def has_port(self) -> bool:
        return self in (ProbeKind.TCP, ProbeKind.HTTP, ProbeKind.HTTPS, ProbeKind.DNS, ProbeKind.UDP)


class Initial(Enum):
    """The state of a new backend. UP: the first result decides at once. DOWN: it waits for `rise` answers."""

    UP = "up"
    DOWN = "down"


class AllDown(Enum):
    """When every backend is down: clients stay with the last ones that served, or are dropped."""

    KEEP = "keep"
    DROP = "drop"


@keyed()
class Health:
    """The health check of backends, made by `xenoovs agent`. A key of a service goes before the one of the file.

    probe: What is sent to each backend.
    port: Port of tcp, http, https, dns and udp probes; left out: the first port of the service.
    interface: Device to send probes through; an arp probe needs one.
    netns: Network namespace to send probes from (see ip-netns(8)).
    path: Path that an http or https probe requests.
    host: Host header of an http or https probe; left out: the address.
    status: Status, or range of statuses, that an http or https probe accepts. Redirections are not followed.
    body: Text that the body of the answer must contain, in its first MiB.
    ca_file: Authorities that an https probe trusts (PEM); left out: those of the system.
    server_name: Name in the certificate, also sent as SNI; left out: `host`, else the address.
    insecure: Whether an https probe accepts any certificate.
    command: Program and arguments of an exec probe, without a shell; status 0 means healthy. Its environment has
        XENOOVS_ADDRESS, XENOOVS_MAC and XENOOVS_PORT. The agent runs programs only with --allow-exec.
    query: Name whose address a dns probe requests.
    send: Text that a udp probe sends.
    expect: Text that the answer to a udp probe must contain.
    interval_ms: Time from one probe to the next.
    fast_interval_ms: The same while results contradict the state; left out: a quarter of `interval`.
    timeout_ms: A probe without an answer by then has failed; left out: half of `interval`.
    rise: Number of answers in a row that bring a backend back.
    fall: Number of failures in a row that take a backend out.
    jitter: Each interval is shortened at random by up to this part, so that probes are spread over time.
    ramp_ms: Slow start: a new or returning backend gets its clients in eight steps during this time; left out: all at
        once.
    initial: State of a new backend: up (the first result decides) or down (ejected until `rise` good results).
    max_down: At most this part of the backends is ejected at once, rounded down; others that are down keep their
        clients. Not while a backup is up.
    on_all_down: When no backend answers, nor any backup: keep (max_down applies, clients stay) or drop (their packets).
    """

    probe: ProbeKind = entry(ProbeKind, absent=ProbeKind.NONE)
    port: int | None = entry(values.port, 8080, default=None)
    interface: str | None = entry(values.device, "en3f0pf0sf0", default=None)
    netns: str | None = entry(values.name, "probes", default=None)
    path: str = entry(values.path, default="/")
    host: str | None = entry(values.host, "www.example.org", default=None)
    status: tuple[int, int] = entry(values.status, default=(200, 399))
    body: str = entry(values.text, default="")
    ca_file: str | None = entry(values.file, "/etc/ssl/ca.pem", default=None)
    server_name: str | None = entry(values.host, "www.example.org", default=None)
    insecure: bool = entry(values.flag, default=False)
    command: tuple[str, ...] = entry(values.command, ["/usr/local/bin/check-web", "--quick"], default=())
    query: str = entry(values.query, "example.org", default=NO_QUERY)
    send: str = entry(values.text, default="")
    expect: str = entry(values.text, default="")
    interval_ms: int = entry(values.duration_ms, default=1000)
    fast_interval_ms: int = entry(values.duration_ms, default=250)
    timeout_ms: int = entry(values.duration_ms, default=500)
    rise: int = entry(values.count, default=2)
    fall: int = entry(values.count, default=3)
    jitter: Fraction = entry(values.part, default=Fraction(1, 10))
    ramp_ms: int | None = entry(values.duration_ms, "30s", default=None)
    initial: Initial = entry(Initial, default=Initial.UP)
    max_down: Fraction = entry(values.part, default=Fraction(1, 2))
    on_all_down: AllDown = entry(AllDown, default=AllDown.KEEP)

    @property
    def of_check(self) -> Health:
        """The settings of the check alone: services that differ in the others share a check."""
        default = Health(self.probe)
        return replace(self, max_down=default.max_down, on_all_down=default.on_all_down, ramp_ms=default.ramp_ms)


# A command that is run when backends or services change their state.


@keyed()
class Notify:
    """A command that `xenoovs agent` runs when a backend or a service changes its state. A key of a service goes before
    the one of the file.

    command: Program and arguments, without a shell. Three more arguments follow: BACKEND or SERVICE, its name, and UP,
        DOWN or BACKUP; its environment has more (see the agent's page). The agent runs programs only with --allow-exec.
    timeout_ms: The program is killed after this time.
    """

    command: tuple[str, ...] = entry(values.command, ["/usr/local/bin/page-me"])
    timeout_ms: int = entry(values.duration_ms, default=30_000)


# What servers advertise about themselves.


@keyed()
class AgentCheck:
    """Servers advertise their weight and state over TCP, as for `agent-check` of HAProxy.

    A key of a service goes before the one of the file.

    port: Port of the agent on every server.
    send: Text that is sent to the agent first.
    interval_ms: Time from one request to the next.
    timeout_ms: A request without a reply by then has failed.
    interface: Device to ask through.
    netns: Network namespace to ask from (see ip-netns(8)).
    min_change: An advertised weight that differs by less than this from the one in use does not change it.
    """

    port: int = entry(values.port, 9707)
    send: str = entry(values.text, "web\n", default="")
    interval_ms: int = entry(values.duration_ms, default=2000)
    timeout_ms: int = entry(values.duration_ms, default=1000)
    interface: str | None = entry(values.device, "en3f0pf0sf0", default=None)
    netns: str | None = entry(values.name, "probes", default=None)
    min_change: Fraction = entry(values.part, default=Fraction(1, 10))


# A backend: one real server that answers for a service.


@dataclass(frozen=True, slots=True)
class Backend:
    """One server, reached by its next hop. Weight 0: it gets no clients.

    `address`: its own address, the target of health probes; clients' packets are sent to it by NAT only. `follows`: it
    is configured by its address only. Its MAC is looked up; the next hop has none until then. `is_backup`: it gets
    clients only while no other backend serves; backups share them by weight.
    """

    name: str
    next_hop: NextHop
    weight: Fraction
    address: IPAddress | None = None
    follows: bool = False
    is_backup: bool = False


# Announcement of VIPs by a routing daemon of the host.


class BgpSpeaker(Enum):
    """The program that speaks BGP."""

    FRR = "frr"


class AgentExit(Enum):
    """What becomes of announced VIPs when the agent ends, in whatever way: they stay, or they are withdrawn."""

    KEEP = "keep"
    WITHDRAW = "withdraw"


@keyed()
class Announce:
    """The announcement of VIPs by the routing daemon of this host, made by `xenoovs agent`.

    bgp: frr: while a VIP has a backend that serves, the host has a route for it that FRR redistributes.
    on_agent_exit: When the agent ends, also by a crash: keep (the flows stay, and so do the routes) or withdraw.
    """

    bgp: BgpSpeaker = entry(BgpSpeaker)
    on_agent_exit: AgentExit = entry(AgentExit, default=AgentExit.KEEP)


# Destination NAT, without a state: packets of clients get a backend's address, packets of the backend the VIP.


class ServiceMode(Enum):
    """What backends get. DSR: packets to the VIP, by their MAC (direct server return). NAT: packets to themselves."""

    DSR = "dsr"
    NAT = "nat"


@keyed()
class Nat:
    """The way back of a service with `mode: nat`.

    return_mac: Destination MAC that packets from backends get: that of the router to the clients. Left out: they keep
        the one that the backend sends to.
    clients: Network, or networks, of the clients. What backends send elsewhere from the same port, such as answers to
        health probes, is then left alone; each network is one hardware entry more for each backend. Left out: all
        destinations.
    """

    return_mac: Mac | None = entry(values.mac, "02:00:5e:10:00:fe", default=None)
    clients: tuple[IPv4Network, ...] = entry(
        Listed(values.client_network, may_be_one=True), "10.9.0.0/16", ["10.9.0.0/16", "10.10.0.0/16"], default=()
    )


# A service: what clients connect to, and how its clients are split over backends.


class Protocol(Enum):
    """The IP protocols a service can be bound to."""

    TCP = "tcp"
    UDP = "udp"
    SCTP = "sctp"
    ICMP = "icmp"

    @property
    def has_ports(self) -> bool:
        return self is not Protocol.ICMP

    def number(self, family: Family) -> int:
        """Assigned Internet Protocol Numbers (IANA); ICMP is another protocol on IPv6 (RFC 4443)."""
        if self is Protocol.ICMP:
            return 1 if family is Family.IPV4 else 58
        return {Protocol.TCP: 6, Protocol.UDP: 17, Protocol.SCTP: 132}[self]


def usual_positions(field: KeyField, protocol: Protocol | None) -> tuple[int, ...] | None:
    """Return the order of the bits of a service that lists none; None for 0, 1, 2, ... Linux opens TCP connections from
    even ports as long as one is free (__inet_hash_connect() in net/ipv4/inet_hashtables.c), so the lowest bit of a TCP
    source port comes last."""
    is_tcp_port = (field, protocol) == (KeyField.SOURCE_PORT, Protocol.TCP)
    return (*range(1, MAX_KEY_BITS), 0) if is_tcp_port else None


class Returns(Enum):
    """How answers of backends behind a tunnel reach clients. DIRECT: not by this bridge. SWITCH: by the tunnel."""

    DIRECT = "direct"
    SWITCH = "switch"


class Churn(Enum):
    """What a change of weights minimises: clients that move, or blocks (= hardware entries), or both in balance."""

    LEAST = "least"
    BALANCED = "balanced"
    COMPACT = "compact"


@dataclass(frozen=True, slots=True)
class Claim:
    """The packets a service is for. No vips: every packet of `families`. No protocol: any. No ports: any.

    Only protocols with ports have ports. With VIPs, a family without a VIP gets no packet. Of two claims with nested
    prefixes, or an address in a prefix, the longer one has the packets of both, but a claim of a VLAN goes before one
    of every VLAN.

    `in_port`: the port of the bridge through which they enter; None for the ingress ports of the bridge. `vlan`: of
    their frames, or NO_TAG; None for every VLAN and frames without a tag.
    """

    families: frozenset[Family]
    vips: tuple[Vip, ...] = ()
    protocol: Protocol | None = None
    ports: tuple[PortRange, ...] = ()
    in_port: str | None = None
    vlan: int | None = None

    @property
    def served_families(self) -> tuple[Family, ...]:
        """Return the IP versions of the claimed packets, IPv4 first."""
        named = {family_of(vip) for vip in self.vips} if self.vips else self.families
        return tuple(family for family in Family if family in self.families and family in named)

    def vips_of(self, family: Family) -> tuple[Vip, ...]:
        return tuple(vip for vip in self.vips if family_of(vip) is family)

    def prefix_length(self, address: IPAddress) -> int | None:
        """Return the length of the VIP that contains this address, 0 without VIPs; None if packets to it are not
        claimed."""
        if not self.vips:
            return 0
        return max((prefix_of(vip)[1] for vip in self.vips if holds(vip, address)), default=None)

    def overlaps(self, other: Claim) -> bool:
        """Return whether some packet belongs to both, as no prefix of one is longer."""
        return (
            self.in_port == other.in_port
            and share_frames(self.vlan, other.vlan)
            and bool(self.families & other.families)
            and (not self.vips or not other.vips or not set(self.vips).isdisjoint(other.vips))
            and (self.protocol is None or other.protocol is None or self.protocol is other.protocol)
            and (not self.ports or not other.ports or any(a.overlaps(b) for a in self.ports for b in other.ports))
        )


def share_frames(vlan: int | None, other: int | None) -> bool:
    """Return whether some frame is in both VLANs, given as `Claim.vlan`."""
    return vlan is None or other is None or vlan == other


_NOTHING = Fraction(0)


@dataclass(frozen=True, slots=True)
class Service:
    """Clients of `claim` are split over `backends` by the bits of `key`.

    tolerance:  relative, > 0; a share may differ from its weight by this fraction of itself.
    max_flows:  budget of OpenFlow flows for the blocks, which then sets the tolerance; None: no budget.
    vip_mac:    the MAC that answers ARP for the VIPs, and with a controller neighbour discovery; None: no answers.
    source_mac: rewrites the Ethernet source too; None: it stays (each client-side MAC then costs no extra entry).
    health:     None: backends are taken to serve.
    drain:      what becomes of open connections when clients move.
    notify:     None if no command is run.
    announced:  its VIPs are announced where the balancer announces any.
    agent_check: None: servers advertise nothing.
    is_remote:  its clients are the packets of a tunnel to one remote, its backends are paths. Weights only give the
                first layout; then the blocks stay where they are placed.
    nat:        None: packets keep the VIP as their destination, and backends answer with it as their source. Else they
                are written by the next hops of the backends, and by the flows for what these send back.
    returns:    how answers of backends behind tunnels reach the clients.
    rewritten_ports: source ports of its packets, where paths rewrite them; each is a megaflow. None if not rewritten.
    """

    name: str
    claim: Claim
    backends: tuple[Backend, ...]
    key: BlockKey = LOW_SOURCE_BITS
    tolerance: Fraction = Fraction(1, 20)
    max_flows: int | None = None
    vip_mac: Mac | None = None
    source_mac: Mac | None = None
    churn: Churn = Churn.BALANCED
    health: Health | None = None
    drain: Drain = AT_ONCE
    notify: Notify | None = None
    announced: bool = True
    agent_check: AgentCheck | None = None
    is_remote: bool = False
    rewritten_ports: PortRange | None = None
    returns: Returns = Returns.DIRECT
    nat: Nat | None = None

    @property
    def mode(self) -> ServiceMode:
        return ServiceMode.DSR if self.nat is None else ServiceMode.NAT

    @property
    def weights(self) -> tuple[Fraction, ...]:
        """Return the weights that split the clients. Those of backups are 0, unless no other backend has a weight."""
        weights = tuple(backend.weight for backend in self.backends)
        if not any(backend.is_backup for backend in self.backends):
            return weights
        found = tuple(_NOTHING if backend.is_backup else backend.weight for backend in self.backends)
        return found if any(found) else weights

    @property
    def target_shares(self) -> tuple[Fraction, ...]:
        """Return the share (0..1) of the clients of each backend by its weight; all 0 if none has a weight."""
        weights = self.weights
        total = sum(weights) or Fraction(1)
        return tuple(weight / total for weight in weights)

    @property
    def backups(self) -> Service | None:
        """Return the service for the time in which only backups serve; None if no backup would serve."""
        if not any(backend.is_backup and backend.weight for backend in self.backends):
            return None
        only = tuple(b if b.is_backup else replace(b, weight=_NOTHING) for b in self.backends)
        return None if only == self.backends else replace(self, backends=only)


def probe_port(service: Service, backend: Backend) -> int | None:
    """Return the port of a backend to which the health check of a service connects; None if it uses none."""
    health = service.health
    if health is None or not (health.probe.has_port or health.probe is ProbeKind.EXEC):
        return None
    return health.port or l4_port_of(backend.next_hop) or first_port(service.claim.ports)


def first_port(ports: Iterable[PortRange]) -> int | None:
    """Return the first port that is not 0; None if no port is listed."""
    return next((each.first for each in ports if each.first), None)


# Stable ids of services. What a service matches identifies it, so a new name, order or comment moves no client.


_ID_MASK = 0xFFFFFFFF


def service_ids(claims: Iterable[Claim]) -> Mapping[Claim, int]:
    """Return a distinct 32-bit id, never 0, for each claim; on a collision (1,000 services: 1 in 8,600) the next."""
    return _ids_of(tuple(claims))


@lru_cache(maxsize=4)
def _ids_of(claims: tuple[Claim, ...]) -> Mapping[Claim, int]:
    # Imported here: it loads OpenSSL, which `history` and `lab list` do not need.
    from hashlib import blake2s

    ids: dict[Claim, int] = {}
    taken = {0}
    for claim in sorted(claims, key=claim_text):
        candidate = int.from_bytes(blake2s(claim_text(claim).encode(), digest_size=4).digest(), "big")
        while candidate in taken:
            candidate = (candidate + 1) & _ID_MASK
        taken.add(candidate)
        ids[claim] = candidate
    return MappingProxyType(ids)


def claim_text(claim: Claim) -> str:
    """Return a text that two claims share only if they are for the same packets."""
    families = [family.name for family in claim.served_families]
    vips = sorted(str(vip) for vip in claim.vips)
    ports = map(str, merge_ports(claim.ports))
    protocol = claim.protocol.value if claim.protocol else "any"
    entered = "" if claim.in_port is None else f" by {claim.in_port}"
    return f"{','.join(families)} {','.join(vips)} {protocol} {','.join(ports)}{entered}{vlan_text(claim.vlan)}"


class OtherTraffic(Enum):
    """What happens to packets of no service on the ports of the config."""

    PASSTHROUGH = "passthrough"
    NORMAL = "normal"
    DROP = "drop"
    LEAVE = "leave"


class Failover(Enum):
    """Who moves the clients of a backend whose port is dead, besides the agent."""

    IN_SWITCH = "in_switch"


@keyed()
class Uplinks:
    """The bridge and its ports.

    bridge: Open vSwitch bridge.
    datapath_id: Its datapath id, 16 hexadecimal digits in quotes (`ovs-vsctl get bridge ovsbr1 datapath_id`). It tells
        bridges of one name on several hosts apart, and keeps the config off every other bridge. Left out: any.
    ingress: Port, or ports, where client traffic enters.
    egress: Port towards backends that name none of their own.
    other_traffic: Packets of no service: passthrough (ingress to egress and back), normal (the bridge learns and
        switches), drop, or leave (other flows of the bridge decide).
    failover: Who moves the clients of a backend whose port is dead. in_switch: Open vSwitch itself, in milliseconds, by
        groups of next hops, unless all backends share a port; blocks of an ejected backend then move whole. Left out:
        the agent.
    depth: With `failover: in_switch`, the next hops in a group: 2, as if left out, survive one dead port, 3 two.
    fleet_ports: Only with `agent --fleet`: which port of this bridge a name in the fleet's config means.
    """

    bridge: str = entry(values.device, absent="ovsbr1")
    datapath_id: int | None = entry(values.datapath_id, "0000c470bda056ac", default=None, kw_only=True)
    ingress: tuple[str, ...] = entry(Listed(values.port_name, may_be_one=True), ["p0"])
    egress: str = entry(values.port_name, "p1")
    other_traffic: OtherTraffic = entry(OtherTraffic, absent=OtherTraffic.PASSTHROUGH)
    failover: Failover | None = entry(Failover, default=None, kw_only=True)
    depth: int | None = entry(values.depth, 3, default=None, kw_only=True)

    @property
    def buckets(self) -> int:
        """Return the number of next hops in a group; 0 without groups."""
        return 0 if self.failover is None else self.depth or 2

    @property
    def label(self) -> str:
        """Return a name that is unique over hosts: `ovsbr1`, or `ovsbr1@0000c470bda056ac`."""
        return label_of(self.bridge, self.datapath_id)


def label_of(bridge: str, datapath_id: int | None) -> str:
    """Return what `Uplinks.label` returns."""
    return bridge if datapath_id is None else f"{bridge}@{datapath_id:016x}"


RemoteName = tuple[str, str]
"""The name of a tunnel and of one of its remotes."""


@dataclass(frozen=True, slots=True)
class Balancer:
    """The whole config of one bridge.

    `services`: services of clients; `model.remote.every_service` has those of remotes too. `announce`: None if no VIP
    is announced. `tunnels`: tunnels of hosts, for whose packets we choose paths. `source_ports`: of paths that were
    found, in their order, by tunnel and remote. `switch_tunnels`: tunnels of Open vSwitch itself to backends.
    `leaving`: next hops of removed backends, to which a switch still sends clients or open connections.
    """

    uplinks: Uplinks
    services: tuple[Service, ...]
    announce: Announce | None = None
    tunnels: tuple[HostTunnel, ...] = ()
    source_ports: tuple[tuple[RemoteName, tuple[int, ...]], ...] = ()
    switch_tunnels: tuple[SwitchTunnel, ...] = ()
    leaving: tuple[NextHop, ...] = ()

    @property
    def announced_vips(self) -> dict[Vip, tuple[str, ...]]:
        """Return the VIPs to announce, each with the names of its services."""
        found: dict[Vip, tuple[str, ...]] = {}
        for service in self.services if self.announce else ():
            for vip in service.claim.vips if service.announced else ():
                found[vip] = (*found.get(vip, ()), service.name)
        return found

    @property
    def egress_ports(self) -> tuple[str, ...]:
        """Return every port through which packets of clients leave, the default first, then by name."""
        others = {hop.port for hop in self._hops} - {self.uplinks.egress}
        return (self.uplinks.egress, *sorted(others))

    @property
    def tunnel_ports(self) -> tuple[str, ...]:
        """Return the tunnel ports of Open vSwitch through which packets of clients leave, by name."""
        return tuple(sorted({hop.port for hop in self._hops if is_tunneled(hop)}))

    @property
    def remote_ends(self) -> tuple[RemoteEnd, ...]:
        """Return the tunnel ends of Open vSwitch to which packets of clients leave, without repetition."""
        # Mostly there are none, and thousands of backends.
        ends = (remote_end_of(hop, self.switch_tunnels) for hop in self._hops if self.switch_tunnels)
        return tuple(dict.fromkeys(end for end in ends if end is not None))

    @property
    def ipsec_ports(self) -> frozenset[str]:
        """Return the tunnel ports that must be encrypted."""
        return frozenset(end.port for end in self.remote_ends if end.tunnel.ipsec is not None)

    @property
    def cpu_encrypted_ports(self) -> frozenset[str]:
        """Return the tunnel ports that the CPU encrypts, and so encapsulates."""
        return frozenset(end.port for end in self.remote_ends if end.tunnel.is_encrypted_by_cpu)

    @property
    def bfd_ports(self) -> frozenset[str]:
        """Return the tunnel ports that BFD monitors."""
        return frozenset(end.port for end in self.remote_ends if end.tunnel.bfd is not None)

    @property
    def ports(self) -> tuple[str, ...]:
        """Return every port of the bridge in the config, without repetition."""
        tunnels = (port for tunnel in self.tunnels for port in tunnel.ports)
        return tuple(dict.fromkeys((*self.uplinks.ingress, *self.egress_ports, *tunnels)))

    @property
    def _hops(self) -> Iterator[NextHop]:
        yield from (backend.next_hop for service in self.services for backend in service.backends)
        yield from self.leaving


# Backends that are given by their address alone: what is to be found, and a balancer with what was found.


@dataclass(frozen=True, slots=True, order=True)
class Sought:
    """An address whose MAC is needed, on the network of a device, by route if empty, in a network namespace."""

    netns: str
    interface: str
    address: IPAddress


Macs = Mapping[Sought, Mac]


def sought(balancer: Balancer) -> dict[Sought, tuple[str, ...]]:
    """Return the addresses to resolve, each with its `service/backend`, in the order of the config."""
    found: dict[Sought, tuple[str, ...]] = {}
    for service in balancer.services:
        for backend in service.backends:
            if (wanted := sought_of(service, backend)) is not None:
                found[wanted] = (*found.get(wanted, ()), f"{service.name}/{backend.name}")
    return found


def with_macs(balancer: Balancer, macs: Macs) -> Balancer:
    """Return the balancer with the MACs that were found; backends without a MAC have no weight. The same balancer if
    every MAC is configured."""
    if not any(backend.follows for service in balancer.services for backend in service.backends):
        return balancer

    def found(service: Service, backend: Backend) -> Backend:
        if (wanted := sought_of(service, backend)) is None:
            return backend
        mac = macs.get(wanted)
        if mac is None:
            return replace(backend, weight=_NOTHING)
        return replace(backend, next_hop=with_mac(backend.next_hop, mac))

    services = (
        replace(service, backends=tuple(found(service, backend) for backend in service.backends))
        for service in balancer.services
    )
    return replace(balancer, services=tuple(services))


def sought_of(service: Service, backend: Backend) -> Sought | None:
    """Return the address of a backend to resolve; None if the config has its MAC."""
    if not backend.follows or backend.address is None:
        return None
    health = service.health
    netns, interface = (None, None) if health is None else (health.netns, health.interface)
    return Sought(netns or "", interface or "", backend.address)
