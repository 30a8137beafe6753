"""Building a lab: one after the other what `topology` says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from xenoovs.errors import CommandFailed, LabError
from xenoovs.lab.configure import configure_clients, configure_machine, prepare_namespace, start_responder
from xenoovs.lab.down import remove
from xenoovs.lab.lab import Lab, State, directory_of, sole_owner, write_state
from xenoovs.lab.netns import Netns, namespaces_of
from xenoovs.lab.preflight import Host, check_host, probe_host
from xenoovs.lab.private_ovs import Datapath, start_private_ovs
from xenoovs.lab.progress import Progress, silent
from xenoovs.lab.topology import Topology, families_of, plan_topology
from xenoovs.lab.wiring import Link
from xenoovs.model.address import Family
from xenoovs.model.balancer import Balancer


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
