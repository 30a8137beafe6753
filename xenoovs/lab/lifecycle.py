"""Builds a lab and removes it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path

from xenoovs.dataclass import dataclass
from xenoovs.errors import CommandFailed, LabError
from xenoovs.lab.fabric_topology import Fabric
from xenoovs.lab.host import (
    LabNetns,
    Progress,
    check_host,
    check_root,
    delete_namespace,
    has_ipv6,
    kill_and_wait,
    marked_processes,
    namespaces_of,
    no_progress,
    processes_in,
)
from xenoovs.lab.lab import DEFAULT_DIRECTORY, MARK, Lab, LabState, directory_of, sole_owner, write_state
from xenoovs.lab.private_ovs import LAB_MAX_IDLE, Datapath, start_private_ovs
from xenoovs.lab.probing import in_lab
from xenoovs.lab.servers import follow_config
from xenoovs.lab.topology import (
    UNDERLAY,
    UNDERLAY_MTU,
    AnswerPath,
    End,
    Link,
    Machine,
    Topology,
    Underlay,
    families_of,
    plan_topology,
    tagged,
)
from xenoovs.lab.underlay import (
    UNDERLAY_BRIDGE,
    add_ipsec,
    add_tunnel_ends,
    add_tunnel_ports,
    check_userspace,
    learn_remotes,
)
from xenoovs.model.address import Family
from xenoovs.model.balancer import Balancer


def up(name: str, balancer: Balancer, *, directory: Path | None = None, progress: Progress = no_progress) -> Lab:
    """Build lab `name` for a config; its bridge has no flows yet. Raises LabError if the host lacks something, the lab
    exists, or a name does not fit. After any error, also Ctrl-C, everything is removed again."""
    topology = plan_topology(name, balancer)
    check_userspace(balancer)
    check_host(needs_ipv6=Family.IPV6 in families_of(balancer))
    with new_lab(topology, directory=directory) as place:
        lab = Lab(place, topology)
        LabBuilder(lab, balancer, progress).build()
    return lab


@contextmanager
def new_lab(topology: Topology | Fabric, *, directory: Path | None = None, nic: bool = False) -> Iterator[Path]:
    """Make a lab's directory, mark it complete after the block; an error removes it. Raises LabError if it exists."""
    name = topology.name
    place = directory_of(name, directory)
    _make_directory(name, place)
    with sole_owner(place):
        try:
            # Written before anything is made, so that `down` finds everything after a crash.
            write_state(place, LabState(complete=False, topology=topology, nic=nic))
            yield place
            write_state(place, LabState(complete=True, topology=topology, nic=nic))
        except BaseException:
            _remove(name, place)
            raise


def _make_directory(name: str, place: Path) -> None:
    again = f"`xenoovs lab down --lab {name}` removes it, another --lab makes a second one"
    if place.exists():
        raise LabError(f"lab {name} exists already ({place}); {again}")
    if left := namespaces_of(name):
        raise LabError(f"a lab {name} has namespaces here already ({', '.join(left)}); {again}")
    try:
        for ancestor in reversed(place.parents):
            ancestor.mkdir(mode=0o700, exist_ok=True)
        place.mkdir(mode=0o700)
    except FileExistsError:
        raise LabError(f"lab {name} exists already ({place}); {again}") from None
    except OSError as error:
        raise LabError(f"the lab's directory {place} cannot be made: {error.strerror}") from None


# One next hop with a permanent neighbour entry replaces thousands of entries (RFC 3927; RFC 4291, section 2.5.6).
_GATEWAYS = {False: ("169.254.0.1", "0.0.0.0/0"), True: ("fe80::1", "::/0")}

_ANSWER_GATEWAYS = {False: "169.254.0.{}", True: "fe80::{:x}"}
"""The next hops of answers with a route of their own, counted from 2."""

_IPV4_OFF = tuple(f"ipv4/conf/{scope}/{key}" for scope in ("all", "default") for key in ("rp_filter", "forwarding"))


