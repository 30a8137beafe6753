"""The plan of a lab for a config: names, addresses, machines, cables and bridges. Builds nothing."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Address, ip_address, ip_network
from typing import TYPE_CHECKING

from xenoovs.dataclass import dataclass
from xenoovs.errors import LabError
from xenoovs.model.address import Family, IPAddress, IPNetwork, Mac, Vip, family_of, prefix_text
from xenoovs.model.balancer import Backend, Balancer, Claim, OtherTraffic, Protocol, Returns, Service
from xenoovs.model.next_hop import NO_TAG, UNCHANGED, l4_port_of, mac_and_port, mac_of, vlan_of
from xenoovs.model.packet import ANY_PORT, own_addresses
from xenoovs.model.tunnel import RemoteEnd, remote_end_of
from xenoovs.regex import regex

if TYPE_CHECKING:
    from random import Random

MAX_NAME_LENGTH = 16
"""Keeps socket paths within the 107 characters of a Unix socket (unix(7))."""

MAX_INTERFACE_LENGTH = 15
"""IFNAMSIZ is 16 with the closing zero (netdevice(7))."""

RESERVED_PREFIX = "xo-"
"""First characters of the devices and bridges that the lab adds to those of the config."""

_NAME = regex(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", re.ASCII)
_ROLE = r"(sw|clients|b[0-9]+|(host|dpu)[ab][0-9]+|leaf[ab]|spine[0-9]+|elephant)"


def check_name(name: str) -> None:
    """Raise LabError unless `name` has 1 to 16 characters of a-z, 0-9 and inner `-`."""
    if len(name) > MAX_NAME_LENGTH:
        raise LabError(
            f"lab name {name!r} has {len(name)} characters, at most {MAX_NAME_LENGTH} are possible: it becomes part of "
            "socket paths; choose a shorter one"
        )
    if not _NAME.fullmatch(name):
        raise LabError(f"lab name {name!r} is not usable: use a-z, 0-9 and, in between, `-`; for example `demo-2`")


def lab_namespace(name: str, role: str) -> str:
    """Return the namespace of a role in lab `name`: `sw`, `clients`, or a machine such as `b1` or `leafa`."""
    return f"{RESERVED_PREFIX}{name}-{role}"


def is_namespace_of(namespace: str, name: str) -> bool:
    """Return whether the namespace belongs to lab `name`. Roles have no `-`, so labs `a` and `a-b` differ."""
    return re.fullmatch(rf"xo-{re.escape(name)}-{_ROLE}", namespace) is not None


# RFC 2544 (benchmarks) and RFC 6598 (shared address space); RFC 3849 (documentation) and RFC 4193 (local).
_CLIENT_NETS: dict[Family, tuple[str, ...]] = {
    Family.IPV4: ("198.18.0.0/15", "100.64.0.0/15"),
    Family.IPV6: ("2001:db8:c::/48", "fd00:c::/48"),
}
SERVER_NETS = {Family.IPV4: ip_network("192.0.2.0/24"), Family.IPV6: ip_network("2001:db8:5::/64")}
"""All addresses belong to the backends of a service without VIP (RFC 5737, TEST-NET-1, and RFC 3849)."""

# Private (RFC 1918) and shared (RFC 6598) addresses; RFC 4193 for IPv6.
_PROBE_NETS: dict[Family, tuple[str, ...]] = {
    Family.IPV4: ("192.168.255.0/24", "172.31.255.0/24", "100.127.255.0/24"),
    Family.IPV6: ("fd00:f::/120", "fd00:e::/120"),
}

WHOLE_SPACE = {Family.IPV4: ip_network("0.0.0.0/0"), Family.IPV6: ip_network("2000::/3")}
"""The clients' net for a service whose key has bits that are constant in `client_net`: all unicast addresses of the
Internet (RFC 4291, section 2.4, for IPv6)."""

_OWN_MACS = 0x02786F000000
"""Locally administered (IEEE 802-2014, section 8.4)."""

_FEW = 4096
_TRIES = 1000


def client_net(family: Family, used: Collection[Vip]) -> IPNetwork:
    """Return the net whose addresses all belong to the lab's clients. Raises LabError if no candidate is free."""
    return _free_net(_CLIENT_NETS[family], used, purpose="clients")


