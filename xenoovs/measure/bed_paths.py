"""The paths of a bed: from the generator through the bridge to each backend, and back."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from ipaddress import ip_network

from xenoovs.compile.encoding import rewrites
from xenoovs.dataclass import dataclass, replace
from xenoovs.datapath.host import Device
from xenoovs.errors import MeasureError
from xenoovs.measure.bed import Bed, Station
from xenoovs.measure.frames import LoadProfile
from xenoovs.measure.samples import BedKind
from xenoovs.model.address import Family, IPAddress, parse_mac
from xenoovs.model.next_hop import NextHop, with_mac
from xenoovs.openflow.flow import Action, Field, Output, OutputInPort, SetField
from xenoovs.openflow.text import render_actions
from xenoovs.paths.plan import PathKind

MAX_BED_PATHS = 8
"""Of one run: the number of pairs grows with its square."""

_CLIENTS = 256
COOKIE = 0x70617468 << 32
"""ASCII "path". Its owner is foreign to xenoovs, so that an agent leaves the flows alone."""

_NETS = {Family.IPV4: ip_network("203.0.113.0/24"), Family.IPV6: ip_network("2001:db8:7061::/120")}
"""For documentation (RFC 5737, RFC 3849): no machine has an address in them, so nothing answers the load."""


class PathDirection(Enum):
    """Which way packets go on a path: IN from the wire to the backend, OUT from there to the wire."""

    IN = "in"
    OUT = "out"


@dataclass(frozen=True, slots=True)
class BedPath:
    """A path through the bridge of a bed.

    Attributes:
        ingress: Port of the bridge towards the generator.
        kind: Where it goes; None: not known.
        inward: Destination of the frames to the backend.
        outward: Destination of the frames from there.
    """

    name: str
    station: Station
    hop: NextHop
    ingress: str
    kind: PathKind | None
    inward: IPAddress
    outward: IPAddress

    def sender(self, bed: Bed, direction: PathDirection) -> Station:
        return bed.generator if direction is PathDirection.IN else self.station

    def receiver(self, bed: Bed, direction: PathDirection) -> Station:
        return self.station if direction is PathDirection.IN else bed.generator

    def destination(self, direction: PathDirection) -> IPAddress:
        return self.inward if direction is PathDirection.IN else self.outward


def bed_paths(bed: Bed) -> tuple[BedPath, ...]:
    """Return the paths to the service's backends, one for each machine. Raises MeasureError: over MAX_BED_PATHS."""
    stations = dict[str, Station]()
    for backend in bed.service.backends:
        station = bed.backends[backend.name]
        if not any(station.is_at(other) for other in stations.values()):
            stations[backend.name] = station if station.mac else replace(station, mac=_mac_of(station))
    if len(stations) > MAX_BED_PATHS:
        raise MeasureError(
            f"service {bed.service.name} has {len(stations)} backends on machines of their own, and at most "
            f"{MAX_BED_PATHS} paths are measured in a run: name another service with --service"
        )
    ingress, net = bed.balancer.uplinks.ingress[0], _NETS[bed.profile(clients=_CLIENTS, seed=0).family]
    kinds = _kinds(bed)
    found = list[BedPath]()
    for number, (name, station) in enumerate(stations.items()):
        hop = next(backend.next_hop for backend in bed.service.backends if backend.name == name)
        # A MAC that the agent finds by ARP is known here from the interface.
        hop = hop if hop.is_known else with_mac(hop, parse_mac(station.mac))
        kind = kinds.get(hop.ports[0])
        found.append(BedPath(name, station, hop, ingress, kind, net[1 + 2 * number], net[2 + 2 * number]))
    return tuple(found)


def _mac_of(station: Station) -> str:
    return station.run("cat", f"/sys/class/net/{station.interface}/address").stdout.strip()


def _kinds(bed: Bed) -> dict[str, PathKind]:
    """Return where the ports of the bridge lead, as the NIC names them (phys_port_name)."""
    ports = bed.balancer.egress_ports
    if bed.kind is BedKind.LAB:
        return dict.fromkeys(ports, PathKind.SOFTWARE)
    script = 'for port; do echo "$port $(cat "/sys/class/net/$port/phys_port_name" 2>/dev/null)"; done'
    output = bed.dpu.run("sh", "-c", script, "sh", *ports).stdout
    names = dict(line.split(" ", 1) for line in output.splitlines())
    return {
        port: kind
        for port, name in names.items()
        if (kind := kind_of(Device(port, is_up=True, mtu=0, port_name=name or None)))
    }


def kind_of(device: Device) -> PathKind | None:
    """Return where a path to a port leads; None: the port is none of a NIC."""
    if device.is_uplink:
        return PathKind.WIRE
    if device.is_representor:
        return PathKind.SOC if "sf" in str(device.port_name) else PathKind.HOST
    return None


def path_profile(bed: Bed, path: BedPath, direction: PathDirection, *, seed: int) -> LoadProfile:
    """Return the load of a path in a direction. Raises MeasureError when the service serves no UDP."""
    profile = replace(bed.profile(clients=_CLIENTS, seed=seed), vip=path.destination(direction))
    if direction is PathDirection.IN:
        return profile
    # Where frames of the generator come from after the bridge: switches on the way know that MAC at its port.
    back = bed.service.source_mac
    return replace(profile, source_mac=path.station.mac, gateway_mac=bed.generator.mac if back is None else str(back))


# The flows of the paths, beside those of the config.


def path_flows(bed: Bed, paths: Sequence[BedPath]) -> tuple[str, ...]:
    """Return a flow for each direction of each path, as `ovs-ofctl add-flows` reads them."""
    flows = list[str]()
    for path in paths:
        port = path.hop.ports[0]
        inward = (*rewrites(path.hop, bed.service.source_mac), _output(port, in_port=path.ingress))
        outward = (SetField(Field.DL_DST, parse_mac(bed.generator.mac).value), _output(path.ingress, in_port=port))
        flows.append(_flow(path.ingress, path.inward, inward))
        flows.append(_flow(port, path.outward, outward))
    return tuple(flows)


def _output(port: str, *, in_port: str) -> Action:
    # OpenFlow sends a packet back by its ingress port only with output to IN_PORT (OpenFlow 1.4.0, 7.2.1).
    return OutputInPort() if port == in_port else Output(port)


def _flow(in_port: str, address: IPAddress, actions: tuple[Action, ...]) -> str:
    protocol, field = ("udp", "nw_dst") if address.version == 4 else ("udp6", "ipv6_dst")
    match = f"{protocol},in_port={in_port},{field}={address}"
    return f"{match},actions={render_actions(actions)}"
