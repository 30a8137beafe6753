"""The input of the checks of a host, and the row that each check returns."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from xenoovs.compile.offloadable.table import PRIORITY_SINCE, version_or_default
from xenoovs.compile.tunnel_ports import WantedPort
from xenoovs.dataclass import dataclass
from xenoovs.datapath.database import BridgeState, Database, PortState
from xenoovs.datapath.fact import NOT_READ, Fact, Unknown
from xenoovs.datapath.host import BackendFacts, Daemon, Device, HostFacts
from xenoovs.evidence.command_target import THIS_HOST, CommandTarget
from xenoovs.evidence.evidence import Evidence

if TYPE_CHECKING:
    from xenoovs.judge.doctor.foreign_flows import ForeignFlows
    from xenoovs.judge.findings import PreemptingRule


@dataclass(frozen=True, slots=True)
class RemoteAnswers:
    """The state of a remote from the agent's probes. `problem`: why it is not probed, or does not answer; empty if it
    answers. `tos`: type of service of the last answer; None if there was none. `returned`: packets of the host that the
    reflector took for probes."""

    name: str
    problem: str
    tos: int | None
    tos_sent: int
    returned: int = 0


@dataclass(frozen=True, slots=True)
class RequiredTunnel:
    """A configured tunnel. `has_source_ports`: None if they cost no megaflows. `probe_port`: None without probes."""

    name: str
    remotes: Fact[tuple[RemoteAnswers, ...]] = NOT_READ
    has_source_ports: bool | None = None
    probe_port: str | None = None


@dataclass(frozen=True, slots=True)
class RequiredKey:
    """The key or certificate by which a tunnel port with IPsec authenticates its remote."""

    port: str
    psk_file: str | None
    has_key: Fact[bool]
    is_readable_by_all: bool = False


@dataclass(frozen=True, slots=True)
class Requirements:
    """What a config requires of the host. `entries`: hardware entries once all clients send. `tagged`: tunnel ports
    whose frames may keep a tag."""

    bridge: str
    ingress: tuple[str, ...]
    egress: tuple[str, ...]
    entries: int
    foreign: Fact[ForeignFlows] = NOT_READ
    backends: tuple[RequiredBackend, ...] = ()
    preempting: tuple[PreemptingRule, ...] = ()
    tunnels: tuple[RequiredTunnel, ...] = ()
    keys: tuple[RequiredKey, ...] = ()
    tunnel_ports: tuple[WantedPort, ...] = ()
    tagged: frozenset[str] = frozenset()

    @property
    def ports(self) -> tuple[str, ...]:
        """All ports, each once."""
        return tuple(dict.fromkeys((*self.ingress, *self.egress)))


@dataclass(frozen=True, slots=True)
class RequiredBackend:
    """One backend of the config."""

    name: str
    mac: str
    egress: str
    vips: tuple[str, ...]
    facts: Fact[BackendFacts] = NOT_READ


@dataclass(frozen=True, slots=True)
class DoctorCase:
    """The input of all checks. `required`: None without a config; then all bridges and ports are checked."""

    evidence: Evidence
    required: Requirements | None = None

    @property
    def host(self) -> HostFacts:
        return self.evidence.host

    @property
    def database(self) -> Database:
        """The database; empty if it could not be read."""
        return self.evidence.database or Database()

    @property
    def has_database(self) -> bool:
        return self.evidence.database is not None

    @property
    def wanted(self) -> Requirements:
        """What the config requires; nothing without one."""
        return self.required or Requirements("", (), (), 0)

    @property
    def daemon(self) -> Daemon | None:
        return None if isinstance(self.host.daemon, Unknown) else self.host.daemon

    @property
    def offloads(self) -> bool:
        """Whether the running Open vSwitch offloads; False if unknown."""
        return self.evidence.offload is not None and self.evidence.offload.is_on

    @property
    def has_priorities(self) -> bool:
        """Whether the running Open vSwitch reads hw-offload-priority."""
        return version_or_default(self.evidence.version or "") >= PRIORITY_SINCE

    @property
    def is_stale(self) -> bool:
        """Whether port states in the database stem from an ovs-vswitchd that no longer answers."""
        return self.host.is_local and self.has_database and self.daemon is None

    @property
    def bridges(self) -> tuple[BridgeState, ...]:
        """The bridge of the config if it exists; without a config all bridges."""
        if self.required is None:
            return self.database.bridges
        found = self.database.bridge(self.required.bridge)
        return () if found is None else (found,)

    @property
    def ports(self) -> tuple[str, ...]:
        """The ports of the config; without one all ports but those of type internal and patch."""
        if self.required is not None:
            return self.required.ports
        return tuple(
            interface.name
            for bridge in self.bridges
            for interface in bridge.ports
            if interface.type not in ("internal", "patch")
        )

    @property
    def kernel_ports(self) -> tuple[str, ...]:
        """The kernel devices of `ports` on bridges of the kernel's datapath, to which TC offload applies."""
        return tuple(
            port
            for port in self.ports
            if (home := self.database.bridge_of(port)) is not None
            and home.datapath_type == "system"
            and (interface := home.port(port)) is not None
            and interface.type == "system"
        )

    def interface(self, port: str) -> PortState | None:
        """Return the interface of a port on any bridge."""
        home = self.database.bridge_of(port)
        return None if home is None else home.port(port)

    def device(self, name: str) -> Fact[Device]:
        devices = self.host.devices
        if isinstance(devices, Unknown):
            return devices
        return devices.get(name, Unknown(f"the kernel has no device {name}"))

    @property
    def known_devices(self) -> tuple[Device, ...]:
        """The known devices of `ports`, in their order."""
        found = (self.device(port) for port in self.ports)
        return tuple(device for device in found if not isinstance(device, Unknown))