def probe_net(family: Family, vips: Collection[Vip]) -> IPNetwork:
    """Return the net of the addresses that health checks use in a lab. Raises LabError if no candidate is free."""
    return _free_net(_PROBE_NETS[family], vips, purpose="health checks")


def _free_net(candidates: Sequence[str], used: Collection[Vip], *, purpose: str) -> IPNetwork:
    for net in map(ip_network, candidates):
        if not any(ip_network(vip).overlaps(net) for vip in used):
            return net
    raise LabError(f"the config has addresses in each of {', '.join(candidates)}; the lab needs one for its {purpose}")


def own_macs(used: Collection[Mac]) -> Iterator[Mac]:
    """Yield MACs for the lab's own devices, in order, except those in `used`."""
    return (mac for number in range(1, 1 << 24) if (mac := Mac(_OWN_MACS + number)) not in used)


def draw_clients(net: IPNetwork, *, count: int, seed: int, excluded: Collection[Vip]) -> list[IPAddress]:
    """Return `count` different addresses, uniformly from a net, the same ones for the same seed. Network, broadcast,
    multicast, loopback and reserved addresses are left out, and those in `excluded` and in the lab's server nets.
    Raises LabError if the net has too few."""
    # Imported here: most commands about a lab draw no clients.
    from random import Random

    chance = Random(seed)  # noqa: S311 - repeatable test traffic, no secret
    prefixes, drawn = [vip for vip in excluded if isinstance(vip, IPNetwork)], dict[IPAddress, None]()
    for number in _numbers(net.num_addresses, count=count, chance=chance):
        address = net[number]
        if address not in excluded and _is_client(address, net) and not any(address in vips for vips in prefixes):
            drawn[address] = None
        if len(drawn) == count:
            return list(drawn)
    raise LabError(f"{net} has only {len(drawn)} addresses for {count} clients; use fewer clients")


def _numbers(size: int, *, count: int, chance: Random) -> Iterable[int]:
    """Return random numbers below `size`: all of them if `size` is small, else enough for `count` clients."""
    if size <= _FEW:
        return chance.sample(range(size), size)
    return (chance.randrange(size) for _ in range(_TRIES + 100 * count))


def _is_client(address: IPAddress, net: IPNetwork) -> bool:
    """Return whether a client in `net` may have the address."""
    if isinstance(address, IPv4Address) and net.prefixlen < 31 and address in (net[0], net[-1]):
        return False
    special = address.is_multicast or address.is_loopback or address.is_unspecified or address.is_link_local
    zero_net = address.version == 4 and int(address) >> 24 in (0, *range(240, 256))
    return not special and not zero_net and address not in SERVER_NETS[family_of(address)]


def parse_net(text: str) -> IPNetwork:
    """Parse an address or a net in CIDR notation. Raises LabError with the text."""
    try:
        return ip_network(text, strict=False)
    except ValueError as error:
        raise LabError(f"{text!r} is neither an IP address nor a net like 198.51.100.0/24: {error}") from None


MAX_MACHINES = 100
"""Each machine is a namespace with a process of about 10 MB."""

_LISTED_PORTS = 16


@dataclass(frozen=True, slots=True)
class MachineTunnelEnd:
    """The end of a tunnel in a machine: a device that receives the clients' packets. `mac`: its MAC, the inner
    destination of packets. `local`: the switch's address, their outer source. `remote`: the machine's address, their
    outer destination."""

    interface: str
    mac: str
    port: str
    type: str
    local: str
    remote: str
    key: int
    dst_port: int


@dataclass(frozen=True, slots=True)
class AnswerPath:
    """The route of answers from `source` (an address or a net) if it is not the default route. `mac`: the next hop."""

    source: str
    interface: str
    mac: str