class LabBuilder:
    """Builds what a topology describes: on this host, with veth pairs and the userspace datapath of Open vSwitch."""

    def __init__(self, lab: Lab, balancer: Balancer, progress: Progress) -> None:
        self.lab, self.topology, self.progress = lab, lab.topology, progress
        self.balancer = in_lab(balancer, lab.topology)
        self.netns = LabNetns(lab.marks)

    def build(self) -> None:
        underlay = self.topology.underlay
        steps: list[tuple[str, Callable[[], None]]] = [
            ("namespaces", self.add_namespaces),
            ("links", self.add_links),
            ("Open vSwitch", self.start_switch),
            *([] if underlay is None else [("tunnels", partial(self._add_tunnels, underlay))]),
            ("clients", self._configure_clients),
            ("health checks", self._configure_probes),
        ]
        for machine in self.topology.machines:
            steps.append((f"backend {'/'.join(machine.names)}", partial(self._start_machine, machine)))
        take_steps(steps, self.progress)

    def add_namespaces(self) -> None:
        add_namespaces(self.netns, self.topology.namespaces)
        isolate(self.netns, self.topology.namespaces)

    def add_links(self) -> None:
        self.netns.batch(map(link_line, self.topology.links), namespace=self.topology.switch_namespace)
        self.set_up(self.topology.ends)
        self.compute_checksums(self.topology.ends)

    def set_up(self, ends: Iterable[End]) -> None:
        # Without a link-local address the kernel sends no router solicitations.
        options = "addrgenmode none up" if has_ipv6() else "up"
        for namespace in self.topology.namespaces:
            devices = [end.interface for end in ends if end.namespace == namespace]
            self.netns.batch((f"link set dev {device} {options}" for device in devices), namespace=namespace)

    def compute_checksums(self, ends: Iterable[End]) -> None:
        """Make senders compute checksums, which packets within one host lack by default (ethtool(8))."""
        for end in ends:
            if end.namespace != self.topology.switch_namespace or end.bridge is None:
                self.netns.execute(end.namespace, ["ethtool", "-K", end.interface, "tx", "off"])

    def start_switch(self) -> None:
        topology, lab = self.topology, self.lab
        ovs = start_private_ovs(
            lab.ovs.directory,
            datapath=Datapath.USERSPACE,
            netns=topology.switch_namespace,
            marks=lab.marks,
            settings=[LAB_MAX_IDLE],
        )
        for bridge in (topology.bridge, *topology.fabrics):
            is_ours = bridge == topology.bridge
            ovs.add_bridge(bridge, topology.ports_of(bridge), datapath=Datapath.USERSPACE, secure=is_ours)
        for end in topology.ends:
            if end.vlan and end.bridge is not None:
                ovs.vsctl("set", "Port", end.interface, f"tag={end.vlan}")
        # The bridges do not learn the MAC of a device that never sends, and would flood answers to it to all machines,
        # as Open vSwitch 2.15 does, which has no fdb/add.
        fabrics = topology.fabrics if "fdb/add" in ovs.appctl("list-commands") else ()
        for link in topology.links:
            if link.near.bridge in fabrics and link.far.namespace == topology.clients.namespace:
                ovs.appctl("fdb/add", link.near.bridge, link.near.interface, str(link.near.vlan), str(link.far.mac))
        if topology.underlay is not None:
            ovs.add_bridge(UNDERLAY_BRIDGE, [UNDERLAY], datapath=Datapath.USERSPACE, secure=False)
            ovs.vsctl("set", "bridge", UNDERLAY_BRIDGE, f"other_config:hwaddr={topology.underlay.mac}")

    def _add_tunnels(self, underlay: Underlay) -> None:
        """Add the local addresses of tunnels and the tunnel ports to the switch."""
        switch = self.topology.switch_namespace
        # By default the kernel answers ARP for a local address at every device, also at ports of bridges.
        self.netns.write_sysctls(switch, ["ipv4/conf/all/arp_ignore"], value=1)
        device = UNDERLAY_BRIDGE if self.lab.ovs.datapath is Datapath.USERSPACE else UNDERLAY
        lines = [f"link set dev {device} address {underlay.mac} mtu {UNDERLAY_MTU} up"]
        lines += [f"addr add {local}/{prefix} dev {device}" for local, prefix in underlay.addresses]
        self.netns.batch(lines, namespace=switch)
        add_tunnel_ports(self.lab.ovs, self.balancer)
        learn_remotes(self.lab)
        add_ipsec(self.lab, self.balancer)

    def _configure_clients(self) -> None:
        """Make every address of the clients' nets local with one route (`ip route add local`)."""
        clients, dev = self.topology.clients, self.topology.clients.interface
        to = clients.device_to
        known = {*clients.arp_vips, *(vip for vip, _ in clients.fixed_vips)}
        lines = [
            *_route_lines(dev, clients.gateway_mac, nets=clients.nets, families=clients.nets),
            *(
                line
                for vlan, there in clients.vlans
                for place in there
                if place not in known
                for line in _way_lines(tagged(dev, vlan), clients.gateway_mac, place)
            ),
            *(f"route add {vip} dev {to(vip)}" for vip in clients.arp_vips),
            *(f"route add {vip}/128 dev {to(vip)}" for vip, _ in clients.fixed_vips),
            *(f"neigh replace {vip} lladdr {mac} dev {to(vip)} nud permanent" for vip, mac in clients.fixed_vips),
        ]
        self.netns.batch(lines, namespace=clients.namespace)

    def _configure_probes(self) -> None:
        """Let the switch's namespace reach the backends' own addresses, as a host in their network does."""
        switch = self.topology.switch_namespace
        for device in self.topology.probe_devices:
            if any(":" in address for address in self.topology.probe_addresses):
                self.netns.write_sysctls(switch, [f"ipv6/conf/{device.interface}/disable_ipv6"], value=0)
            lines = [_address_line(address, device.interface) for address in self.topology.probe_addresses]
            for machine in self.topology.machines:
                if (machine.egress, machine.vlan) == (device.egress, device.vlan):
                    # An own address that is the remote of a tunnel already has the route of the outer packets.
                    own = (address for address in machine.own_addresses if address != machine.outer_address)
                    lines += [f"route replace {address} dev {device.interface}" for address in own]
            self.netns.batch(lines, namespace=switch)

    def _start_machine(self, machine: Machine) -> None:
        """Configure a backend for direct server return: VIPs on its loopback, which it does not announce by ARP. With
        arp_ignore 1 it answers only for addresses of the receiving interface, with arp_announce 2 its requests have no
        source address of another interface (ip-sysctl.rst of the kernel)."""
        self.netns.write_sysctls(machine.namespace, ["ipv4/conf/all/arp_ignore"], value=1)
        self.netns.write_sysctls(machine.namespace, ["ipv4/conf/all/arp_announce"], value=2)
        # Without duplicate address detection, which would find the other backends: they have the VIP on purpose.
        vips = (
            f"route add local {vip} dev lo" if "/" in vip else _address_line(vip, "lo") for vip in machine.addresses
        )
        families = (*machine.addresses, *machine.nets)
        underlay = self.topology.underlay
        dev = "eth0"
        if underlay is not None and machine.ends:
            dev = add_tunnel_ends(self.lab, machine, underlay, self.balancer)
        routes = _route_lines(dev, machine.gateway_mac, nets=machine.nets, families=families)
        self.netns.batch((*vips, *routes, *self._probe_lines(machine, dev)), namespace=machine.namespace)
        for is_ipv6 in (False, True):
            lines = _answer_lines(path for path in machine.answer_paths if (":" in path.source) == is_ipv6)
            self.netns.batch(lines, namespace=machine.namespace, is_ipv6=is_ipv6)
        follow_config(self.lab, self.balancer, [machine])

    def _probe_lines(self, machine: Machine, dev: str) -> Iterator[str]:
        """Yield the commands for a backend's own addresses, and for the routes of its answers to health checks."""
        families = {":" in address for address in machine.own_addresses}
        place = machine.egress, machine.vlan
        (device,) = (device for device in self.topology.probe_devices if (device.egress, device.vlan) == place)
        own = (address for address in machine.own_addresses if address != machine.outer_address)
        yield from (_address_line(address, dev) for address in own)
        for address in self.topology.probe_addresses:
            if (":" in address) in families:
                yield f"neigh replace {address} lladdr {device.mac} dev {dev} nud permanent"
                yield f"route add {address} dev {dev}"


