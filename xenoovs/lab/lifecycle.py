"""Builds a lab, takes it down, and says what of it is alive."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from xenoovs.errors import CommandFailed, LabError
from xenoovs.lab.host import (
    Host,
    Netns,
    Progress,
    check_host,
    check_root,
    delete_namespace,
    kill_and_wait,
    marked_processes,
    namespaces_of,
    probe_host,
    processes_in,
    silent,
)
from xenoovs.lab.lab import DEFAULT_DIRECTORY, MARK, Lab, State, directory_of, sole_owner, write_state
from xenoovs.lab.private_ovs import Datapath, start_private_ovs
from xenoovs.lab.topology import Clients, Link, Machine, Topology, families_of, plan_topology
from xenoovs.model.address import Family
from xenoovs.model.balancer import Balancer

# Addresses, routes and neighbours inside the namespaces of a lab, and the processes that answer there.


# Next hop of everything, by a fixed neighbour entry: one instead of thousands (RFC 3927; RFC 4291, section 2.5.6).
_GATEWAY4, _GATEWAY6 = "169.254.0.1", "fe80::1"

_IPV4_OFF = tuple(f"ipv4/conf/{scope}/{key}" for scope in ("all", "default") for key in ("rp_filter", "forwarding"))


def prepare_namespace(netns: Netns, namespace: str) -> None:
    """A host that neither forwards nor checks the way back, whatever the settings of the machine outside."""
    netns.write_sysctls(namespace, _IPV4_OFF, value=0)
    netns.batch(["link set dev lo up"], namespace=namespace)


def configure_clients(netns: Netns, clients: Clients) -> None:
    """Every address of the clients' nets is local (`ip route add local`), so that thousands need no set-up each."""
    dev = clients.interface
    lines = [
        *_route_lines(dev, clients.gateway_mac, nets=clients.nets, families=clients.nets),
        *(f"route add {vip}/32 dev {dev}" for vip in clients.arp_vips),
        *(f"route add {vip}/128 dev {dev}" for vip, _ in clients.fixed_vips),
        *(f"neigh replace {vip} lladdr {mac} dev {dev} nud permanent" for vip, mac in clients.fixed_vips),
    ]
    netns.batch(lines, namespace=clients.namespace)


def add_clients(netns: Netns, clients: Clients, addresses: list[str]) -> None:
    """Make further addresses, outside of the clients' nets, addresses of clients."""
    netns.batch((f"route replace local {address} dev lo" for address in addresses), namespace=clients.namespace)


def forget_neighbours(netns: Netns, clients: Clients) -> None:
    """Let clients ask by ARP again; fixed entries stay (ip-neighbour(8), flush)."""
    netns.batch([f"neigh flush dev {clients.interface}"], namespace=clients.namespace)


def configure_machine(netns: Netns, machine: Machine) -> None:
    """A backend for direct server return: VIPs on its loopback, silent about them in ARP (arp_ignore, arp_announce).

    The values are those of ip-sysctl.rst of the kernel: 1 answers only for addresses of the asked interface, 2 never
    asks in the name of an address of another one.
    """
    netns.write_sysctls(machine.namespace, ["ipv4/conf/all/arp_ignore"], value=1)
    netns.write_sysctls(machine.namespace, ["ipv4/conf/all/arp_announce"], value=2)
    vips = (_vip_line(vip) for vip in machine.addresses)
    families = (*machine.addresses, *machine.nets)
    routes = _route_lines("eth0", machine.gateway_mac, nets=machine.nets, families=families)
    netns.batch((*vips, *routes), namespace=machine.namespace)


def start_responder(netns: Netns, machine: Machine, *, log: Path) -> None:
    """Start the process that answers in a machine; it listens when this returns. Raises LabError with its complaint."""
    job = {"label": machine.label, "names": list(machine.names), "listen": list(machine.listen), "log": str(log)}
    argv = [sys.executable, "-P", "-m", "xenoovs.lab.responder"]
    try:
        netns.execute(machine.namespace, argv, stdin=json.dumps(job))
    except CommandFailed as error:
        raise LabError(f"backend {machine.label} does not start to answer: {error.stderr.strip()}") from None


