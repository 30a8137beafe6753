"""Builds a fabric lab. `lifecycle.down` removes it, like any lab."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from xenoovs.lab.fabric_topology import (
    BRIDGE,
    PROBE_PORT,
    SOURCE_PORTS,
    UPLINK,
    VNI,
    VXLAN_PORT,
    Cable,
    Fabric,
    FabricPort,
    FabricShape,
    Site,
    elephant_net,
    plan_fabric,
    site_net,
)
from xenoovs.lab.host import LabNetns, Progress, check_host, no_progress
from xenoovs.lab.lab import FabricLab
from xenoovs.lab.lifecycle import add_namespaces, isolate, new_lab, take_steps
from xenoovs.lab.private_ovs import LAB_MAX_IDLE, Datapath, start_private_ovs
from xenoovs.lab.topology import HOST_PORT

TUNNEL = "vxlan0"
"""The tunnel device in each host."""

_MTU, _OVERHEAD_BYTES = 1500, 50
"""The overhead: IPv4, UDP, VXLAN and the inner Ethernet header (RFC 7348, section 5)."""

_ACCESS_BUFFER_BYTES = 4_000_000
"""The queue of a sender's own link, long enough to slow the sender down before it loses packets."""

_BURST_S, _LEAST_BURST_BYTES = 0.002, 3_100
"""The burst of tc-tbf(8), which makes up for late timers; at least two frames."""

_OFFLOADS = ("rx", "tx", "sg", "tso", "gso", "gro")

_ROUTER = {
    "ipv4/conf/all/forwarding": 1,
    "ipv4/conf/default/forwarding": 1,
    # Layer 4 hash: a path for each outer source port (ip-sysctl.rst of the kernel).
    "ipv4/fib_multipath_hash_policy": 1,
    # A router of a real fabric answers traceroute from hardware; with a limit, discovery would measure the limit.
    "ipv4/icmp_ratelimit": 0,
    "ipv4/icmp_ratemask": 0,
    # As switches do it. By default Linux answers from the port that its own hash chooses, so that one leaf looks like
    # several routers (ip-sysctl.rst of the kernel).
    "ipv4/icmp_errors_use_inbound_ifaddr": 1,
}
_KEEP_NO_METRICS = "ipv4/tcp_no_metrics_save"
"""Keeps a connection from starting with metrics that an earlier one measured on another path (ip-sysctl.rst)."""


def up(name: str, shape: FabricShape, *, directory: Path | None = None, progress: Progress = no_progress) -> FabricLab:
    """Build fabric lab `name`; its bridges have no flows yet. Raises what `lifecycle.up` raises; errors undo all."""
    fabric = plan_fabric(name, shape)
    check_host(needs_ipv6=False)
    with new_lab(fabric, directory=directory) as place:
        lab = FabricLab(place, fabric)
        FabricBuilder(lab, progress).build()
    return lab