@dataclass(frozen=True, slots=True)
class Machine:
    """A backend machine: one for each MAC behind a port, or for each remote of tunnels. It may serve several services.

    `egress`: the bridge's port towards it, or UNDERLAY if it is behind tunnels. `addresses`: VIPs on its loopback.
    `nets`: nets of which it has every address (services without VIP). `gateway_mac`: the next hop of its answers.
    `own_addresses`: its own addresses, which get health checks and packets that the switch translates. `answer_paths`:
    routes of answers that do not go to `gateway_mac`. `translated`: ports of `listen` that get packets translated to an
    own address. `vlan`: of its port on the switch in front of it, which adds and removes the tag, or NO_TAG.
    """

    label: str
    namespace: str
    mac: str
    egress: str
    names: tuple[str, ...]
    addresses: tuple[str, ...]
    nets: tuple[str, ...]
    listen: tuple[tuple[str, int], ...]
    gateway_mac: str
    own_addresses: tuple[str, ...] = ()
    ends: tuple[MachineTunnelEnd, ...] = ()
    answer_paths: tuple[AnswerPath, ...] = ()
    translated: tuple[tuple[str, int], ...] = ()
    vlan: int = NO_TAG

    @property
    def address(self) -> str:
        """Return the address at which `lab status` queries the machine."""
        return self.own_addresses[0]

    @property
    def switch_interface(self) -> str:
        return f"{RESERVED_PREFIX}{self.label}"

    @property
    def macs(self) -> frozenset[str]:
        """Return the source MACs of the machine's answers."""
        return frozenset((self.mac, *(end.mac for end in self.ends)))

    @property
    def ports(self) -> frozenset[str]:
        """Return the ports of the config's bridge that lead to the machine."""
        return frozenset(end.port for end in self.ends) or frozenset((self.egress,))

    @property
    def outer_address(self) -> str | None:
        return self.ends[0].remote if self.ends else None


_Role = tuple[Service, Backend]
"""A service, and the backend of it that a machine is."""


def vlan_in_lab(service: Service, backend: Backend) -> int:
    """Return the VLAN of a backend's machine; NO_TAG if it has none."""
    written = vlan_of(backend.next_hop)
    return (service.claim.vlan or NO_TAG) if written is None else written


def mac_in_lab(service: Service, backend: Backend, *, gateway_mac: str) -> str:
    """Return the MAC of a backend's machine. `gateway_mac`: the clients' next hop without `vip_mac`."""
    mac, _ = mac_and_port(backend.next_hop)
    if mac != UNCHANGED:
        return mac
    # The packet's destination MAC stays, so the machine has the MAC that clients send to.
    return gateway_mac if service.vip_mac is None else str(service.vip_mac)