def _route_lines(dev: str, gateway_mac: str, *, nets: Iterable[str], families: Iterable[str]) -> list[str]:
    """Local nets, and the way to everything else; `families`: addresses or nets of the IP versions in use."""
    lines = [f"route add local {net} dev lo" for net in nets]
    versions = {":" in text for text in families}
    if False in versions:
        lines.append(f"neigh replace {_GATEWAY4} lladdr {gateway_mac} dev {dev} nud permanent")
        lines.append(f"route add 0.0.0.0/0 via {_GATEWAY4} dev {dev} onlink")
    if True in versions:
        lines.append(f"neigh replace {_GATEWAY6} lladdr {gateway_mac} dev {dev} nud permanent")
        lines.append(f"route add ::/0 via {_GATEWAY6} dev {dev} onlink")
    return lines


def _vip_line(vip: str) -> str:
    # Duplicate address detection would find the other backends, which have the VIP on purpose.
    return f"addr add {vip}/128 dev lo nodad" if ":" in vip else f"addr add {vip}/32 dev lo"


# Taking a lab down, whole, half built or in ruins.


_ROUNDS = 20
_PAUSE_S = 0.02


@dataclass(frozen=True, slots=True)
class Removed:
    """What `down` has found and removed; all zero: there was no lab."""

    namespaces: int
    processes: int
    directories: int

    @property
    def anything(self) -> bool:
        return bool(self.namespaces or self.processes or self.directories)


def down(name: str, *, directory: Path | None = None) -> Removed:
    """Remove all of lab `name`: processes, namespaces with their devices, files. Nothing to do is fine.

    Raises LabError without root, while another process builds the lab, or when a process cannot be killed.
    """
    place = directory_of(name, directory)
    check_root(probe_host())
    with sole_owner(place) if place.is_dir() else nullcontext():
        return remove(name, place)


def remove(name: str, place: Path) -> Removed:
    """As `down`, for the owner of the directory."""
    processes = namespaces = 0
    for _ in range(_ROUNDS):
        # A helper of a killed `up` may still make things until it is dead itself: look until a round finds nothing.
        found = namespaces_of(name)
        pids = {*marked_processes(MARK, str(place)), *(pid for there in found for pid in processes_in(there))}
        if not found and not pids:
            break
        if not kill_and_wait(pids):
            raise LabError(f"processes of lab {name} do not die: {', '.join(map(str, sorted(pids)))}; try again later")
        for namespace in found:
            delete_namespace(namespace)
        processes, namespaces = processes + len(pids), namespaces + len(found)
        time.sleep(_PAUSE_S)
    else:
        raise LabError(f"lab {name} cannot be removed: {', '.join(namespaces_of(name))} are still there")
    existed = place.exists()
    shutil.rmtree(place, ignore_errors=True)
    _remove_empty(place.parent)
    return Removed(namespaces, processes, int(existed))


def _remove_empty(base: Path) -> None:
    # Only directories of our own making; a directory that the user has named stays.
    if base == DEFAULT_DIRECTORY:
        for ours in (base, base.parent):
            with suppress(OSError):
                ours.rmdir()


# Building a lab: one after the other what `topology` says.


def up(name: str, balancer: Balancer, *, directory: Path | None = None, progress: Progress = silent) -> Lab:
    """Build lab `name` for a balancer; its bridge has no flows yet.

    Raises LabError when the machine cannot hold a lab, when the lab exists, or when a name does not fit; whatever goes
    wrong on the way, also Ctrl-C, everything that was made is removed again.
    """
    topology = plan_topology(name, balancer)
    place = directory_of(name, directory)
    host = probe_host()
    check_host(host, needs_ipv6=Family.IPV6 in families_of(balancer))
    make_directory(name, place)
    with sole_owner(place):
        lab = Lab(place, topology)
        try:
            # Before the first thing is made, so that `down` knows of everything after a crash.
            write_state(place, State(complete=False, topology=topology))
            _Builder(lab, Netns(lab.marks), host, progress).build()
            write_state(place, State(complete=True, topology=topology))
        except BaseException:
            remove(name, place)
            raise
        return lab


def make_directory(name: str, place: Path) -> None:
    """The directory of a new lab. Raises LabError when there is a lab of that name."""
    again = f"`xenoovs lab down --name {name}` removes it, another --name makes a second one"
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


