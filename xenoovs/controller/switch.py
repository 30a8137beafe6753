"""The second way to a switch: bridges that connect to us. What OpenFlow cannot tell, a host that is ours does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from xenoovs.controller.bridge import Place
from xenoovs.controller.connection import HostView, Line, count, dump, send_bundle
from xenoovs.controller.registry import Board
from xenoovs.errors import BridgeMissing, NotTold, OtherBridge, StandingBy, SwitchError
from xenoovs.openflow.flow import OURS, Bundle, Cookies, ObservedFlow
from xenoovs.openflow.text import render_mac
from xenoovs.openflow.wire.message import Port
from xenoovs.switch.api import BridgeState, PortState
from xenoovs.switch.live import LiveSwitch
from xenoovs.switch.openflow import render_dump


@dataclass(frozen=True, slots=True)
class ControllerSwitch:
    """Implements `Switch` for bridges that are connected.

    local:      the Open vSwitch of this host, for megaflows, traces and its database; None: the switch is elsewhere.
    patience_s: how long a call waits for a bridge that is not connected.
    only:       the one bridge that may be worked on; None: any, which is let in as soon as it is asked for.
    """

    board: Board
    local: LiveSwitch | None = None
    patience_s: float = 0.0
    only: Place | None = None

    def bridges(self) -> tuple[BridgeState, ...]:
        """All bridges of the host where it is ours, else those that are connected.

        The database is asked again when a port has come or gone, which a bridge tells; asking takes longer than all the
        rest of what has to be done when a port goes down. `describe` always asks.
        """
        lines = self.board.lines if self.only is None else self.only.lines
        if self.local is None or not all(map(self._is_here, lines)):
            return tuple(_state(line) for line in lines)
        if not lines:
            return self.local.bridges()
        key = tuple((line, port.number, port.name) for line in lines for port in line.ports)
        view = lines[0].host_view
        if view is None or view.key != key:
            view = lines[0].host_view = HostView(key, self.local.bridges())
        return view.states

    def describe(self, bridge: str) -> BridgeState:
        line = self._line(bridge)
        return self.local.describe(bridge) if self.local is not None and self._is_here(line) else _state(line)

    def incarnation(self, bridge: str) -> str | None:
        line = self._place(bridge).line
        return None if line is None else f"{line.datapath_id:016x}-{line.generation}"

    def dump_flows(self, bridge: str, *, only: Cookies = OURS) -> tuple[ObservedFlow, ...]:
        return dump(self._line(bridge), only)

    def dump_flow_text(self, bridge: str, *, only: Cookies = OURS) -> str:
        """Raises StandingBy too: who may change nothing need not look."""
        line = self._line(bridge)
        if line.is_standby:
            raise StandingBy(bridge=bridge)
        return render_dump(dump(line, only))

    def count_flows(self, bridge: str, *, only: Cookies = OURS) -> int:
        return count(self._line(bridge), only)

    def apply(self, bridge: str, bundle: Bundle) -> None:
        """All flow-mods or none. Raises BundleRejected, StandingBy, SwitchUnreachable."""
        if not bundle.mods:
            return
        line = self._line(bridge)
        if line.is_standby:
            raise StandingBy(bridge=bridge)
        send_bundle(line, bundle)

    def dump_megaflows(self) -> str:
        return self._host("megaflows").dump_megaflows()

    def trace(self, bridge: str, flow: str) -> str:
        return self._host("a trace").trace(bridge, flow)

    def _place(self, bridge: str) -> Place:
        if self.only is None:
            return self.board.want(bridge)
        if self.only.bridge != bridge:
            raise OtherBridge(mine=self.only.label, wanted=bridge)
        return self.only

    def _line(self, bridge: str) -> Line:
        place = self._place(bridge)
        if self.local is not None and place.line is None:
            present = self.local.endpoint.bridges_with_socket()
            if present and bridge not in present:
                raise BridgeMissing(bridge=bridge, present=present)
        return place.connected(patience_s=self.patience_s)

    def _is_here(self, line: Line) -> bool:
        """Whether it is a bridge of this host, and not another one of the same name."""
        if line.is_here is None and self.local is not None:
            mine = line.bridge, f"{line.datapath_id:016x}"
            try:
                line.is_here = mine in {(state.name, state.datapath_id) for state in self.local.bridges()}
            except SwitchError:
                return False
        return bool(line.is_here)

    def _host(self, wanted: str) -> LiveSwitch:
        lines = () if self.only is None else self.only.lines
        if self.local is None or not all(map(self._is_here, lines)):
            raise NotTold(wanted=wanted)
        return self.local


def port_states(lines: Iterable[Line]) -> dict[str, PortState] | None:
    """The ports of a bridge by their names, as OpenFlow tells them; None while it is not connected."""
    return next(({state.name: state for state in map(_port_state, line.ports)} for line in lines), None)


def _port_state(port: Port) -> PortState:
    # Open vSwitch counts its ports in 16 bits (ovs-vswitchd.conf.db(5), column ofport).
    number, kind = port.number & 0xFFFF, "internal" if port.is_local else "system"
    return PortState(port.name, number, kind, link_up=port.is_up, mac=render_mac(port.mac))


def _state(line: Line) -> BridgeState:
    """What OpenFlow tells of a bridge."""
    states = tuple(sorted(map(_port_state, line.ports), key=lambda port: port.name))
    return BridgeState(
        line.bridge,
        states,
        datapath_id=f"{line.datapath_id:016x}",
        controllers=(line.carrier.peer,),
        protocols=("OpenFlow14",),
    )