def _machines(
    name: str,
    balancer: Balancer,
    macs: Iterator[str],
    *,
    gateway_mac: str,
    answer_macs: Mapping[str, str],
    through_switch: Mapping[str, str],
) -> tuple[Machine, ...]:
    """Return the machines of lab `name` in the order of the config. `macs`: those that are free. `gateway_mac`: the
    clients' next hop without `vip_mac`. `answer_macs`: the machines' next hop, by egress. `through_switch`: that of
    answers that go back through the bridge, by egress. Raises LabError for more than MAX_MACHINES, and for backends
    with different MACs behind one tunnel."""
    served: dict[tuple[str, str, int], list[_Role]] = {}
    found_macs: dict[tuple[IPAddress | None, int], str] = {}
    for service in balancer.services:
        for backend in service.backends:
            end = remote_end_of(backend.next_hop, balancer.switch_tunnels)
            _, egress = mac_and_port(backend.next_hop)
            vlan = vlan_in_lab(service, backend)
            if end is not None:
                key = str(end.remote), UNDERLAY, NO_TAG
            elif not backend.follows:
                key = mac_in_lab(service, backend, gateway_mac=gateway_mac), egress, vlan
            else:
                if (backend.address, vlan) not in found_macs:
                    found_macs[backend.address, vlan] = next(macs)
                key = found_macs[backend.address, vlan], egress, vlan
            served.setdefault(key, []).append((service, backend))
    if len(served) > MAX_MACHINES:
        raise LabError(
            f"the config has {len(served)} backends with MACs of their own, the lab has room for {MAX_MACHINES}; "
            "try a config with fewer"
        )
    used = used_addresses(balancer)
    # Of backends without an address in the config.
    free = (str(each) for each in probe_net(Family.IPV4, vips_of(balancer)).hosts() if each not in used)
    machines = []
    for number, ((place, egress, vlan), roles) in enumerate(served.items(), start=1):
        own = tuple(dict.fromkeys(str(backend.address) for _, backend in roles if backend.address is not None))
        ends = tuple(_ends(roles, balancer))
        # Without NAT, packets reach the machine with the VIP as destination, else with its own address.
        direct = [service.claim for service, _ in roles if service.nat is None]
        wild = {family for claim in direct if not claim.vips for family in claim.families}
        machines.append(
            Machine(
                label=f"b{number}",
                namespace=lab_namespace(name, f"b{number}"),
                mac=next(macs) if ends else place,
                egress=egress,
                names=tuple(dict.fromkeys(backend.name for _, backend in roles)),
                addresses=tuple(dict.fromkeys(str(vip) for claim in direct for vip in claim.vips)),
                nets=tuple(str(SERVER_NETS[family]) for family in sorted(wild, key=lambda family: family.bits)),
                listen=tuple(sorted({port for role in roles for port in _listened(*role)})),
                gateway_mac=answer_macs[egress],
                own_addresses=own or (next(free),),
                ends=ends,
                answer_paths=tuple(dict.fromkeys(_answer_paths(roles, ends, through_switch[egress]))),
                translated=tuple(sorted({port for role in roles if role[0].nat for port in _listened(*role)})),
                vlan=vlan,
            )
        )
    return tuple(machines)


def _ends(roles: Iterable[_Role], balancer: Balancer) -> Iterator[MachineTunnelEnd]:
    """Yield the ends of the tunnels that lead to one machine. Raises LabError if a kernel cannot have them all."""
    found = dict[tuple[str, int, int], RemoteEnd]()
    for _, backend in roles:
        end = remote_end_of(backend.next_hop, balancer.switch_tunnels)
        if end is None:
            continue
        tunnel = end.tunnel
        key = tunnel.type.value, end.key, tunnel.dst_port
        if key in found:
            if found[key].mac != end.mac:
                raise LabError(
                    f"{end.remote} has backends with the MACs {found[key].mac} and {end.mac} behind one {key[0]} "
                    f"tunnel with key {end.key}; the lab has one backend behind it: give one another `key` or `remote`"
                )
            continue
        yield MachineTunnelEnd(
            f"tun{len(found)}", str(end.mac), end.port, key[0], str(tunnel.local), str(end.remote), end.key, key[2]
        )
        found[key] = end


def tried_ports(claim: Claim) -> tuple[int, ...]:
    """Return the destination ports at which a service is tried: of long ranges only the first and the last."""
    found = list[int]()
    for ports in claim.ports:
        first = max(ports.first, 1)
        found += (first, ports.last) if ports.last - first >= _LISTED_PORTS else range(first, ports.last + 1)
    return tuple(found) or (ANY_PORT,)


def tried_protocols(claim: Claim) -> tuple[Protocol, ...]:
    """Return the protocols with which the lab can try a service; empty for SCTP, which many kernels lack."""
    possible = (Protocol.UDP, Protocol.TCP, Protocol.ICMP) if not claim.ports else (Protocol.UDP, Protocol.TCP)
    return tuple(protocol for protocol in possible if claim.protocol in (None, protocol))