@dataclass(frozen=True, slots=True)
class _Builder:
    """The steps of `up` in their order."""

    lab: Lab
    netns: Netns
    host: Host
    progress: Progress

    @property
    def topology(self) -> Topology:
        return self.lab.topology

    def build(self) -> None:
        machines = self.topology.machines
        total = 4 + len(machines)
        self.progress("namespaces", 0, total)
        self._namespaces()
        self.progress("links", 1, total)
        self._links()
        self.progress("Open vSwitch", 2, total)
        self._switch()
        self.progress("clients", 3, total)
        configure_clients(self.netns, self.topology.clients)
        for i, machine in enumerate(machines, start=4):
            self.progress(f"backend {'/'.join(machine.names)}", i, total)
            configure_machine(self.netns, machine)
            start_responder(self.netns, machine, log=self.lab.directory / f"{machine.label}.log")
        self.progress("ready", total, total)

    def _namespaces(self) -> None:
        try:
            self.netns.batch(f"netns add {namespace}" for namespace in self.topology.namespaces)
        except CommandFailed as error:
            raise LabError(
                f"network namespaces cannot be made here: {error.stderr.strip()}; "
                "inside a container it takes `--privileged`"
            ) from None
        for namespace in self.topology.namespaces:
            prepare_namespace(self.netns, namespace)

    def _links(self) -> None:
        switch, links = self.topology.switch_namespace, self.topology.links
        self.netns.batch(map(link_line, links), namespace=switch)
        ends = [end for link in links for end in (link.near, link.far)]
        for namespace in self.topology.namespaces:
            devices = [end.interface for end in ends if end.namespace == namespace]
            self.netns.batch((f"link set dev {device} {self._quiet} up" for device in devices), namespace=namespace)
        for end in ends:
            if end.namespace != switch:
                # Packets that stay inside the machine have no checksum unless the sender must make it (ethtool(8)).
                self.netns.execute(end.namespace, ["ethtool", "-K", end.interface, "tx", "off"])

    @property
    def _quiet(self) -> str:
        # No link-local address, hence no router solicitations among the packets of the lab.
        return "addrgenmode none" if self.host.has_ipv6 else ""

    def _switch(self) -> None:
        switch = self.topology.switch_namespace
        ovs = start_private_ovs(self.lab.ovs.directory, datapath=Datapath.USERSPACE, netns=switch, marks=self.lab.marks)
        for bridge in self.topology.bridges:
            mode = "secure" if bridge.secure else "standalone"
            ports = [word for i, port in enumerate(bridge.ports, start=1) for word in port_words(bridge.name, port, i)]
            settings = [f"datapath_type={Datapath.USERSPACE.value}", f"fail_mode={mode}"]
            ovs.vsctl("add-br", bridge.name, "--", "set", "bridge", bridge.name, *settings, *ports)


def port_words(bridge: str, port: str, ofport: int) -> tuple[str, ...]:
    """Words for ovs-vsctl(8)."""
    return ("--", "add-port", bridge, port, "--", "set", "interface", port, f"ofport_request={ofport}")


def link_line(link: Link) -> str:
    """A veth pair, for ip(8)."""
    # Both ends are made where they belong: none is ever seen in the host's namespace.
    near, far = link.near, link.far
    address = f"address {far.mac}" if far.mac else ""
    return f"link add dev {near.interface} type veth peer name {far.interface} {address} netns {far.namespace}"


# What of a lab is alive.


@dataclass(frozen=True, slots=True)
class MachineStatus:
    """A backend machine. `is_up`: its namespace is there and a process answers in it."""

    label: str
    names: tuple[str, ...]
    namespace: str
    mac: str
    egress: str
    is_up: bool


@dataclass(frozen=True, slots=True)
class LabStatus:
    """A lab. `ovs_pids`: ovs-vswitchd, then ovsdb-server, those that run. `missing`: namespaces that are gone."""

    name: str
    directory: str
    bridge: str
    ports: tuple[str, ...]
    db: str
    ovs_pids: tuple[int, ...]
    missing: tuple[str, ...]
    machines: tuple[MachineStatus, ...]

    @property
    def is_healthy(self) -> bool:
        return len(self.ovs_pids) == 2 and not self.missing and all(machine.is_up for machine in self.machines)


def lab_status(lab: Lab) -> LabStatus:
    """Look at the namespaces and processes of a lab. Raises LabError without root."""
    check_root(probe_host())
    topology = lab.topology
    present = namespaces_of(lab.name)
    ours = set(marked_processes(MARK, str(lab.directory)))
    machines = tuple(
        MachineStatus(
            machine.label,
            machine.names,
            machine.namespace,
            machine.mac,
            machine.egress,
            is_up=machine.namespace in present and not ours.isdisjoint(processes_in(machine.namespace)),
        )
        for machine in topology.machines
    )
    return LabStatus(
        lab.name,
        str(lab.directory),
        topology.bridge,
        topology.bridges[0].ports,
        lab.ovs.db,
        lab.ovs.pids(),
        missing=tuple(namespace for namespace in topology.namespaces if namespace not in present),
        machines=machines,
    )
