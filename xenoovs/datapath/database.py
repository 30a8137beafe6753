"""Contents of the database of Open vSwitch: bridges, ports, controllers, mirrors, and its settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from xenoovs.dataclass import dataclass, field
from xenoovs.datapath.ovn import OvnChassis, OvnUse

UNKNOWN_TYPE = ""
"""The type of a port that only OpenFlow describes."""


_NO_DIAGNOSTIC = "No Diagnostic"
"""As Open vSwitch writes code 0 (bfd_diag_str() of lib/bfd.c)."""
BFD_STOPPED = "up: stopped by `bfd/set-forwarding`"
"""Nothing else stops a session that is up at both ends (bfd_forwarding__() of lib/bfd.c)."""


@dataclass(frozen=True, slots=True)
class PortState:
    """A port of a bridge (ovs-vswitchd.conf.db(5), table Interface).

    Attributes:
        ofport: OpenFlow port number; None while there is none, as for a device that does not exist.
        type: `system` for a device of the kernel, else `internal`, `dummy`, `dpdk`, `vxlan` ...; UNKNOWN_TYPE.
        link_up: None where Open vSwitch does not say.
        iface_id: name of the logical port of OVN or Neutron that it is (external_ids:iface-id); None for none.
        options: column options; empty where the reader does not ask for it.
        bfd, bfd_status: the columns; by OpenFlow alone only `forwarding` of the second.
        mark: what xenoovs wrote into external_ids:xenoovs when it made the port; None if it did not.
        offload_priority: other_config:hw-offload-priority; None if not set.
    """

    name: str
    ofport: int | None = None
    type: str = "system"
    link_up: bool | None = None
    error: str | None = None
    mtu: int | None = None
    iface_id: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, hash=False)
    mark: str | None = None
    offload_priority: str | None = None
    bfd: Mapping[str, str] = field(default_factory=dict, hash=False)
    bfd_status: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def is_silent(self) -> bool:
        """Whether its BFD session has gone down, so that Open vSwitch too takes it for dead (may_enable_port() of
        ofproto/ofproto-dpif.c). One that was never up says nothing: the other end may not have BFD yet."""
        return self.bfd_status.get("forwarding") == "false" and self.bfd_status.get("flap_count") != "0"

    @property
    def bfd_state(self) -> str:
        """`up`, or another state with its reason; empty if it has no BFD session, or that is not known."""
        status = self.bfd_status
        if not status or status.get("forwarding") == "true":
            return "up" if status else ""
        state = status.get("state", "down")
        reason = status.get("remote_diagnostic" if state == "up" else "diagnostic", _NO_DIAGNOSTIC)
        if reason == _NO_DIAGNOSTIC:
            return BFD_STOPPED if state == "up" else state
        return f"{state}: {reason}"

    @property
    def offload_providers(self) -> tuple[str, ...] | None:
        """Return the only offload providers that Open vSwitch tries for the port, in order; None if it tries all.

        `none` ends the list (dpif_offload_port_add() of lib/dpif-offload.c, since 3.7).
        """
        if self.offload_priority is None:
            return None
        names = self.offload_priority.split(",")
        return tuple(names[: names.index("none")] if "none" in names else names)


def live_ports(ports: Iterable[PortState]) -> frozenset[str]:
    """Return the names of ports with a link, if that is known, and with a BFD session that is up, if they have one."""
    there = (port for port in ports if port.ofport is not None and port.link_up is not False)
    return frozenset(port.name for port in there if port.bfd_status.get("forwarding") != "false")


@dataclass(frozen=True, slots=True)
class Controller:
    """A row of table Controller. `role`: `master`, `slave` or `other`; None if none yet."""

    target: str
    is_connected: bool = False
    role: str | None = None


@dataclass(frozen=True, slots=True)
class Mirror:
    """A row of table Mirror: packets of some ports are copied. `output`: the port that copies leave by; None: the VLAN
    `output_vlan`, if any. `snaplen`: copies are shortened to so many bytes; None if they are whole."""

    name: str
    output: str | None = None
    output_vlan: int | None = None
    snaplen: int | None = None


@dataclass(frozen=True, slots=True)
class BridgeState:
    """A bridge (ovs-vswitchd.conf.db(5), table Bridge) and what of table Open_vSwitch concerns it. `ports`: sorted by
    name, with the bridge's own. `hw_offload`, `max_idle_ms`, `max_revalidator_ms`: of other_config. `exporters`:
    columns that are set of `sflow`, `ipfix` and `netflow`. `ovn`: what OVN has to do with it. None if not set, or the
    database is not at hand."""

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
    def live_ports(self) -> frozenset[str]:
        return live_ports(self.ports)

    @property
    def ofports(self) -> dict[str, int]:
        """Port name to OpenFlow port number, for ports that have one."""
        return {port.name: port.ofport for port in self.ports if port.ofport is not None}


@dataclass(frozen=True, slots=True)
class Database:
    """Table Open_vSwitch and the bridges. `doca_initialized`: only in NVIDIA's fork, else None."""

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
        return next((bridge for bridge in self.bridges if bridge.port(port) is not None), None)