class FabricBuilder:
    """Builds a fabric from veth pairs, Linux routers, and an Open vSwitch in user space for each DPU."""

    def __init__(self, lab: FabricLab, progress: Progress) -> None:
        self.lab, self.fabric, self.progress = lab, lab.fabric, progress
        self.netns = LabNetns(lab.marks)

    def build(self) -> None:
        steps = [
            ("namespaces", self._add_namespaces),
            ("links", self._add_links),
            ("routers", self._configure_routers),
            ("hosts", self._configure_hosts),
            ("queues", self._limit_rates),
            ("Open vSwitch", self._start_switches),
        ]
        take_steps(steps, self.progress)

    def _add_namespaces(self) -> None:
        add_namespaces(self.netns, self.fabric.namespaces)
        isolate(self.netns, self.fabric.namespaces)

    def _add_links(self) -> None:
        for machine in self.fabric.machines:
            cables = (cable for cable in self.fabric.cables if cable.near.machine == machine)
            self.netns.batch(map(self._cable_line, cables), namespace=self.fabric.namespace(machine))
        for machine in self.fabric.machines:
            self.netns.batch(self._device_lines(machine), namespace=self.fabric.namespace(machine))
            for here, _ in self.fabric.ports_of(machine):
                self._without_offloads(machine, here.interface)

    def _cable_line(self, cable: Cable) -> str:
        far = f"{cable.far.interface} netns {self.fabric.namespace(cable.far.machine)}"
        return f"link add dev {cable.near.interface} type veth peer name {far}"

    def _device_lines(self, machine: str) -> Iterator[str]:
        """Yield the commands for a machine's devices. Neighbour entries are permanent, so no ARP can be lost."""
        for here, _ in self.fabric.ports_of(machine):
            yield f"link set dev {here.interface} address {here.mac} mtu {_MTU} addrgenmode none up"
            if here.address:
                yield f"addr add {here.address} dev {here.interface}"
        for here, there in _neighbours(self.fabric, machine):
            yield f"neigh replace {there.ip} lladdr {there.mac} dev {here.interface} nud permanent"

    def _without_offloads(self, machine: str, device: str) -> None:
        """Disable segmentation offloads, so that every packet is one frame in queues and in Open vSwitch."""
        options = [word for offload in _OFFLOADS for word in (offload, "off")]
        self.netns.execute(self.fabric.namespace(machine), ["ethtool", "-K", device, *options])

    def _configure_routers(self) -> None:
        for machine in ("leafa", "leafb", *self.fabric.spines):
            for path, value in _ROUTER.items():
                self.netns.write_sysctls(self.fabric.namespace(machine), [path], value=value)
        for leaf, other in (("leafa", "leafb"), ("leafb", "leafa")):
            self.netns.batch(_leaf_routes(self.fabric, leaf, other), namespace=self.fabric.namespace(leaf))
        for spine in self.fabric.spines:
            self.netns.batch(_spine_routes(self.fabric, spine), namespace=self.fabric.namespace(spine))
        lines = [
            f"route add {elephant_net(leaf)} via {there.ip} dev {leaf}"
            for leaf in ("leafa", "leafb")
            for here, there in self.fabric.ports_of("elephant")
            if here.interface == leaf
        ]
        self.netns.batch(lines, namespace=self.fabric.namespace("elephant"))

    def _configure_hosts(self) -> None:
        for site in self.fabric.sites:
            there = self.fabric.namespace(site.host)
            self.netns.write_sysctls(there, [_KEEP_NO_METRICS], value=1)
            self.netns.batch(_host_lines(site, peers_of(self.fabric, site)), namespace=there)
            for peer in peers_of(self.fabric, site):
                fdb = ["bridge", "fdb", "replace", peer.overlay_mac, "dev", TUNNEL, "dst", peer.port.ip]
                self.netns.execute(there, fdb)
            self._without_offloads(site.host, TUNNEL)

    def _limit_rates(self) -> None:
        shape, limits = self.fabric.shape, defaultdict[str, list[str]](list)
        for cable in self.fabric.cables:
            if cable.is_path:
                limits[cable.near.machine].append(_queue_line(cable.near, shape.rate_bps, shape.buffer_bytes))
        for site in self.fabric.senders:
            limits[site.host].append(_queue_line(site.port, shape.rate_bps, _ACCESS_BUFFER_BYTES))
        for machine, lines in limits.items():
            text = "".join(f"{line}\n" for line in lines)
            self.netns.execute(self.fabric.namespace(machine), ["tc", "-batch", "-"], stdin=text)

    def _start_switches(self) -> None:
        for site in self.fabric.sites:
            there, directory = self.fabric.namespace(site.dpu), self.lab.ovs(site.dpu).directory
            ovs = start_private_ovs(
                directory, datapath=Datapath.USERSPACE, netns=there, marks=self.lab.marks, settings=[LAB_MAX_IDLE]
            )
            ovs.add_bridge(BRIDGE, (UPLINK, HOST_PORT), datapath=Datapath.USERSPACE)
            port = ["--", "set", "interface", PROBE_PORT, "type=internal", "ofport_request=3"]
            ovs.vsctl("add-port", BRIDGE, PROBE_PORT, *port)
            self.netns.batch([f"link set dev {PROBE_PORT} addrgenmode none up"], namespace=there)
            self._without_offloads(site.dpu, PROBE_PORT)
            self.lab.config(site.dpu).write_text(render_dpu_config(self.fabric, site))


