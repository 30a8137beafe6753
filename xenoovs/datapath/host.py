"""Facts about a host and its datapath: Open vSwitch and its settings, devices, eSwitches, kernel.

A fact that could not be read is `Unknown` with the reason. Nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from xenoovs.datapath.ovn import OvnChassis, OvnUse
from xenoovs.datapath.tc import TcFilter

if TYPE_CHECKING:
    from xenoovs.datapath.tunnel_facts import TunnelFacts

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Unknown:
    """A fact that could not be read. `reason`: a clause such as `ethtool is not installed`."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unresponsive(Unknown):
    """A fact that is unknown because a process does not answer. `fix`: commands that make it answer again."""

    fix: tuple[tuple[str, ...], ...] = ()


NOT_READ = Unknown("not read")

Fact: TypeAlias = T | Unknown
"""A fact, or why it is unknown."""


UNKNOWN_TYPE = ""
"""The type of a port that only OpenFlow describes."""


@dataclass(frozen=True, slots=True)
class PortState:
    """A port of a bridge (ovs-vswitchd.conf.db(5), table Interface).

    Attributes:
        ofport: OpenFlow port number; None while there is none, as for a device that does not exist.
        type: `system` for a device of the kernel, else `internal`, `dummy`, `dpdk`, `vxlan` ...; UNKNOWN_TYPE.
        link_up: None where Open vSwitch does not say.
        error: Why the port does not work.
        iface_id: name of the logical port of OVN or Neutron that it is (external_ids:iface-id); None: of none.
        options: column options; empty where the reader does not ask for it.
        mark: what xenoovs wrote into external_ids:xenoovs when it made the port; None: it did not.
    """

    name: str
    ofport: int | None = None
    type: str = "system"
    link_up: bool | None = None
    mac: str | None = None
    error: str | None = None
    mtu: int | None = None
    iface_id: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, hash=False)
    mark: str | None = None


@dataclass(frozen=True, slots=True)
class Controller:
    """A row of table Controller. `role`: `master`, `slave` or `other`; None: none yet."""

    target: str
    is_connected: bool = False
    role: str | None = None


@dataclass(frozen=True, slots=True)
class Mirror:
    """A row of table Mirror: packets of some ports are copied.

    Attributes:
        output: the port that copies leave by; None: the VLAN `output_vlan`, if any.
        snaplen: copies are shortened to so many bytes; None: they are whole.
    """

    name: str
    output: str | None = None
    output_vlan: int | None = None
    snaplen: int | None = None


@dataclass(frozen=True, slots=True)
class BridgeState:
    """A bridge (ovs-vswitchd.conf.db(5), table Bridge) and what of table Open_vSwitch concerns it.

    Attributes:
        ports: Sorted by name; among them the bridge's own, of the bridge's name.
        hw_offload: other_config:hw-offload; None where it is not set, which means no.
        max_idle_ms: other_config:max-idle; None where it is not set.
        max_revalidator_ms: other_config:max-revalidator; None where it is not set, or the database is not at hand.
        exporters: columns that are set of `sflow`, `ipfix` and `netflow`.
        ovn: what OVN has to do with it; None: nothing, or the database is not at hand.
    """

    name: str
    ports: tuple[PortState, ...] = ()
    datapath_type: str = "system"
    datapath_id: str | None = None
    fail_mode: str = "standalone"
    controllers: tuple[Controller, ...] = ()
    hw_offload: bool | None = None
    max_idle_ms: int | None = None
    max_revalidator_ms: int | None = None
    exporters: tuple[str, ...] = ()
    mirrors: tuple[Mirror, ...] = ()
    ovn: OvnUse | None = None

    def port(self, name: str) -> PortState | None:
        return next((port for port in self.ports if port.name == name), None)

    @property
    def ofports(self) -> dict[str, int]:
        """Port name to OpenFlow port number, for ports that have one."""
        return {port.name: port.ofport for port in self.ports if port.ofport is not None}


@dataclass(frozen=True, slots=True)
class Database:
    """Table Open_vSwitch and the bridges.

    Attributes:
        config: column other_config.
        datapath_types: datapath types that this Open vSwitch supports.
        doca_initialized: only in NVIDIA's fork, else None.
        chassis: ovn-controllers that the database configures.
    """

    config: Mapping[str, str] = field(default_factory=dict, hash=False)
    bridges: tuple[BridgeState, ...] = ()
    datapath_types: tuple[str, ...] = ()
    doca_initialized: bool | None = None
    doca_version: str | None = None
    chassis: tuple[OvnChassis, ...] = ()

    @property
    def has_doca(self) -> bool:
        """Whether this is NVIDIA's fork with OVS-DOCA."""
        return self.doca_initialized is not None or "doca" in self.datapath_types

    def bridge(self, name: str) -> BridgeState | None:
        return next((bridge for bridge in self.bridges if bridge.name == name), None)

    def bridge_of(self, port: str) -> BridgeState | None:
        """The bridge that has `port`."""
        return next((bridge for bridge in self.bridges if bridge.port(port) is not None), None)


@dataclass(frozen=True, slots=True)
class OffloadState:
    """Whether the running ovs-vswitchd offloads, whatever the database says. `evidence`: what shows it."""

    is_on: bool
    evidence: str


