"""The interface of a switch to the rest of xenoovs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Protocol

from xenoovs.dataclass import dataclass, field
from xenoovs.datapath.database import UNKNOWN_TYPE, BridgeState
from xenoovs.datapath.fact import Fact
from xenoovs.errors import (
    BridgeMissing,
    BridgeOfOvn,
    OtherDatapath,
    PortsMissing,
    UnusablePorts,
    WouldBeUnencrypted,
    first_names,
)
from xenoovs.openflow.flow import LOCAL, OURS, Bundle, Cookies, ObservedFlow, why_unusable

if TYPE_CHECKING:
    from xenoovs.datapath.ipsec import IpsecState
    from xenoovs.datapath.outer import Encapsulation


class Switch(Protocol):
    """An Open vSwitch with its bridges. Every method may raise SwitchError."""

    def bridges(self) -> tuple[BridgeState, ...]:
        """Return all bridges, sorted by name."""

    def incarnation(self, bridge: str) -> str | None:
        """Return a text that changes when the bridge is recreated or ovs-vswitchd restarts; None without the bridge.

        Cheap enough to be called several times a second.
        """

    def describe(self, bridge: str) -> BridgeState:
        """Return one bridge. Raises BridgeMissing."""

    def dump_flows(self, bridge: str, *, only: Cookies = OURS) -> tuple[ObservedFlow, ...]:
        """Return the flows with these cookies and their counters. Raises BridgeMissing."""

    def dump_flow_text(self, bridge: str, *, only: Cookies = OURS) -> str:
        """Return the flows with these cookies without counters, one a line, as ovs-ofctl prints them."""

    def count_flows(self, bridge: str, *, only: Cookies = OURS) -> int:
        """Return how many flows have these cookies. Raises BridgeMissing."""

    def apply(self, bridge: str, bundle: Bundle) -> None:
        """Apply all flow-mods or none. Raises BridgeMissing, BundleRejected."""

    def prepared(self, bridge: str, bundle: Bundle) -> AbstractContextManager[Callable[[], None]]:
        """Do all of `apply` except the commit. The context is the function that commits, or raises.

        Nothing changes without the commit. `bundle`: at least one flow-mod.
        """

    def wait_revalidated(self, bridge: str) -> None:
        """Return when Open vSwitch has revalidated every megaflow since the call, or most probably has.

        Counters of flows then include all packets from before the call. Raises BridgeMissing.
        """

    def dump_megaflows(self) -> str:
        """Return the text of `dpctl/dump-flows -m` of all datapaths."""

    def trace(self, bridge: str, flow: str) -> str:
        """Return the text of `ofproto/trace`. `flow`: a match in the form of ovs-ofctl(8). Raises BridgeMissing."""

    def read_ipsec(self, outers: Sequence[Encapsulation]) -> Fact[IpsecState]:
        """Return policies and SAs of IPsec on the switch's host, with the routes to the remotes of these tunnels."""