def peers_of(fabric: Fabric, site: Site) -> tuple[Site, ...]:
    """Return the sites at the other leaf."""
    return tuple(other for other in fabric.sites if other.leaf != site.leaf)


def _neighbours(fabric: Fabric, machine: str) -> Iterator[tuple[FabricPort, FabricPort]]:
    """Yield the devices of a machine that have an address, each with the nearest device behind it that has one."""
    for here, there in fabric.ports_of(machine):
        if here.address and there.address:
            yield here, there
    for site in fabric.sites:
        # The bridge of the DPU is between them.
        if machine == site.host:
            yield site.port, site.gateway
        elif machine == site.leaf:
            yield site.gateway, site.port


def _leaf_routes(fabric: Fabric, leaf: str, other: str) -> Iterable[str]:
    ups = [(here, there) for here, there in fabric.ports_of(leaf) if there.machine in fabric.spines]
    hops = " ".join(f"nexthop via {there.ip} dev {here.interface}" for here, there in ups)
    yield f"route add {site_net(other)} {hops}"
    for path, (here, there) in enumerate(ups, start=1):
        yield f"route add {elephant_net(leaf, path)} via {there.ip} dev {here.interface}"
    # No ICMP error and no receiver that would take processor time.
    yield f"route add blackhole {elephant_net(other)}"


def _spine_routes(fabric: Fabric, spine: str) -> Iterable[str]:
    for here, leaf in fabric.ports_of(spine):
        other = "leafb" if leaf.machine == "leafa" else "leafa"
        for net in (site_net(leaf.machine), elephant_net(other)):
            yield f"route add {net} via {leaf.ip} dev {here.interface}"


def _host_lines(site: Site, peers: Iterable[Site]) -> Iterator[str]:
    first, last = SOURCE_PORTS
    yield f"route add default via {site.gateway.ip} dev {site.port.interface}"
    # The last port is not used: `srcport` is a half-open range (udp_flow_src_port of the kernel).
    yield (
        f"link add {TUNNEL} address {site.overlay_mac} mtu {_MTU - _OVERHEAD_BYTES} type vxlan id {VNI} "
        f"dstport {VXLAN_PORT} local {site.port.ip} srcport {first} {last + 1} nolearning dev {site.port.interface}"
    )
    yield f"link set dev {TUNNEL} addrgenmode none up"
    yield f"addr add {site.overlay} dev {TUNNEL}"
    for peer in peers:
        yield f"neigh replace {peer.overlay_ip} lladdr {peer.overlay_mac} dev {TUNNEL} nud permanent"


def _queue_line(port: FabricPort, rate_bps: int, limit_bytes: int) -> str:
    burst = max(_LEAST_BURST_BYTES, int(rate_bps / 8 * _BURST_S))
    return f"qdisc replace dev {port.interface} root tbf rate {rate_bps}bit burst {burst} limit {limit_bytes}"


def render_dpu_config(fabric: Fabric, site: Site) -> str:
    (first, last), shape = SOURCE_PORTS, fabric.shape
    full_us = shape.buffer_bytes * 8 * 1_000_000 // shape.rate_bps
    remotes = "\n".join(f"      - {{name: {far.host}, address: {far.port.ip}}}" for far in peers_of(fabric, site))
    return f"""\
# {site.dpu}: the tunnels of {site.host} choose their paths through the fabric.
version: 1
switch: {{bridge: {BRIDGE}, ingress: [{UPLINK}], egress: {HOST_PORT}}}
services: []
tunnels:
  - name: fabric
    type: vxlan
    local: {site.port.ip}
    host_port: {HOST_PORT}
    source_ports: {first}-{last}
    remotes:
{remotes}
    paths: {{by: source_port, count: {shape.paths}, discover: ttl}}
    probe: {{port: {PROBE_PORT}, gateway: "{site.gateway.mac}"}}
    margin: {full_us // 4}us             # a quarter of a full queue
    reflect: l3
"""
