"""What a host says of its datapath: Open vSwitch and its settings, devices, NIC switches, kernel. Values only.

Whatever could not be read is `Unknown` with the reason: nothing is guessed, and a missing program hides nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Unknown:
    """A fact that could not be read. `reason`: half a sentence, as `ethtool is not installed`."""

    reason: str


@dataclass(frozen=True, slots=True)
class Silent(Unknown):
    """Nothing is known as a process takes questions and answers none. `mend`: commands that make it answer again."""

    process: str
    mend: tuple[tuple[str, ...], ...] = ()


NOT_ASKED = Unknown("not asked")

Seen: TypeAlias = T | Unknown
"""A fact, or why it is not known."""


@dataclass(frozen=True, slots=True)
class Interface:
    """A row of table Interface (ovs-vswitchd.conf.db(5)). `ofport` None: the port does not work, see `error`."""

    name: str
    type: str = "system"
    ofport: int | None = None
    error: str | None = None
    link_up: bool | None = None
    mtu: int | None = None


@dataclass(frozen=True, slots=True)
class Controller:
    """A row of table Controller. `role`: `master`, `slave` or `other`; None: it has none yet."""

    target: str
    is_connected: bool = False
    role: str | None = None


@dataclass(frozen=True, slots=True)
class Bridge:
    """A row of table Bridge with its interfaces and controllers."""

    name: str
    datapath_type: str = "system"
    fail_mode: str = "standalone"
    controllers: tuple[Controller, ...] = ()
    interfaces: tuple[Interface, ...] = ()

    def interface(self, name: str) -> Interface | None:
        return next((interface for interface in self.interfaces if interface.name == name), None)


@dataclass(frozen=True, slots=True)
class Database:
    """Table Open_vSwitch and what hangs on it.

    config:           column other_config; keys as they are written there.
    doca_initialized: only in NVIDIA's fork, else None; so `doca_version`.
    """

    config: Mapping[str, str] = field(default_factory=dict, hash=False)
    bridges: tuple[Bridge, ...] = ()
    datapath_types: tuple[str, ...] = ()
    doca_initialized: bool | None = None
    doca_version: str | None = None

    @property
    def has_doca(self) -> bool:
        """Whether this is NVIDIA's fork with OVS-DOCA."""
        return self.doca_initialized is not None or "doca" in self.datapath_types

    def bridge(self, name: str) -> Bridge | None:
        return next((bridge for bridge in self.bridges if bridge.name == name), None)

    def home_of(self, port: str) -> Bridge | None:
        """The bridge that has `port`."""
        return next((bridge for bridge in self.bridges if bridge.interface(port) is not None), None)


@dataclass(frozen=True, slots=True)
class OffloadState:
    """Whether the ovs-vswitchd that runs offloads, whatever the database asks for. `evidence`: how it was told."""

    is_on: bool
    evidence: str


@dataclass(frozen=True, slots=True)
class OffloadHistory:
    """What ovs-vswitchd has done about offload since it started, by its log or, as of 3.7, by asking it.

    has_begun: it has put offload to work. tc_policy: the one that it put to work.
    is_late:   it had ports before, so that there may be megaflows that it never offered to hardware.
    providers: port -> `linux_tc`, `dpdk_flow_api`, `dummy` ... (as of 3.7: `tc`, `dpdk`, `dummy`).
    failures:  port -> why it got no provider.
    is_whole:  the log reaches back to the start of this process, so that what is missing did not happen.
    """

    has_begun: bool = False
    is_late: bool = False
    tc_policy: str | None = None
    providers: Mapping[str, str] = field(default_factory=dict, hash=False)
    failures: Mapping[str, str] = field(default_factory=dict, hash=False)
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class Daemon:
    """The ovs-vswitchd that runs. `flow_limit`: megaflows that it allows now (`upcall/show`).

    version: as `ovs-appctl version` prints it, `3.1.0` or `2.17.8+nvidia`.
    """

    offload: Seen[OffloadState]
    history: Seen[OffloadHistory]
    flow_limit: Seen[int]
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature of a device (ethtool(8), -k). `is_fixed`: the device does not let it be changed."""

    is_on: bool
    is_fixed: bool = False


@dataclass(frozen=True, slots=True)
class Subfunction:
    """What a representor stands for (devlink-port(8)).

    handle: `pci/0000:03:00.0/229408`; state: `active`, `inactive`; opstate: `attached`, `detached`.
    """

    handle: str
    state: str
    opstate: str


@dataclass(frozen=True, slots=True)
class TcRules:
    """Rules at the ingress of a device. stale: Open vSwitch's, without a megaflow. foreign: those of other programs."""

    total: int
    stale: int = 0
    foreign: int = 0