@dataclass(frozen=True, slots=True)
class OffloadHistory:
    """What ovs-vswitchd has done about offload since it started, by its log or, since 3.7, by its own answer.

    Attributes:
        has_started: it has turned offload on.
        had_ports_before: it had ports before that, so some megaflows may never have been offered to hardware.
        tc_policy: the tc-policy in use.
        providers: port -> `linux_tc`, `dpdk_flow_api`, `dummy` ... (since 3.7: `tc`, `dpdk`, `dummy`).
        failures: port -> why it has no provider.
        is_complete: the log reaches back to the start of this process.
    """

    has_started: bool = False
    had_ports_before: bool = False
    tc_policy: str | None = None
    providers: Mapping[str, str] = field(default_factory=dict, hash=False)
    failures: Mapping[str, str] = field(default_factory=dict, hash=False)
    is_complete: bool = False


@dataclass(frozen=True, slots=True)
class Daemon:
    """The running ovs-vswitchd.

    Attributes:
        flow_limit: megaflows that it allows now (`upcall/show`).
        version: as `ovs-appctl version` prints it, `3.1.0` or `2.17.8+nvidia`.
    """

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
    """The scalable function behind a representor (devlink-port(8)).

    Attributes:
        handle: `pci/0000:03:00.0/229408`.
        state: `active` or `inactive`.
        opstate: `attached` or `detached`.
    """

    handle: str
    state: str
    opstate: str


@dataclass(frozen=True, slots=True)
class TcRules:
    """Number of tc rules at the ingress of a device.

    Attributes:
        stale: rules of Open vSwitch without a megaflow.
        foreign: rules of other programs.
        filters: all rules, if some are of other programs.
    """

    total: int
    stale: int = 0
    foreign: int = 0
    filters: tuple[TcFilter, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Device:
    """A network device of the kernel.

    Attributes:
        pci: its PCI device, `0000:03:00.0`; None: none.
        switch_id: its eSwitch (phys_switch_id); None: none.
        port_name: `p0` for the first uplink, `pf0`, `pf0vf0`, `pf0sf0` for representors (phys_port_name).
        master: its bond or bridge.
        ingress: whether it has the qdisc to which OVS attaches rules.
        rules: the rules at that qdisc.
        subfunction: the scalable function behind the representor.
    """

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
    """The eSwitch of a NIC function (devlink-dev(8)).

    Attributes:
        mode: `switchdev` or `legacy`.
        steering: `dmfs`, `smfs` or `hmfs`.
        multiport: whether all uplinks of the NIC are on one eSwitch (mlx5 parameter esw_multiport).
    """

    pci: str
    mode: Fact[str]
    steering: Fact[str]
    multiport: Fact[bool]


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """Facts about the kernel.

    Attributes:
        modules: name -> whether it is present (loaded, built in, or loaded on demand).
        hugepages_bytes: reserved huge pages of all sizes.
        has_tc_chains: whether it is built with CONFIG_NET_TC_SKB_EXT, without which Open vSwitch offloads no megaflow
            that recirculates packets (dpif_netlink_set_features() and netdev_tc_flow_put() of Open vSwitch).
    """

    release: str
    modules: Fact[Mapping[str, bool]]
    hugepages_bytes: Fact[int]
    has_tc_chains: Fact[bool] = NOT_READ


@dataclass(frozen=True, slots=True)
class Neighbour:
    """An entry of the neighbour table (ip-neighbour(8)) that has a link-layer address."""

    address: str
    mac: str
    device: str


@dataclass(frozen=True, slots=True)
class BackendFacts:
    """Facts about a backend host.

    Attributes:
        macs: MACs of its devices.
        loopback: addresses on `lo`.
        sysctls: effective `arp_ignore`, `arp_announce` and `rp_filter`: the larger one of `all` and the device
            (kernel documentation, networking/ip-sysctl.rst).
    """

    macs: tuple[str, ...]
    loopback: tuple[str, ...]
    sysctls: Mapping[str, int] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Bgp:
    """The bgpd of this host.

    Attributes:
        established: Neighbours with a session.
        others: Neighbours without one.
        refused: VIPs that its configuration would not announce: it has neither `redistribute kernel` for their family
            nor a `network` statement for them.
    """

    established: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HostFacts:
    """All facts about a host.

    Attributes:
        is_local: Open vSwitch runs on this host, so its process and devices are visible.
        database: Unknown if no ovsdb-server answers.
        devices: existing devices by name.
        learned: bridge -> MAC -> port, from MAC learning.
        leftovers: changes that killed runs of xenoovs left behind.
        bgp: None: the config announces no VIP.
        tunnels: None: Open vSwitch has no tunnels, or they were not read.
    """

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
        """Return the eSwitch of a PCI device."""
        return next((eswitch for eswitch in self.eswitches if eswitch.pci == pci), None)


class CpuCounter(Enum):
    """What a counter of a port counts. ALL: perhaps also what the NIC forwards itself; the driver decides."""

    CPU = "cpu"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class PortPackets:
    """Packets that a port received for the CPU. `source`: the command or file that shows them."""

    packets: int
    counter: CpuCounter
    source: str
