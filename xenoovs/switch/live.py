"""A real Open vSwitch: the database tells what is there, ovs-ofctl and ovs-appctl do the rest."""

from __future__ import annotations

from dataclasses import dataclass

from xenoovs.errors import BridgeMissing, SwitchError
from xenoovs.openflow.bundle import Bundle
from xenoovs.openflow.flow import ObservedFlow
from xenoovs.switch.api import BridgeState
from xenoovs.switch.appctl import Appctl
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.ofctl import Ofctl
from xenoovs.switch.ovsdb import DEFAULT_TIMEOUT_S, read_bridges


@dataclass(frozen=True, slots=True)
class LiveSwitch:
    """The Open vSwitch at `endpoint`; nothing is kept between calls. Implements `Switch`.

    db_timeout_s: how long the database may take to answer.
    """

    endpoint: Endpoint
    db_timeout_s: float = DEFAULT_TIMEOUT_S

    def bridges(self) -> tuple[BridgeState, ...]:
        """All bridges. Raises SwitchError where the database is not the one of the ovs-vswitchd that has the flows."""
        states = read_bridges(self.endpoint, timeout_s=self.db_timeout_s)
        if self.endpoint.is_split:
            self._check_same_switch(states)
        return states

    def describe(self, bridge: str) -> BridgeState:
        states = self.bridges()
        for state in states:
            if state.name == bridge:
                return state
        raise BridgeMissing(bridge=bridge, present=(state.name for state in states))

    def incarnation(self, bridge: str) -> str | None:
        return self.endpoint.incarnation(bridge)

    def dump_flows(self, bridge: str) -> tuple[ObservedFlow, ...]:
        return Ofctl(self.endpoint).dump_flows(bridge)

    def dump_flow_text(self, bridge: str, *, service_id: int | None = None) -> str:
        return Ofctl(self.endpoint).dump_flow_text(bridge, service_id=service_id)

    def dump_foreign_flows(self, bridge: str) -> tuple[ObservedFlow, ...]:
        return Ofctl(self.endpoint).dump_foreign_flows(bridge)

    def count_foreign_flows(self, bridge: str) -> int:
        return Ofctl(self.endpoint).count_foreign_flows(bridge)

    def apply(self, bridge: str, bundle: Bundle) -> None:
        Ofctl(self.endpoint).apply(bridge, bundle)

    def dump_megaflows(self) -> str:
        return Appctl(self.endpoint).dump_megaflows()

    def trace(self, bridge: str, flow: str) -> str:
        return Appctl(self.endpoint).trace(bridge, flow)

    def _check_same_switch(self, states: tuple[BridgeState, ...]) -> None:
        ofctl, sockets = Ofctl(self.endpoint), self.endpoint.bridges_with_socket()
        for state in states:
            if state.name not in sockets or ofctl.datapath_id(state.name) != state.datapath_id:
                raise SwitchError(
                    f"bridge {state.name} of the database {self.endpoint.db} is not the one at {self.endpoint.rundir}: "
                    "--db and OVS_RUNDIR are of two different Open vSwitches; give one of them alone"
                )