def _listened(service: Service, backend: Backend) -> Iterator[tuple[str, int]]:
    """Yield the protocols and ports at which a backend's machine listens."""
    claim, port = service.claim, l4_port_of(backend.next_hop)
    for protocol in tried_protocols(claim):
        if protocol.has_ports:
            yield from ((protocol.value, tried) for tried in (tried_ports(claim) if port is None else (port,)))


def _answer_paths(roles: Iterable[_Role], ends: Iterable[MachineTunnelEnd], mac: str) -> Iterator[AnswerPath]:
    """Yield the routes of answers that must go back through the bridge."""
    interfaces = {(end.port, end.mac): end.interface for end in ends}
    for service, backend in roles:
        inner, port = mac_and_port(backend.next_hop)
        if service.nat is not None:
            yield AnswerPath(str(backend.address), "eth0", mac)
        elif (port, inner) in interfaces and service.returns is Returns.SWITCH:
            sources = map(str, service.claim.vips or _server_nets(service.claim))
            yield from (AnswerPath(source, interfaces[port, inner], mac) for source in sources)


def _server_nets(claim: Claim) -> list[IPNetwork]:
    return [SERVER_NETS[family] for family in sorted(claim.families, key=str)]


@dataclass(frozen=True, slots=True)
class End:
    """One end of a veth pair (veth(4)). `mac`: None if the kernel chooses it. `bridge`: None if it is no port of a
    bridge. `vlan`: the tag that the port adds and removes; NO_TAG if it forwards frames unchanged."""

    namespace: str
    interface: str
    mac: str | None = None
    bridge: str | None = None
    vlan: int = NO_TAG


@dataclass(frozen=True, slots=True)
class Link:
    """A veth pair. `near` is in the switch's namespace. `mtu`: None for 1500."""

    near: End
    far: End
    mtu: int | None = None


HOST_PORT = "pf0hpf"
"""The port to the host on a DPU (BlueField's name). The bridge has it even if the config does not name it."""

UNDERLAY = f"{RESERVED_PREFIX}ul"
"""The port through which tunnel packets leave. It is on no bridge of the config, as NICs require."""

TRUNK = f"{RESERVED_PREFIX}tr"
"""The bridge that emulates the switch between clients in VLANs and the first ingress port."""

UNDERLAY_MTU = 1600
"""Fits packets of 1500 bytes in any tunnel: Geneve with options, or ESP around it, adds less than 100 bytes."""


@dataclass(frozen=True, slots=True)
class Underlay:
    """The network of the outer packets of tunnels, behind the port UNDERLAY. `addresses`: local addresses of tunnels,
    each with the length of a prefix that all its remotes share."""

    mac: str
    addresses: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class ClientHost:
    """The namespace that sends as all clients. `gateway_mac`: the next hop to all destinations except these VIPs.
    `arp_vips`: VIPs whose MAC it finds by ARP. `fixed_vips`: VIPs with fixed MACs. `vlans`: VLANs in which it has a
    device, each with its destinations."""

    namespace: str
    interface: str
    nets: tuple[str, ...]
    gateway_mac: str
    arp_vips: tuple[str, ...]
    fixed_vips: tuple[tuple[str, str], ...]
    vlans: tuple[tuple[int, tuple[str, ...]], ...]

    def device_to(self, destination: str) -> str:
        """Return the device through which packets to a VIP leave."""
        return tagged(self.interface, next((vlan for vlan, there in self.vlans if destination in there), NO_TAG))


@dataclass(frozen=True, slots=True)
class ProbeDevice:
    """A device in the switch's namespace that sends health checks into the network behind port `egress`."""

    egress: str
    interface: str
    mac: str
    vlan: int = NO_TAG


