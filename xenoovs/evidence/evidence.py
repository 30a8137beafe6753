"""The facts about an Open vSwitch and its host: one value for every judgement, however it was read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from xenoovs.dataclass import dataclass, field
from xenoovs.datapath.database import BridgeState, Database
from xenoovs.datapath.fact import NOT_READ, Unknown
from xenoovs.datapath.host import Device, HostFacts, OffloadHistory, OffloadState
from xenoovs.datapath.megaflow import MAX_IDLE_S, Megaflow
from xenoovs.datapath.tc import DriverAnswer, TcFilter
from xenoovs.datapath.tunnel import TunnelPort, tunnel_kind, tunnel_owner, tunnel_ports
from xenoovs.evidence.command_target import THIS_HOST, CommandTarget
from xenoovs.evidence.samples import DatapathSample, PortFinding

Shape = tuple[str | None, tuple[tuple[str, str], ...], tuple[str, ...]]
"""Ingress port, keys with their matched attributes, kinds of actions: they decide whether a driver accepts a rule."""

UNREAD_HOST = HostFacts(is_local=False, database=NOT_READ, daemon=NOT_READ, devices=NOT_READ)


@dataclass(frozen=True, slots=True)
class BridgePorts:
    """The ports of a bridge. `kinds`: types of its ports. `tunnels`: all tunnel ports of this Open vSwitch, with the
    name of their bridges; empty if unknown."""

    names: frozenset[str]
    kinds: frozenset[str] = frozenset()
    tunnels: tuple[tuple[str, TunnelPort], ...] = ()
    bridge: str = ""

    def has(self, megaflow: Megaflow) -> bool:
        """Return whether packets of this megaflow enter the bridge."""
        in_port = megaflow.in_port
        if in_port is None or in_port in self.names:
            return in_port is not None
        if tunnel_kind(in_port) not in self.kinds:
            return False
        # Tunnels of one type share a device, whichever bridge they are on.
        owner = tunnel_owner(megaflow, self.tunnels)
        return owner is None or owner == self.bridge


def ports_of(bridge: str, bridges: Iterable[BridgeState]) -> BridgePorts | None:
    """Return the ports of a bridge, with the tunnel ports of all bridges; None without such a bridge."""
    listed = tuple(bridges)
    state = next((each for each in listed if each.name == bridge), None)
    if state is None:
        return None
    names, kinds = {port.name for port in state.ports}, {port.type for port in state.ports}
    return BridgePorts(frozenset(names), frozenset(kinds), tunnel_ports(listed), bridge)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Facts about one Open vSwitch and its host. Facts that were not read are None, empty or Unknown.

    Attributes:
        lines: of a dump of megaflows; those of a file can be read once.
        ports: of the bridge in question; None for all bridges.
        internal_ports: names of bridges and of their internal ports, whose packets are for the host itself.
        max_idle_s: how long a megaflow stays after its last packet.
        filters: filters of traffic control by cookie (`datapath.tc.cookie_of_ufid`).
        rules: all filters, also of other programs, with their device.
        before: an earlier sample, which shows growth.
        port_checks: packets that ports gave to the CPU between the two samples.
        has_tc_chains: as in KernelFacts.
        is_recorded: whether the dump is a file, which may lack megaflows if all that it has are offloaded.
        has_totals: whether counters are since the installation of megaflows; False: since the sample before, so that a
            megaflow without packets is idle, and proves nothing about its rule.
        logs: of ovs-vswitchd, the newest first.
        driver: ufid -> answer of the driver, for megaflows that were tried.
        in_hardware: shapes of megaflows that are in hardware.
        layers: of all megaflows of the dump (`dp:`), `offloaded` for those in hardware.
        given_version: of Open vSwitch, given by the user; None for that of ovs-vswitchd.
        target: how commands reach this Open vSwitch.
        remarks: what could not be read.
    """

    host: HostFacts = UNREAD_HOST
    lines: Iterable[str] = ()
    bridges: tuple[BridgeState, ...] = ()
    ports: BridgePorts | None = None
    internal_ports: Set[str] = frozenset()
    max_idle_s: float = MAX_IDLE_S
    filters: Mapping[str, TcFilter] | None = field(default=None, hash=False)
    rules: tuple[tuple[str, TcFilter], ...] = field(default=(), hash=False)
    before: DatapathSample | None = field(default=None, hash=False)
    port_checks: tuple[PortFinding, ...] = ()
    has_tc_chains: bool | None = None
    is_recorded: bool = False
    has_totals: bool = True
    logs: tuple[str, ...] = ()
    driver: Mapping[str, DriverAnswer] = field(default_factory=dict, hash=False)
    in_hardware: frozenset[Shape] = frozenset()
    layers: frozenset[str] = frozenset()
    given_version: str | None = None
    target: CommandTarget = THIS_HOST
    remarks: tuple[str, ...] = ()

    @property
    def contradicted(self) -> frozenset[str]:
        """Return the ports that gave the CPU more packets than megaflows explain."""
        return frozenset(each.port for each in self.port_checks if each.is_contradicted)

    @property
    def database(self) -> Database | None:
        return None if isinstance(self.host.database, Unknown) else self.host.database

    @property
    def version(self) -> str | None:
        return self.given_version or (None if isinstance(self.host.daemon, Unknown) else self.host.daemon.version)

    @property
    def offload(self) -> OffloadState | None:
        """Return whether the running ovs-vswitchd offloads."""
        daemon = self.host.daemon
        return None if isinstance(daemon, Unknown) or isinstance(daemon.offload, Unknown) else daemon.offload

    @property
    def history(self) -> OffloadHistory | None:
        daemon = self.host.daemon
        return None if isinstance(daemon, Unknown) or isinstance(daemon.history, Unknown) else daemon.history

    @property
    def tc_policy(self) -> str | None:
        """Return the tc-policy in use; if the log does not show it, the configured one."""
        in_use = self.history.tc_policy if self.history is not None else None
        configured = self.database.config.get("tc-policy") if self.database is not None else None
        return in_use or configured

    def bridge(self, name: str) -> BridgeState | None:
        return next((each for each in self.bridges if each.name == name), None)

    def device(self, name: str | None) -> Device | None:
        return None if isinstance(self.host.devices, Unknown) or name is None else self.host.devices.get(name)
