"""What a lab for a balancer consists of: namespaces, links, bridges, clients, machines. Pure: builds nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from xenoovs.errors import LabError
from xenoovs.lab.addresses import client_net, own_macs
from xenoovs.lab.machines import Machine, machines_of
from xenoovs.lab.names import (
    MAX_INTERFACE_LENGTH,
    RESERVED_PREFIX,
    check_name,
    clients_namespace,
    switch_namespace,
)
from xenoovs.lab.wiring import Link, Site, machine_links, port_links, ports_of, return_links
from xenoovs.model.address import Family, IPAddress, family_of
from xenoovs.model.balancer import Balancer, OtherTraffic
from xenoovs.model.next_hop import mac_of

HOST_PORT = "pf0hpf"
"""The port to the host on a DPU (BlueField names it so); on the bridge even when the config does not name it."""


@dataclass(frozen=True, slots=True)
class Bridge:
    """A bridge of the private OVS. `secure`: forwards nothing without flows; else it is a learning switch."""

    name: str
    ports: tuple[str, ...]
    secure: bool


@dataclass(frozen=True, slots=True)
class Clients:
    """Where clients send from, by `interface`. `nets`: every address in them is local there.

    gateway_mac: neighbour for all destinations but `arp_vips`, found by ARP, and `fixed_vips`, pairs of VIP and MAC.
    """

    namespace: str
    interface: str
    nets: tuple[str, ...]
    gateway_mac: str
    arp_vips: tuple[str, ...]
    fixed_vips: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Topology:
    """A whole lab. Plain text and tuples only, so that it can be written down and read back."""

    name: str
    namespaces: tuple[str, ...]
    bridges: tuple[Bridge, ...]
    links: tuple[Link, ...]
    clients: Clients
    machines: tuple[Machine, ...]

    @property
    def switch_namespace(self) -> str:
        return switch_namespace(self.name)

    @property
    def bridge(self) -> str:
        """The bridge of the config."""
        return self.bridges[0].name


def families_of(balancer: Balancer) -> tuple[Family, ...]:
    """The IP versions that some service takes, IPv4 first."""
    return tuple(family for family in Family if any(family in service.claim.families for service in balancer.services))


def vips_of(balancer: Balancer) -> frozenset[IPAddress]:
    return frozenset(vip for service in balancer.services for vip in service.claim.vips)


def plan_topology(name: str, balancer: Balancer) -> Topology:
    """The lab `name` for a balancer. Raises LabError when a name does not fit or there are too many backends."""
    check_name(name)
    uplinks = balancer.uplinks
    ports = tuple(dict.fromkeys((*balancer.ports, HOST_PORT)))
    _check_devices((uplinks.bridge, *ports))
    fabrics = {port: f"{RESERVED_PREFIX}fabric{i}" for i, port in enumerate(balancer.egress_ports, start=1)}
    site = Site(switch_namespace(name), clients_namespace(name), uplinks.bridge, fabrics)

    macs = _own_macs(balancer, count=1 + len(uplinks.ingress) + len(fabrics))
    gateway_mac = macs.pop(0)
    ingress_macs = {port: macs.pop(0) for port in uplinks.ingress}
    direct = uplinks.other_traffic in (OtherTraffic.DROP, OtherTraffic.LEAVE)
    return_macs = {port: macs.pop(0) if direct else ingress_macs[uplinks.ingress[0]] for port in fabrics}

    machines = machines_of(name, balancer, gateway_macs=return_macs)
    links = [*port_links(site, ports, ingress_macs=ingress_macs), *machine_links(site, machines)]
    if direct:
        links += return_links(site, macs=return_macs)
    interface = next(link.far.interface for link in links if link.far.namespace == site.clients)
    return Topology(
        name,
        namespaces=(site.switch, site.clients, *(machine.namespace for machine in machines)),
        bridges=(
            Bridge(uplinks.bridge, ports, secure=True),
            *(Bridge(fabric, ports_of(fabric, links), secure=False) for fabric in fabrics.values()),
        ),
        links=tuple(links),
        clients=_clients(balancer, namespace=site.clients, interface=interface, gateway_mac=gateway_mac),
        machines=machines,
    )


def _clients(balancer: Balancer, *, namespace: str, interface: str, gateway_mac: str) -> Clients:
    vip_macs = {vip: service.vip_mac for service in balancer.services if service.vip_mac for vip in service.claim.vips}
    vips = vips_of(balancer)
    return Clients(
        namespace,
        interface,
        nets=tuple(str(client_net(family, vips)) for family in families_of(balancer)),
        gateway_mac=gateway_mac,
        # Neighbour discovery has no answer from flows: OVS cannot turn a solicitation into an advertisement.
        arp_vips=tuple(str(vip) for vip in vip_macs if family_of(vip) is Family.IPV4),
        fixed_vips=tuple((str(vip), str(mac)) for vip, mac in vip_macs.items() if family_of(vip) is Family.IPV6),
    )


def _own_macs(balancer: Balancer, *, count: int) -> list[str]:
    taken = {mac_of(backend.next_hop) for service in balancer.services for backend in service.backends}
    taken |= {mac for service in balancer.services for mac in (service.vip_mac, service.source_mac) if mac is not None}
    return [str(mac) for mac in islice(own_macs(taken), count)]


def _check_devices(names: Iterable[str]) -> None:
    for name in names:
        if len(name) > MAX_INTERFACE_LENGTH or not name or "/" in name or name.split() != [name] or name == "lo":
            raise LabError(
                f"{name!r} cannot be the name of a device in the lab: 1 to {MAX_INTERFACE_LENGTH} characters, "
                "no blank, no `/`, not `lo`; rename it in `switch`"
            )
        if name.startswith(RESERVED_PREFIX) or name == "ovs-netdev":
            raise LabError(f"{name!r} is a name that the lab uses itself; rename it in `switch`")