def take_steps(steps: Sequence[tuple[str, Callable[[], None]]], progress: Progress) -> None:
    for done, (what, step) in enumerate(steps):
        progress(what, done, len(steps))
        step()
    progress("ready", len(steps), len(steps))


def add_namespaces(netns: LabNetns, namespaces: Iterable[str]) -> None:
    """Create network namespaces. Raises LabError if that is not possible."""
    try:
        netns.batch(f"netns add {namespace}" for namespace in namespaces)
    except CommandFailed as error:
        raise LabError(
            f"network namespaces cannot be made here: {error.stderr.strip()}; "
            "inside a container it takes `--privileged`"
        ) from None


def isolate(netns: LabNetns, namespaces: Iterable[str]) -> None:
    """Disable forwarding and the return path filter of hosts, whatever the settings of this host."""
    for namespace in namespaces:
        netns.write_sysctls(namespace, _IPV4_OFF, value=0)
        netns.batch(["link set dev lo up"], namespace=namespace)


def _address_line(address: str, dev: str) -> str:
    return f"addr add {address}/{'128' if ':' in address else '32'} dev {dev}{' nodad' if ':' in address else ''}"


def link_line(link: Link) -> str:
    """Return the command of ip(8) that makes a veth pair."""
    # Both ends are created in their namespaces, so neither is ever visible in the host's.
    near, far = link.near, link.far
    address = f"address {far.mac}" if far.mac else ""
    mtu = f"mtu {link.mtu}" if link.mtu else ""
    ends = f"dev {near.interface} {mtu} type veth peer name {far.interface} {address} {mtu} netns {far.namespace}"
    return f"link add {ends}"


