"""Facts of a host: Open vSwitch as it runs and as it is set, devices, eSwitches, kernel."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING

from xenoovs.dataclass import dataclass, field
from xenoovs.datapath.fact import NOT_READ, Fact

if TYPE_CHECKING:
    from xenoovs.datapath.database import Database
    from xenoovs.datapath.tc import TcFilter
    from xenoovs.datapath.tunnel_facts import Neighbour, TunnelFacts


@dataclass(frozen=True, slots=True)
class OffloadState:
    """Whether the running ovs-vswitchd offloads, whatever is set in the database. `evidence`: what shows it."""

    is_on: bool
    evidence: str


@dataclass(frozen=True, slots=True)
class OffloadHistory:
    """What ovs-vswitchd has done about offload since it started, by its log or, since 3.7, by its own answer.
    `had_ports_before`: before it turned offload on, so some megaflows may never have been offered to hardware.
    `providers`: port -> `linux_tc`, `dpdk_flow_api`, `dummy` ... (since 3.7: `tc`, `dpdk`, `dummy`). `failures`: port
    -> why it has no provider. `is_complete`: the log reaches back to the start of this process."""

    has_started: bool = False
    had_ports_before: bool = False
    tc_policy: str | None = None
    providers: Mapping[str, str] = field(default_factory=dict, hash=False)
    failures: Mapping[str, str] = field(default_factory=dict, hash=False)
    is_complete: bool = False


@dataclass(frozen=True, slots=True)
class Daemon:
    """The running ovs-vswitchd. `flow_limit`: megaflows that it allows now (`upcall/show`). `version`: as `ovs-appctl
    version` prints it, `3.1.0` or `2.17.8+nvidia`."""

    offload: Fact[OffloadState]
    history: Fact[OffloadHistory]
    flow_limit: Fact[int]
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature of a device (ethtool(8), -k). `is_fixed`: it cannot be changed."""

    is_on: bool
    is_fixed: bool = False


@dataclass(frozen=True, slots=True)
class Subfunction:
    """The scalable function behind a representor (devlink-port(8)). `handle`: `pci/0000:03:00.0/229408`. `state`:
    `active` or `inactive`. `opstate`: `attached` or `detached`."""

    handle: str
    state: str
    opstate: str


@dataclass(frozen=True, slots=True)
class TcRules:
    """Number of tc rules at the ingress of a device. `stale`: rules of Open vSwitch without a megaflow. `filters`: all
    rules, if some are of other programs."""

    total: int
    stale: int = 0
    foreign: int = 0
    filters: tuple[TcFilter, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Device:
    """A network device of the kernel. `pci`: `0000:03:00.0`. `switch_id`: its eSwitch (phys_switch_id). `port_name`:
    `p0` for the first uplink, `pf0`, `pf0vf0`, `pf0sf0` for representors (phys_port_name). `master`: its bond or
    bridge. `ingress`: whether it has the qdisc to which OVS attaches rules."""

    name: str
    is_up: bool
    mtu: int
    pci: str | None = None
    switch_id: str | None = None
    port_name: str | None = None
    master: str | None = None
    hw_tc_offload: Fact[Feature] = NOT_READ
    ingress: Fact[bool] = NOT_READ
    rules: Fact[TcRules] = NOT_READ
    subfunction: Subfunction | None = None

    @property
    def is_uplink(self) -> bool:
        """Whether it is an uplink of the NIC: p0, p1 (kernel documentation, networking/switchdev.rst)."""
        return self.port_name is not None and self.port_name[:1] == "p" and self.port_name[1:].isdigit()

    @property
    def is_representor(self) -> bool:
        """Whether it represents a function: pf0, pf0vf1, pf0sf88, with c1 in front on a DPU."""
        return self.port_name is not None and not self.is_uplink


@dataclass(frozen=True, slots=True)
class Eswitch:
    """The eSwitch of a NIC function (devlink-dev(8)). `mode`: `switchdev` or `legacy`. `steering`: `dmfs`, `smfs` or
    `hmfs`. `multiport`: whether all uplinks of the NIC are on one eSwitch (mlx5 parameter esw_multiport). `device_id`:
    of PCI, `0xa2dc` for BlueField-3; None if unknown."""

    pci: str
    mode: Fact[str]
    steering: Fact[str]
    multiport: Fact[bool]
    device_id: str | None = None


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """Facts about the kernel. `modules`: name -> whether it is present (loaded, built in, or loaded on demand).
    `hugepages_bytes`: reserved huge pages of all sizes. `has_tc_chains`: whether it is built with
    CONFIG_NET_TC_SKB_EXT, without which Open vSwitch offloads no megaflow that recirculates packets
    (dpif_netlink_set_features() and netdev_tc_flow_put() of Open vSwitch)."""

    release: str
    modules: Fact[Mapping[str, bool]]
    hugepages_bytes: Fact[int]
    has_tc_chains: Fact[bool] = NOT_READ


@dataclass(frozen=True, slots=True)
class BackendFacts:
    """Facts about a backend host. `loopback`: addresses on `lo`. `sysctls`: effective `arp_ignore`, `arp_announce` and
    `rp_filter`: the larger one of `all` and the device (kernel documentation, networking/ip-sysctl.rst)."""

    macs: tuple[str, ...]
    loopback: tuple[str, ...]
    sysctls: Mapping[str, int] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Bgp:
    """The bgpd of this host. `refused`: VIPs that its configuration would not announce: it has neither `redistribute
    kernel` for their family nor a `network` statement for them."""

    established: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HostFacts:
    """All facts about a host. `is_local`: Open vSwitch runs on this host, so its process and devices are visible.
    `learned`: bridge -> MAC -> port, from MAC learning. `leftovers`: changes that killed runs of xenoovs left behind.
    `bgp`: None: the config announces no VIP. `tunnels`: None: Open vSwitch has no tunnels, or they were not read."""

    is_local: bool
    database: Fact[Database]
    daemon: Fact[Daemon]
    devices: Fact[Mapping[str, Device]]
    eswitches: tuple[Eswitch, ...] = ()
    kernel: Fact[KernelFacts] = NOT_READ
    neighbours: Fact[tuple[Neighbour, ...]] = NOT_READ
    learned: Mapping[str, Mapping[str, str]] = field(default_factory=dict, hash=False)
    leftovers: tuple[str, ...] = ()
    bgp: Fact[Bgp] | None = None
    tunnels: TunnelFacts | None = None

    def eswitch(self, pci: str | None) -> Eswitch | None:
        return next((eswitch for eswitch in self.eswitches if eswitch.pci == pci), None)


class CpuCounter(Enum):
    """What a counter of a port counts. ALL: perhaps also what the NIC forwards itself; the driver decides."""

    CPU = "cpu"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class PortPackets:
    """Packets that a port received for the CPU. `source`: the command or file that shows them. `entered`: all packets
    that entered the port, also those of the NIC alone; None: the driver does not count them."""

    packets: int
    counter: CpuCounter
    source: str
    entered: int | None = None