@dataclass(frozen=True, slots=True)
class Device:
    """A network device of the kernel.

    pci:         the PCI device behind it, `0000:03:00.0`; None: no PCI device.
    switch_id:   the eSwitch that it is a port of (phys_switch_id); None: of none. port_name: `p0` for the first uplink,
                 `pf0`, `pf0vf0`, `pf0sf0` for representors (phys_port_name).
    master:      bond or bridge that it belongs to.
    ingress:     whether it has the qdisc that OVS hangs its rules on; `rules`: those that hang there.
    subfunction: behind the representor of a scalable function.
    """

    name: str
    is_up: bool
    mtu: int
    pci: str | None = None
    switch_id: str | None = None
    port_name: str | None = None
    master: str | None = None
    hw_tc_offload: Seen[Feature] = NOT_ASKED
    ingress: Seen[bool] = NOT_ASKED
    rules: Seen[TcRules] = NOT_ASKED
    subfunction: Subfunction | None = None

    @property
    def is_uplink(self) -> bool:
        """A wire of the NIC, not a representor: p0, p1 (kernel documentation, networking/switchdev.rst)."""
        return self.port_name is not None and self.port_name[:1] == "p" and self.port_name[1:].isdigit()

    @property
    def is_representor(self) -> bool:
        """The near end of a function's port: pf0, pf0vf1, pf0sf88, with c1 in front on a DPU."""
        return self.port_name is not None and not self.is_uplink


@dataclass(frozen=True, slots=True)
class Eswitch:
    """The switch of a NIC function (devlink-dev(8)). mode: `switchdev` or `legacy`; steering: `dmfs`, `smfs`, `hmfs`.

    multiport: whether all uplinks of the NIC are on one switch (mlx5 parameter esw_multiport).
    """

    pci: str
    mode: Seen[str]
    steering: Seen[str]
    multiport: Seen[bool]


@dataclass(frozen=True, slots=True)
class Kernel:
    """modules: name -> present (loaded, built in, or loaded on demand). hugepages_bytes: reserved in all sizes."""

    release: str
    modules: Seen[Mapping[str, bool]]
    hugepages_bytes: Seen[int]


@dataclass(frozen=True, slots=True)
class Neighbour:
    """An entry of the neighbour table (ip-neighbour(8)) that has a link-layer address."""

    address: str
    mac: str
    device: str


@dataclass(frozen=True, slots=True)
class BackendFacts:
    """What a backend says of itself.

    macs:      of its devices. loopback: addresses on `lo`.
    sysctls:   `arp_ignore`, `arp_announce`, `rp_filter` as they work: the larger one of `all` and the device
               (kernel documentation, networking/ip-sysctl.rst).
    """

    macs: tuple[str, ...]
    loopback: tuple[str, ...]
    sysctls: Mapping[str, int] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class HostFacts:
    """All of it. `is_here`: the Open vSwitch is on this host, so that its process and devices can be seen.

    database:   Unknown also where no ovsdb-server answers.
    devices:    by name, as far as they exist.
    learned:    bridge -> MAC -> port, from the tables of MAC learning.
    leftovers:  what killed runs of xenoovs have changed and not put back.
    """

    is_here: bool
    database: Seen[Database]
    daemon: Seen[Daemon]
    devices: Seen[Mapping[str, Device]]
    eswitches: tuple[Eswitch, ...] = ()
    kernel: Seen[Kernel] = NOT_ASKED
    neighbours: Seen[tuple[Neighbour, ...]] = NOT_ASKED
    learned: Mapping[str, Mapping[str, str]] = field(default_factory=dict, hash=False)
    leftovers: tuple[str, ...] = ()

    def eswitch(self, pci: str | None) -> Eswitch | None:
        return next((eswitch for eswitch in self.eswitches if eswitch.pci == pci), None)