@dataclass(frozen=True, slots=True)
class Topology:
    """The plan of a lab, of text and tuples only, so that it can be saved as JSON. `bridge`: that of the config."""

    name: str
    bridge: str
    links: tuple[Link, ...]
    clients: ClientHost
    machines: tuple[Machine, ...]
    probe_devices: tuple[ProbeDevice, ...]
    probe_addresses: tuple[str, ...]
    underlay: Underlay | None = None

    @property
    def switch_namespace(self) -> str:
        return lab_namespace(self.name, "sw")

    @property
    def namespaces(self) -> tuple[str, ...]:
        return (self.switch_namespace, self.clients.namespace, *(machine.namespace for machine in self.machines))

    @property
    def ends(self) -> tuple[End, ...]:
        return tuple(end for link in self.links for end in (link.near, link.far))

    def ports_of(self, bridge: str) -> tuple[str, ...]:
        """Return the ports of a bridge, in the order of their OpenFlow numbers."""
        return tuple(end.interface for end in self.ends if end.bridge == bridge)

    @property
    def fabrics(self) -> tuple[str, ...]:
        """Return the learning switches: in front of the machines, and, for VLANs, in front of the clients."""
        return tuple(dict.fromkeys(end.bridge for end in self.ends if end.bridge not in (None, self.bridge)))

    @property
    def nic_ports(self) -> tuple[str, ...]:
        """Return the ports that an emulated NIC has in this lab."""
        return (*self.ports_of(self.bridge), *(() if self.underlay is None else (UNDERLAY,)))


def families_of(balancer: Balancer) -> tuple[Family, ...]:
    """Return the IP versions of the services, IPv4 first."""
    return tuple(family for family in Family if any(family in service.claim.families for service in balancer.services))


def vips_of(balancer: Balancer) -> frozenset[Vip]:
    return frozenset(vip for service in balancer.services for vip in service.claim.vips)


def used_addresses(balancer: Balancer) -> frozenset[Vip]:
    """Return all addresses in the config, which no client may have."""
    backends = (backend for service in balancer.services for backend in service.backends)
    tunnels = {end.remote for end in balancer.remote_ends} | {tunnel.local for tunnel in balancer.switch_tunnels}
    return vips_of(balancer) | {backend.address for backend in backends if backend.address is not None} | tunnels


def _underlay(balancer: Balancer, macs: Iterator[str]) -> Underlay | None:
    remotes = dict[IPv4Address, set[IPv4Address]]()
    for end in balancer.remote_ends:
        remotes.setdefault(end.tunnel.local, set()).add(end.remote)
    addresses = tuple((str(local), _common_prefix((local, *there))) for local, there in remotes.items())
    return Underlay(next(macs), addresses) if addresses else None


def _common_prefix(addresses: Iterable[IPv4Address]) -> int:
    """Return the length of the longest prefix that addresses share, at most 30 bits."""
    first, *others = map(int, addresses)
    return min(30, *(32 - (first ^ other).bit_length() for other in others))


