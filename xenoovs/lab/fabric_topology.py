"""The plan of a fabric lab: hosts with DPUs at two leaves, and a spine for each path. Builds nothing.

    hosta1 -- dpua1 -- leafa ==== spine1..N ==== leafb -- dpub1 -- hostb1        elephant: at both leaves

A Clos fabric with two leaves, as in the evaluations of CONGA (SIGCOMM 2014) and CLOVE (CoNEXT 2017). The hosts send
VXLAN, and the leaves choose a spine by the hash of the outer addresses and ports.
"""

from __future__ import annotations

from collections.abc import Iterator

from xenoovs.dataclass import dataclass, field
from xenoovs.errors import LabError
from xenoovs.lab.topology import HOST_PORT, check_name, lab_namespace, own_macs

BRIDGE = "ovsbr1"
UPLINK = "p0"
PROBE_PORT = "xoar0"
"""The bridge's internal port from which the agent of a DPU sends its probes."""

VNI, VXLAN_PORT = 42, 4789
SOURCE_PORTS = (49152, 49215)
"""Outer source ports of the hosts, first and last (ip-link(8), `srcport`)."""

MAX_PATHS, MAX_SENDERS = 16, 16
_LEAST_RATE_BPS, _LEAST_BUFFER_BYTES = 1_000_000, 3_000


@dataclass(frozen=True, slots=True)
class FabricShape:
    """The size of a fabric. `rate_bps`: rate of each link between leaf and spine, and of each sender's link.
    `buffer_bytes`: queue of a leaf towards each spine."""

    paths: int = 4
    senders: int = 1
    rate_bps: int = 40_000_000
    buffer_bytes: int = 100_000


@dataclass(frozen=True, slots=True)
class FabricPort:
    """A device of a machine. `address`: with its prefix length; empty if the device is a port of a bridge."""

    machine: str
    interface: str
    mac: str
    address: str = ""

    @property
    def ip(self) -> str:
        return self.address.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Cable:
    """A veth pair. `is_path`: whether it joins leaf and spine, with the fabric's rate and queue in both directions."""

    near: FabricPort
    far: FabricPort
    is_path: bool = False


@dataclass(frozen=True, slots=True)
class Site:
    """A host and its DPU. `port`: the host's device, whose address is the tunnel's end. `gateway`: the leaf's device
    towards it. `overlay`: the host's address inside the tunnel, with its prefix length."""

    host: str
    dpu: str
    leaf: str
    port: FabricPort
    gateway: FabricPort
    overlay: str
    overlay_mac: str

    @property
    def overlay_ip(self) -> str:
        return self.overlay.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Fabric:
    """The plan of a fabric lab, of text, numbers and tuples only, as JSON. `sites`: the senders, then the receiver."""

    name: str
    shape: FabricShape
    sites: tuple[Site, ...]
    cables: tuple[Cable, ...] = field(repr=False)

    @property
    def machines(self) -> tuple[str, ...]:
        ends = (end.machine for cable in self.cables for end in (cable.near, cable.far))
        return tuple(dict.fromkeys(ends))

    @property
    def namespaces(self) -> tuple[str, ...]:
        return tuple(map(self.namespace, self.machines))

    @property
    def spines(self) -> tuple[str, ...]:
        return tuple(map(spine, range(1, self.shape.paths + 1)))

    @property
    def senders(self) -> tuple[Site, ...]:
        return tuple(site for site in self.sites if site.leaf == "leafa")

    @property
    def receiver(self) -> Site:
        return self.sites[-1]

    @property
    def bridge(self) -> str:
        """Return the name of every DPU's bridge."""
        return BRIDGE

    def namespace(self, machine: str) -> str:
        return lab_namespace(self.name, machine)

    def ports_of(self, machine: str) -> Iterator[tuple[FabricPort, FabricPort]]:
        """Yield the devices of a machine, each with the device at the other end of its cable."""
        for cable in self.cables:
            for here, there in ((cable.near, cable.far), (cable.far, cable.near)):
                if here.machine == machine:
                    yield here, there


def spine(path: int) -> str:
    """Return the spine of path number `path`, counted from 1."""
    return f"spine{path}"


def site_net(leaf: str) -> str:
    return "10.1.0.0/16" if leaf == "leafa" else "10.2.0.0/16"


def elephant_net(leaf: str, path: int | None = None) -> str:
    """Return the net to which the elephant at `leaf` sends over one path; without `path` that of all paths."""
    second = 8 if leaf == "leafa" else 9
    return f"10.{second}.0.0/16" if path is None else f"10.{second}.{path}.0/24"


def plan_fabric(name: str, shape: FabricShape) -> Fabric:
    """Return the plan of fabric lab `name`. Raises LabError if a number is out of range."""
    check_name(name)
    for what, value, least, most in (
        ("--paths", shape.paths, 2, MAX_PATHS),
        ("--senders", shape.senders, 1, MAX_SENDERS),
    ):
        if not least <= value <= most:
            raise LabError(f"{what} {value} is not from {least} to {most}")
    if shape.rate_bps < _LEAST_RATE_BPS:
        raise LabError(f"--rate of {shape.rate_bps} bit/s is too slow; use 1mbit or more")
    if shape.buffer_bytes < _LEAST_BUFFER_BYTES:
        raise LabError(f"--buffer of {shape.buffer_bytes} bytes does not hold two packets; use 3kb or more")
    macs = map(str, own_macs(set()))
    sites, cables = list[Site](), list[Cable]()
    for leaf, count in (("leafa", shape.senders), ("leafb", 1)):
        for number in range(1, count + 1):
            site, *its_cables = _site(leaf, number, macs)
            sites.append(site)
            cables += its_cables
    for path in range(1, shape.paths + 1):
        for offset, leaf in ((0, "leafa"), (100, "leafb")):
            net = f"10.0.{offset + path}"
            near = FabricPort(leaf, spine(path), next(macs), f"{net}.0/31")
            cables.append(Cable(near, FabricPort(spine(path), leaf, next(macs), f"{net}.1/31"), is_path=True))
    for third, leaf in ((201, "leafa"), (202, "leafb")):
        near = FabricPort("elephant", leaf, next(macs), f"10.0.{third}.1/31")
        cables.append(Cable(near, FabricPort(leaf, "elephant", next(macs), f"10.0.{third}.0/31")))
    return Fabric(name, shape, tuple(sites), tuple(cables))


def _site(leaf: str, number: int, macs: Iterator[str]) -> tuple[Site, Cable, Cable]:
    side = leaf[-1]
    host, dpu = f"host{side}{number}", f"dpu{side}{number}"
    net = f"10.{1 if side == 'a' else 2}.{number}"
    port = FabricPort(host, "eth0", next(macs), f"{net}.2/24")
    gateway = FabricPort(leaf, dpu, next(macs), f"{net}.1/24")
    overlay = f"192.168.233.{number if side == 'a' else 100 + number}/24"
    site = Site(host, dpu, leaf, port, gateway, overlay, next(macs))
    inner = Cable(FabricPort(dpu, HOST_PORT, next(macs)), port)
    return site, inner, Cable(FabricPort(dpu, UPLINK, next(macs)), gateway)
