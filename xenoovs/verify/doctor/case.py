"""What the checks look at: the facts of a host, and what a config wants of it."""

from __future__ import annotations

from dataclasses import dataclass

from xenoovs.datapath.host import (
    NOT_ASKED,
    BackendFacts,
    Bridge,
    Daemon,
    Database,
    Device,
    HostFacts,
    Interface,
    Seen,
    Unknown,
)


@dataclass(frozen=True, slots=True)
class Cost:
    """What flows of others do to ours, by simulation of `packets` packets of many clients.

    alone, beside: hardware entries without and with them. taken: packets that they send elsewhere.
    """

    packets: int
    alone: int
    beside: int
    taken: int


@dataclass(frozen=True, slots=True)
class ForeignFlows:
    """Flows of others on the bridge: as text those that our packets pass, how many of the rest, and what they cost.

    varying: fields that they match and whose values differ between clients, as `nw_tos`: what these cost is not known.
    """

    passed: tuple[str, ...] = ()
    others: int = 0
    cost: Seen[Cost] = NOT_ASKED
    varying: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a config names. `entries`: hardware entries that it takes when all clients send."""

    bridge: str
    ingress: tuple[str, ...]
    egress: tuple[str, ...]
    entries: int
    foreign: Seen[ForeignFlows] = NOT_ASKED
    backends: tuple[WantedBackend, ...] = ()

    @property
    def ports(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.ingress, *self.egress)))


@dataclass(frozen=True, slots=True)
class WantedBackend:
    """One backend of the config. `services`: those that it serves, with `vips` all of theirs.

    facts: what it says of itself, where it can be asked.
    """

    name: str
    mac: str
    egress: str
    services: tuple[str, ...]
    vips: tuple[str, ...]
    facts: Seen[BackendFacts] = NOT_ASKED


@dataclass(frozen=True, slots=True)
class Case:
    """`wanted` None: there is no config, and every bridge with all its ports is looked at."""

    host: HostFacts
    wanted: Wanted | None = None

    @property
    def database(self) -> Database | None:
        return None if isinstance(self.host.database, Unknown) else self.host.database

    @property
    def daemon(self) -> Daemon | None:
        return None if isinstance(self.host.daemon, Unknown) else self.host.daemon

    @property
    def is_stale(self) -> bool:
        """Whether the database tells of ports what an ovs-vswitchd wrote that cannot be reached any more."""
        return self.host.is_here and self.database is not None and self.daemon is None

    @property
    def bridges(self) -> tuple[Bridge, ...]:
        """The bridge of the config if it exists; without a config all of them."""
        if self.database is None:
            return ()
        if self.wanted is None:
            return self.database.bridges
        found = self.database.bridge(self.wanted.bridge)
        return () if found is None else (found,)

    @property
    def ports(self) -> tuple[str, ...]:
        """The ports of the config; without one all but those that the host itself uses (type internal, patch)."""
        if self.wanted is not None:
            return self.wanted.ports
        return tuple(
            interface.name
            for bridge in self.bridges
            for interface in bridge.interfaces
            if interface.type not in ("internal", "patch")
        )

    @property
    def kernel_ports(self) -> tuple[str, ...]:
        """Those of `ports` that are the kernel's devices on bridges of its datapath: what TC offload is for."""
        if self.database is None:
            return ()
        return tuple(
            port
            for port in self.ports
            if (home := self.database.home_of(port)) is not None
            and home.datapath_type == "system"
            and (interface := home.interface(port)) is not None
            and interface.type == "system"
        )

    def interface(self, port: str) -> Interface | None:
        """The row of a port, on whichever bridge it is."""
        home = None if self.database is None else self.database.home_of(port)
        return None if home is None else home.interface(port)

    def device(self, name: str) -> Seen[Device]:
        """The kernel's device behind a port."""
        devices = self.host.devices
        if isinstance(devices, Unknown):
            return devices
        return devices.get(name, Unknown(f"the kernel has no device {name}"))

    @property
    def known_devices(self) -> tuple[Device, ...]:
        """The devices of `ports` that are known, in their order."""
        found = (self.device(port) for port in self.ports)
        return tuple(device for device in found if not isinstance(device, Unknown))