def plan_topology(name: str, balancer: Balancer) -> Topology:
    """Return the plan of lab `name` for a config. Raises LabError if the lab cannot have its names or backends."""
    check_name(name)
    switch, clients, uplinks = lab_namespace(name, "sw"), lab_namespace(name, "clients"), balancer.uplinks
    tunnel_ports = balancer.tunnel_ports
    ports = tuple(port for port in dict.fromkeys((*balancer.ports, HOST_PORT)) if port not in tunnel_ports)
    _check_devices((uplinks.bridge, *ports, *tunnel_ports))
    # The bridges that emulate the switch behind each port towards backends, and behind the port of tunnels.
    towards = dict.fromkeys(UNDERLAY if port in tunnel_ports else port for port in balancer.egress_ports)
    fabrics = {port: f"{RESERVED_PREFIX}fabric{i}" for i, port in enumerate(towards, start=1)}

    macs = map(str, own_macs(_used_macs(balancer)))
    gateway_mac = next(macs)
    ingress_macs = {port: next(macs) for port in uplinks.ingress}
    # If the bridge does not forward answers, cables lead them from each fabric to the clients.
    cabled = [
        port for port in fabrics if port == UNDERLAY or uplinks.other_traffic in (OtherTraffic.DROP, OtherTraffic.LEAVE)
    ]
    first_mac = _router_mac(balancer) or ingress_macs[uplinks.ingress[0]]
    # With a router, flows replace the destination MAC of answers.
    through_switch = dict.fromkeys(fabrics, gateway_mac if _router_mac(balancer) else first_mac) | {UNDERLAY: first_mac}
    ingress_macs[uplinks.ingress[0]] = first_mac
    return_macs = {port: next(macs) if port in cabled else first_mac for port in fabrics}

    inside = {
        (backend.next_hop.port, vlan_in_lab(service, backend))
        for service in balancer.services
        for backend in service.backends
    }
    places = [(port, NO_TAG) for port in fabrics] + sorted(place for place in inside if place[1])
    probe_devices = tuple(
        ProbeDevice(port, f"{RESERVED_PREFIX}probe{i}", next(macs), vlan) for i, (port, vlan) in enumerate(places, 1)
    )
    vlans = _vlans(balancer)
    machines = _machines(
        name, balancer, macs, gateway_mac=gateway_mac, answer_macs=return_macs, through_switch=through_switch
    )
    underlay = _underlay(balancer, macs)
    links = []
    for i, port in enumerate((*ports, *([UNDERLAY] if UNDERLAY in fabrics else [])), start=1):
        inner, fabric = End(switch, port, bridge=None if port == UNDERLAY else uplinks.bridge), fabrics.get(port)
        if fabric is not None:
            links.append(Link(inner, End(switch, f"{RESERVED_PREFIX}up{i}", bridge=fabric), _mtu(port)))
            inner = End(switch, f"{RESERVED_PREFIX}cl{i}", bridge=fabric)
        if port == uplinks.ingress[0] and vlans:
            # Clients have a port for each VLAN on a switch with a trunk to the bridge.
            links.append(Link(inner, End(switch, f"{TRUNK}-up", bridge=TRUNK)))
            for vlan in (NO_TAG, *(vlan for vlan, _ in vlans)):
                near = End(switch, tagged(TRUNK, vlan) if vlan else f"{TRUNK}-cl", bridge=TRUNK, vlan=vlan)
                links.append(Link(near, End(clients, tagged(f"cl{i}", vlan), ingress_macs[port])))
        elif port in ingress_macs:
            links.append(Link(inner, End(clients, f"cl{i}", ingress_macs[port])))
        elif fabric is None:
            links.append(Link(inner, End(switch, f"{RESERVED_PREFIX}idle{i}")))
    for machine in machines:
        near = End(switch, machine.switch_interface, bridge=fabrics[machine.egress], vlan=machine.vlan)
        links.append(Link(near, End(machine.namespace, "eth0", machine.mac), _mtu(machine.egress)))
    for i, device in enumerate(probe_devices, start=1):
        near = End(switch, f"{RESERVED_PREFIX}probing{i}", bridge=fabrics[device.egress], vlan=device.vlan)
        links.append(Link(near, End(switch, device.interface, device.mac)))
    for i, port in enumerate(cabled, start=1):
        near = End(switch, f"{RESERVED_PREFIX}ret{i}", bridge=fabrics[port])
        links.append(Link(near, End(clients, f"ret{i}", return_macs[port])))

    interface = next(link.far.interface for link in links if link.far.namespace == clients)
    return Topology(
        name,
        uplinks.bridge,
        links=tuple(links),
        clients=_clients(balancer, clients, interface, gateway_mac, vlans),
        machines=machines,
        probe_devices=probe_devices,
        probe_addresses=tuple(_probe_addresses(balancer, machines)),
        underlay=underlay,
    )


def _mtu(egress: str) -> int | None:
    return UNDERLAY_MTU if egress == UNDERLAY else None


def _router_mac(balancer: Balancer) -> str | None:
    """Return the `return_mac` of the services with NAT, if any. Raises LabError if they have different ones."""
    found = {service.nat.return_mac for service in balancer.services if service.nat and service.nat.return_mac}
    if len(found) > 1:
        named = ", ".join(sorted(map(str, found)))
        raise LabError(f"`return_mac` of NAT is {named}; clients of the lab have one router: write one of them")
    return str(found.pop()) if found else None


