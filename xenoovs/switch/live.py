"""A real Open vSwitch: its database, OpenFlow at its management sockets, and its tools for the rest."""

from __future__ import annotations

from dataclasses import dataclass

from xenoovs.errors import BridgeMissing, NotEncodable, SwitchError
from xenoovs.openflow.bundle import Bundle
from xenoovs.openflow.cookie import FOREIGN, OURS, Cookies
from xenoovs.openflow.flow import ObservedFlow
from xenoovs.openflow.wire.features import FeaturesReply, FeaturesRequest
from xenoovs.switch.api import BridgeState
from xenoovs.switch.appctl import Appctl
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.ofctl import Ofctl
from xenoovs.switch.openflow.bundle import send_bundle
from xenoovs.switch.openflow.exchange import ask
from xenoovs.switch.openflow.flows import count_flows, decode_flows, render_dump, request_flows
from xenoovs.switch.openflow.management import connected
from xenoovs.switch.ovsdb import DEFAULT_TIMEOUT_S, read_bridges

_FEW_FLOWS = 500
"""Up to so many flows are decoded and rendered faster than ovs-ofctl starts and prints them (docs/adr/0017)."""


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

    def dump_flows(self, bridge: str, *, only: Cookies = OURS) -> tuple[ObservedFlow, ...]:
        with connected(self.endpoint, bridge) as connection:
            return decode_flows(request_flows(connection, only), connection.names)

    def dump_flow_text(self, bridge: str, *, only: Cookies = OURS) -> str:
        with connected(self.endpoint, bridge) as connection:
            counts = dict(zip(only, count_flows(connection, only), strict=True))
            few = tuple(each for each, flows in counts.items() if 0 < flows <= _FEW_FLOWS)
            text = render_dump(decode_flows(request_flows(connection, few), connection.names)) if few else ""
        many = (each for each, flows in counts.items() if flows > _FEW_FLOWS)
        return text + "".join(Ofctl(self.endpoint).dump_flow_text(bridge, each) for each in many)

    def dump_foreign_flows(self, bridge: str) -> tuple[ObservedFlow, ...]:
        """Return the flows of others as ovs-ofctl prints them, which has a name for every action and field."""
        return Ofctl(self.endpoint).dump_foreign_flows(bridge) if self.count_flows(bridge, only=FOREIGN) else ()

    def count_flows(self, bridge: str, *, only: Cookies = OURS) -> int:
        with connected(self.endpoint, bridge) as connection:
            return sum(count_flows(connection, only))

    def apply(self, bridge: str, bundle: Bundle) -> None:
        """Apply all flow-mods or none. An empty bundle sends nothing. Raises BundleRejected."""
        if not bundle.mods:
            return
        try:
            with connected(self.endpoint, bridge) as connection:
                send_bundle(connection, bundle, ofports=connection.numbers)
        except NotEncodable:
            # A flow from a dump of ovs-ofctl, which can send what it prints; or a port that is not there.
            Ofctl(self.endpoint).apply(bridge, bundle)

    def dump_megaflows(self) -> str:
        return Appctl(self.endpoint).dump_megaflows()

    def trace(self, bridge: str, flow: str) -> str:
        return Appctl(self.endpoint).trace(bridge, flow)

    def _check_same_switch(self, states: tuple[BridgeState, ...]) -> None:
        sockets = self.endpoint.bridges_with_socket()
        for state in states:
            if state.name not in sockets or self._datapath_id(state.name) != state.datapath_id:
                raise SwitchError(
                    f"bridge {state.name} of the database {self.endpoint.db} is not the one at {self.endpoint.rundir}: "
                    "--db and OVS_RUNDIR are of two different Open vSwitches; give one of them alone"
                )

    def _datapath_id(self, bridge: str) -> str | None:
        """16 hexadecimal digits, as column datapath_id of table Bridge has them."""
        with connected(self.endpoint, bridge) as connection:
            features = ask(connection, FeaturesRequest())
        return f"{features.datapath_id:016x}" if isinstance(features, FeaturesReply) else None