@dataclass(frozen=True, slots=True)
class PortCheck:
    """Ports that a config needs, compared with a bridge.

    Attributes:
        missing: Ports that it lacks, each with the bridge that has it, or None.
        unusable: Ports that no flow can name, with the reason.
        tunnels: Ports of tunnels, which xenoovs can make.
        unencrypted: Remotes to which packets would leave unencrypted against a policy of IPsec, by tunnel port and
            address, with the policy and the reason.
        uncovered: Remotes that must be encrypted and whose packets would not be, by tunnel port and address:
            no policy covers them, or the datapath is in user space, past the kernel's IPsec.
        unread_policies: Why that is not known; empty if it is, or the config requires no IPsec.
    """

    state: BridgeState
    missing: Mapping[str, str | None]
    unusable: Mapping[str, str]
    tunnels: tuple[str, ...] = ()
    unencrypted: Mapping[tuple[str, IPv4Address], str] = field(default_factory=dict)
    uncovered: tuple[tuple[str, IPv4Address], ...] = ()
    unread_policies: str = ""

    @property
    def is_obstructed(self) -> bool:
        """Return whether some port or remote must get no packets."""
        return bool(self.missing or self.unusable or self.unencrypted or self.uncovered)

    @property
    def is_userspace(self) -> bool:
        """Return whether the datapath is in user space, so that the kernel's IPsec gets none of its packets."""
        return self.state.datapath_type != "system"

    @property
    def unchecked(self) -> tuple[str, ...]:
        """Return the tunnel ports whose destination is not known: OpenFlow has neither type nor options."""
        known = {port.name for port in self.state.ports if port.type != UNKNOWN_TYPE}
        return tuple(name for name in self.tunnels if name not in known and name not in self.missing)

    @property
    def reasons(self) -> dict[str, str]:
        """Return every port that cannot be used, with the reason."""
        there = first_names(sorted(self._present)) or "no ports"
        absent = f"is on no bridge ({self.state.name} has {there})"
        made = f"{absent}: `xenoovs doctor FILE --fix` makes it"
        missing = {
            name: f"is on bridge {home}" if home else made if name in self.tunnels else absent
            for name, home in self.missing.items()
        }
        return missing | dict(self.unusable)

    def require_encrypted(self, *, is_changed: bool) -> None:
        """Raise WouldBeUnencrypted if packets to a remote would leave unencrypted: if flows would change, or in any
        case without the required encryption."""
        if self.uncovered:
            remotes = dict.fromkeys(str(remote) for _, remote in self.uncovered)
            raise WouldBeUnencrypted(uncovered=remotes, is_userspace=self.is_userspace)
        if self.unencrypted and is_changed:
            ends = dict.fromkeys(f"packets to {remote} {reason}" for (_, remote), reason in self.unencrypted.items())
            raise WouldBeUnencrypted(tunnels=ends)

    @property
    def _present(self) -> tuple[str, ...]:
        return tuple(port.name for port in self.state.ports if port.name != self.state.name)

    def require(self) -> BridgeState:
        """Return the bridge. Raises PortsMissing, which names the bridges that have the ports, or UnusablePorts."""
        bridge = self.state.name
        if self.missing:
            missing, present = dict(self.missing), self._present
            raise PortsMissing(bridge=bridge, elsewhere=missing, present=present, tunnels=self.tunnels)
        if self.unusable:
            commands = tuple(command for name in self.unusable if (command := _look(name)) in self.unusable[name])
            raise UnusablePorts(bridge=bridge, reasons=dict(self.unusable), commands=commands)
        return self.state


def find_bridge(states: Sequence[BridgeState], bridge: str) -> BridgeState:
    """Return the bridge of this name. Raises BridgeMissing."""
    for state in states:
        if state.name == bridge:
            return state
    raise BridgeMissing(bridge=bridge, present=(state.name for state in states))


def require_not_of_ovn(state: BridgeState) -> None:
    """Raise BridgeOfOvn for a bridge whose flows ovn-controller writes: it deletes those of other programs."""
    if state.ovn is not None and state.ovn.is_owner:
        raise BridgeOfOvn(bridge=state.name, evidence=state.ovn.evidence)


def check_ports(
    switch: Switch, bridge: str, ports: Iterable[str], *, datapath_id: int | None = None, tunnels: Iterable[str] = ()
) -> PortCheck:
    """Compare the ports that flows will name with a bridge. `datapath_id`: the id that the bridge must have; None for
    any. `tunnels`: those of `ports` that xenoovs can make. Raises BridgeMissing, BridgeOfOvn, OtherDatapath,
    SwitchError."""
    states = switch.bridges()
    state = find_bridge(states, bridge)
    require_not_of_ovn(state)
    if datapath_id is not None and state.datapath_id != f"{datapath_id:016x}":
        raise OtherDatapath(bridge=bridge, wanted=f"{datapath_id:016x}", found=state.datapath_id)
    wanted = sorted(set(ports) - {LOCAL})
    missing = {name: _home(states, name) for name in wanted if state.port(name) is None}
    unusable = {name: why for name in wanted if name not in missing and (why := _unusable(state, name)) is not None}
    return PortCheck(state, missing, unusable, tuple(tunnels))


def require_ports(switch: Switch, bridge: str, ports: Iterable[str], *, datapath_id: int | None = None) -> BridgeState:
    """Return a bridge with all `ports`, each of which a flow can name. Raises what `check_ports`, `require` raise."""
    return check_ports(switch, bridge, ports, datapath_id=datapath_id).require()


def _home(states: Iterable[BridgeState], port: str) -> str | None:
    return next((state.name for state in states if state.port(port) is not None), None)


def _look(name: str) -> str:
    return f"ovs-vsctl list interface {name}"


def _unusable(state: BridgeState, name: str) -> str | None:
    port = state.port(name)
    if port is None or port.ofport is None:
        error = port.error if port is not None else None
        return f"does not work ({error or 'it has no OpenFlow number'}): see `{_look(name)}`"
    if name == state.name:
        return "is the bridge's own port: name another port of it"
    reason = why_unusable(name)
    return None if reason is None else f"cannot be named by flows ({reason}): rename the port"