def _probe_addresses(balancer: Balancer, machines: Iterable[Machine]) -> Iterator[str]:
    used = used_addresses(balancer)
    families = {family_of(ip_address(address)) for machine in machines for address in machine.own_addresses}
    for family in (family for family in Family if family in families):
        net = probe_net(family, vips_of(balancer))
        yield str(next(address for at in range(2, 256) if (address := net[-at]) not in used))


def tagged(interface: str, vlan: int) -> str:
    """Return the name of an interface's subinterface in a VLAN; for NO_TAG that of the interface itself."""
    return f"{interface}.{vlan}" if vlan else interface


def _destinations(service: Service, balancer: Balancer) -> Iterator[str]:
    """Yield the destinations of a service, as the routes of `ClientHost` name them."""
    if not service.claim.vips:
        yield from map(str, _server_nets(service.claim))
    yield from map(prefix_text, service.claim.vips_of(Family.IPV4))
    yield from map(str, own_addresses(service, Family.IPV6, balancer.services))


_Vlans = tuple[tuple[int, tuple[str, ...]], ...]


def _vlans(balancer: Balancer) -> _Vlans:
    """Return the VLANs of services and backends, each with the destinations of its services."""
    found, places = dict[int, dict[str, None]](), dict[str, int]()
    for service in balancer.services:
        vlan = service.claim.vlan or NO_TAG
        for place in _destinations(service, balancer):
            if places.setdefault(place, vlan) != vlan:
                raise LabError(
                    f"{place} is in several VLANs; clients of the lab have one way to it: try one of the services alone"
                )
            found.setdefault(vlan, {})[place] = None
        for backend in service.backends:
            found.setdefault(vlan_in_lab(service, backend), {})
    found.pop(NO_TAG, None)
    if found and balancer.uplinks.other_traffic in (OtherTraffic.DROP, OtherTraffic.LEAVE):
        raise LabError("answers in VLANs need `other_traffic: passthrough` or normal in the lab")
    return tuple((vlan, tuple(there)) for vlan, there in found.items())


def _clients(balancer: Balancer, namespace: str, interface: str, gateway_mac: str, vlans: _Vlans) -> ClientHost:
    vip_macs = {vip: service.vip_mac for service in balancer.services if service.vip_mac for vip in service.claim.vips}
    used = used_addresses(balancer)
    return ClientHost(
        namespace,
        interface,
        nets=tuple(str(client_net(family, used)) for family in families_of(balancer)),
        gateway_mac=gateway_mac,
        # Flows cannot answer neighbour discovery: OVS cannot turn a solicitation into an advertisement.
        arp_vips=tuple(prefix_text(vip) for vip in vip_macs if family_of(vip) is Family.IPV4),
        fixed_vips=tuple(
            {
                str(address): str(service.vip_mac)
                for service in balancer.services
                for address in own_addresses(service, Family.IPV6, balancer.services)
                if service.vip_mac
            }.items()
        ),
        vlans=vlans,
    )


def _used_macs(balancer: Balancer) -> set[Mac]:
    used = {mac_of(backend.next_hop) for service in balancer.services for backend in service.backends}
    used |= {mac for service in balancer.services for mac in (service.vip_mac, service.source_mac)}
    used |= {service.nat.return_mac for service in balancer.services if service.nat is not None}
    return {mac for mac in used if mac is not None}


def _check_devices(names: Iterable[str]) -> None:
    for name in names:
        if len(name) > MAX_INTERFACE_LENGTH or not name or "/" in name or name.split() != [name] or name == "lo":
            raise LabError(
                f"{name!r} cannot be the name of a device in the lab: 1 to {MAX_INTERFACE_LENGTH} characters, "
                "no blank, no `/`, not `lo`; rename it in `switch`"
            )
        if name.startswith(RESERVED_PREFIX) or name == "ovs-netdev":
            raise LabError(f"{name!r} is a name that the lab uses itself; rename it in `switch`")