def _route_lines(dev: str, gateway_mac: str, *, nets: Iterable[str], families: Iterable[str]) -> list[str]:
    """Return commands for local nets and the default route; `families`: addresses or nets of the IP versions in use."""
    lines = [f"route add local {net} dev lo" for net in nets]
    for is_ipv6 in sorted({":" in text for text in families}):
        lines += _way_lines(dev, gateway_mac, _GATEWAYS[is_ipv6][1])
    return lines


def _way_lines(dev: str, gateway_mac: str, destination: str) -> list[str]:
    """Return commands for a route through the common next hop."""
    gateway, _ = _GATEWAYS[":" in destination]
    return [
        f"neigh replace {gateway} lladdr {gateway_mac} dev {dev} nud permanent",
        f"route add {destination} via {gateway} dev {dev} onlink",
    ]


_FIRST_TABLE = 100
"""The first routing table; no distribution names it (/etc/iproute2/rt_tables)."""


def _answer_lines(paths: Iterable[AnswerPath]) -> Iterator[str]:
    """Yield the commands that route answers by their source address (ip-rule(8))."""
    for number, path in enumerate(paths):
        if not number:
            # Routes to the sources of health checks come first, the machine's default route last.
            yield "rule add pref 100 lookup main suppress_prefixlength 0"
        gateway, table = _ANSWER_GATEWAYS[":" in path.source].format(number + 2), _FIRST_TABLE + number
        yield f"neigh replace {gateway} lladdr {path.mac} dev {path.interface} nud permanent"
        yield f"route add default via {gateway} dev {path.interface} onlink table {table}"
        yield f"rule add pref 200 from {path.source} lookup {table}"


_ROUNDS = 20
_PAUSE_S = 0.02


@dataclass(frozen=True, slots=True)
class RemovedLab:
    """How much `down` removed; all 0 if there was no lab."""

    namespaces: int
    processes: int
    directories: int

    @property
    def anything(self) -> bool:
        return bool(self.namespaces or self.processes or self.directories)


def down(name: str, *, directory: Path | None = None) -> RemovedLab:
    """Remove lab `name`, complete or not: processes, namespaces with their devices, files. Raises LabError without
    root, while another process builds the lab, or if a process cannot be killed."""
    place = directory_of(name, directory)
    check_root()
    with sole_owner(place) if place.is_dir() else nullcontext():
        return _remove(name, place)


def _remove(name: str, place: Path) -> RemovedLab:
    processes = namespaces = 0
    for _ in range(_ROUNDS):
        # A child of a killed `up` may create more until it exits: repeat until a round finds nothing.
        namespaces_left = namespaces_of(name)
        pids = {*marked_processes(MARK, str(place)), *(pid for there in namespaces_left for pid in processes_in(there))}
        if not namespaces_left and not pids:
            break
        if not kill_and_wait(pids):
            raise LabError(f"processes of lab {name} do not end: {', '.join(map(str, sorted(pids)))}; try again later")
        for namespace in namespaces_left:
            delete_namespace(namespace)
        processes, namespaces = processes + len(pids), namespaces + len(namespaces_left)
        time.sleep(_PAUSE_S)
    else:
        raise LabError(f"lab {name} cannot be removed: {', '.join(namespaces_of(name))} are still there")
    existed = place.exists()
    shutil.rmtree(place, ignore_errors=True)
    # Keep a directory that the user chose.
    if place.parent == DEFAULT_DIRECTORY:
        with suppress(OSError):
            DEFAULT_DIRECTORY.rmdir()
            DEFAULT_DIRECTORY.parent.rmdir()
    return RemovedLab(namespaces, processes, int(existed))