class CheckState(Enum):
    """The result of a check. UNKNOWN: a fact could not be read; the row has the reason."""

    OK = "ok"
    WRONG = "wrong"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Fix:
    """Commands that fix one thing, in order. `is_safe`: whether `--fix` may run it, as it disrupts no traffic and
    changes nothing of other programs. `needs_restart`: whether it takes effect at a restart of ovs-vswitchd.
    `is_remote`: whether it is for another machine, such as a backend."""

    commands: tuple[tuple[str, ...], ...] = ()
    is_safe: bool = False
    needs_restart: bool = False
    is_remote: bool = False

    def __str__(self) -> str:
        return self.text(THIS_HOST)

    def command(self, target: CommandTarget) -> str:
        local = THIS_HOST if self.is_remote else target
        return " && ".join(local.shell(command) for command in self.commands)

    def text(self, target: CommandTarget) -> str:
        """Return the commands and the restart as one shell line for a target."""
        file = ("FILE",) if target.config else ()
        restart = [target.shell(("xenoovs", "doctor", *file, "--fix", "--restart-ovs"))] * self.needs_restart
        return " && ".join([*filter(None, [self.command(target)]), *restart])


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One row of the report. `subject`: the port, device, bridge or backend; None for the host."""

    name: str
    state: CheckState
    seen: str
    why: str
    subject: str | None = None
    fix: Fix | None = None

    @property
    def has_safe_fix(self) -> bool:
        """Whether `--fix` may fix it."""
        return self.state is CheckState.WRONG and self.fix is not None and self.fix.is_safe and bool(self.fix.commands)

    @property
    def needs_restart(self) -> bool:
        """Whether it stays wrong until ovs-vswitchd restarts."""
        return self.state is CheckState.WRONG and self.fix is not None and self.fix.needs_restart


@dataclass(frozen=True, slots=True)
class HostCheck:
    """One check of a host; its methods make its rows. `why`: one sentence on why the result matters."""

    name: str
    why: str

    def row(self, state: CheckState, seen: str, subject: str | None = None, fix: Fix | None = None) -> CheckResult:
        return CheckResult(self.name, state, seen, self.why, subject, fix)

    def judge(self, is_right: bool, seen: str, subject: str | None = None, fix: Fix | None = None) -> CheckResult:  # noqa: FBT001
        """Return a row that is OK or WRONG."""
        return self.row(CheckState.OK if is_right else CheckState.WRONG, seen, subject, fix)

    def ok(self, seen: str, subject: str | None = None) -> CheckResult:
        return self.row(CheckState.OK, seen, subject)

    def wrong(self, seen: str, subject: str | None = None, fix: Fix | None = None) -> CheckResult:
        return self.row(CheckState.WRONG, seen, subject, fix)

    def unknown(self, seen: str, subject: str | None = None, fix: Fix | None = None) -> CheckResult:
        return self.row(CheckState.UNKNOWN, seen, subject, fix)


PURGE = ("ovs-appctl", "revalidator/purge")
"""Deletes all megaflows, so that each is offered to the NIC again; Open vSwitch never offers one twice. It costs one
packet in software for each megaflow (ovs-vswitchd(8))."""


WRITE_KEYS = ("xenoovs", "doctor", "FILE", "--fix")
"""Writes IPsec keys to OVSDB: commands of Open vSwitch would show them to all users of the host."""

UNDO_LEFTOVERS = ("xenoovs", "doctor", "--fix")
"""Reverts what killed runs left behind."""


def vsctl(*arguments: str) -> tuple[str, ...]:
    """Return a command of ovs-vsctl(8)."""
    return ("ovs-vsctl", *arguments)


def set_config(key: str, value: str) -> tuple[str, ...]:
    """Return the command that sets a key of other_config in table Open_vSwitch."""
    return vsctl("set", "Open_vSwitch", ".", f"other_config:{key}={value}")


def unset_config(key: str) -> tuple[str, ...]:
    """Return the command that resets a key of other_config in table Open_vSwitch to its default."""
    return vsctl("remove", "Open_vSwitch", ".", "other_config", key)
