"""What the checks of a host look at, and the row that each check gives."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from xenoovs.datapath.host import (
    NOT_READ,
    BackendFacts,
    Daemon,
    Database,
    Device,
    Fact,
    HostFacts,
    Interface,
    OvsBridge,
    Unknown,
)
from xenoovs.verify.commands import THIS_HOST, CommandTarget

# What the checks look at: the facts of a host, and what a config wants of it.


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
    cost: Fact[Cost] = NOT_READ
    varying: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a config names. `entries`: hardware entries that it takes when all clients send."""

    bridge: str
    ingress: tuple[str, ...]
    egress: tuple[str, ...]
    entries: int
    foreign: Fact[ForeignFlows] = NOT_READ
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
    facts: Fact[BackendFacts] = NOT_READ


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
        return self.host.is_local and self.database is not None and self.daemon is None

    @property
    def bridges(self) -> tuple[OvsBridge, ...]:
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
            if (home := self.database.bridge_of(port)) is not None
            and home.datapath_type == "system"
            and (interface := home.interface(port)) is not None
            and interface.type == "system"
        )

    def interface(self, port: str) -> Interface | None:
        """The row of a port, on whichever bridge it is."""
        home = None if self.database is None else self.database.bridge_of(port)
        return None if home is None else home.interface(port)

    def device(self, name: str) -> Fact[Device]:
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


class State(Enum):
    """UNKNOWN is neither good nor bad: the fact could not be read, and the row says why."""

    OK = "ok"
    WRONG = "wrong"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Fix:
    """Commands that mend one thing, in order.

    is_safe:       takes no packet's way and nothing from anybody: `--fix` may run it.
    needs_restart: takes effect when ovs-vswitchd starts again.
    is_elsewhere:  to be typed on another machine, as a backend.
    """

    commands: tuple[tuple[str, ...], ...] = ()
    is_safe: bool = False
    needs_restart: bool = False
    is_elsewhere: bool = False

    def __str__(self) -> str:
        return self.text(THIS_HOST)

    def command(self, where: CommandTarget) -> str:
        """The commands alone, as one line of a shell that reaches `where`."""
        there = THIS_HOST if self.is_elsewhere else where
        return " && ".join(there.shell(command) for command in self.commands)

    def text(self, where: CommandTarget) -> str:
        """All that is to be typed, as one line of a shell that reaches `where`."""
        file = ("FILE",) if where.config else ()
        restart = [where.shell(("xenoovs", "doctor", *file, "--fix", "--restart-ovs"))] * self.needs_restart
        return " && ".join([*filter(None, [self.command(where)]), *restart])


@dataclass(frozen=True, slots=True)
class Check:
    """One row. `subject`: the port, device, bridge or backend that it is about. `why`: why it matters, one sentence."""

    name: str
    state: State
    seen: str
    why: str
    subject: str | None = None
    fix: Fix | None = None

    @property
    def is_safely_mended(self) -> bool:
        return self.state is State.WRONG and self.fix is not None and self.fix.is_safe and bool(self.fix.commands)

    @property
    def needs_restart(self) -> bool:
        return self.state is State.WRONG and self.fix is not None and self.fix.needs_restart


PURGE = ("ovs-appctl", "revalidator/purge")
"""Forget all megaflows, so that each is offered to the NIC anew: a rule that was refused, or never offered, is not
offered again by itself. Costs one packet in software a megaflow (ovs-vswitchd(8))."""


PUT_BACK = ("xenoovs", "doctor", "--fix")
"""Undo what killed runs left changed."""


def vsctl(*arguments: str) -> tuple[str, ...]:
    """A command of ovs-vsctl(8)."""
    return ("ovs-vsctl", *arguments)


def set_config(key: str, value: str) -> tuple[str, ...]:
    """Set a key of other_config of table Open_vSwitch."""
    return vsctl("set", "Open_vSwitch", ".", f"other_config:{key}={value}")


def unset_config(key: str) -> tuple[str, ...]:
    """Give a key of other_config of table Open_vSwitch its default."""
    return vsctl("remove", "Open_vSwitch", ".", "other_config", key)
