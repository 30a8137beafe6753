"""A real Open vSwitch: the database tells what is there, ovs-ofctl and ovs-appctl do the rest."""

from __future__ import annotations

from dataclasses import dataclass

from xenoovs.errors import BridgeMissing
from xenoovs.openflow.bundle import Bundle
from xenoovs.openflow.flow import ObservedFlow
from xenoovs.switch.api import BridgeState
from xenoovs.switch.appctl import Appctl
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.ofctl import Ofctl
from xenoovs.switch.ovsdb import read_bridges


@dataclass(frozen=True, slots=True)
class LiveSwitch:
    """The Open vSwitch at `endpoint`; nothing is kept between calls. Implements `Switch`."""

    endpoint: Endpoint

    def bridges(self) -> tuple[BridgeState, ...]:
        return read_bridges(self.endpoint)

    def describe(self, bridge: str) -> BridgeState:
        states = self.bridges()
        for state in states:
            if state.name == bridge:
                return state
        raise BridgeMissing(bridge=bridge, present=(state.name for state in states))

    def dump_flows(self, bridge: str) -> tuple[ObservedFlow, ...]:
        return Ofctl(self.endpoint).dump_flows(bridge)

    def count_foreign_flows(self, bridge: str) -> int:
        return Ofctl(self.endpoint).count_foreign_flows(bridge)

    def apply(self, bridge: str, bundle: Bundle) -> None:
        Ofctl(self.endpoint).apply(bridge, bundle)

    def dump_megaflows(self) -> str:
        return Appctl(self.endpoint).dump_megaflows()

    def trace(self, bridge: str, flow: str) -> str:
        return Appctl(self.endpoint).trace(bridge, flow)
