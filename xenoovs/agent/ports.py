"""What the database says of a bridge, and what was said last while it says nothing.

A backend that dies while ovsdb-server hangs must lose its clients all the same: for that nothing is needed that the
database alone knows, and ovs-ofctl refuses a bundle that names a port which is not there.
"""

from __future__ import annotations

from collections.abc import Iterable

from xenoovs.errors import CommandTimeout, SwitchUnreachable
from xenoovs.model.balancer import Uplinks
from xenoovs.openflow.action import LOCAL
from xenoovs.switch.api import BridgeState, Switch, require_ports


class Ports:
    """The ports of one bridge at a time, remembered for as long as the bridge is not made anew."""

    def __init__(self, switch: Switch) -> None:
        self._switch = switch
        self._known: tuple[str | None, BridgeState] | None = None
        self._good: tuple[int | None, frozenset[str]] | None = None

    def describe(self, bridge: str) -> BridgeState:
        """As it is now; as it was last, where the database does not answer. Raises SwitchError."""
        try:
            return self._keep(self._switch.describe(bridge))
        except (SwitchUnreachable, CommandTimeout):
            if (known := self._remembered(bridge)) is None:
                raise
            return known

    def require(self, uplinks: Uplinks, ports: Iterable[str]) -> None:
        """Raises PortsMissing, UnusablePorts and others of `require_ports`. What was good once is not asked again."""
        known, wanted = self._remembered(uplinks.bridge), frozenset(ports) - {LOCAL}
        if known is not None and self._good is not None:
            datapath_id, good = self._good
            if datapath_id == uplinks.datapath_id and wanted <= known.ofports.keys() & good:
                return
        self.require_now(uplinks, wanted)

    def require_now(self, uplinks: Uplinks, ports: Iterable[str]) -> None:
        """As `require`, of the database."""
        self._known, self._good, wanted = None, None, frozenset(ports)
        self._keep(require_ports(self._switch, uplinks.bridge, wanted, datapath_id=uplinks.datapath_id))
        self._good = uplinks.datapath_id, wanted

    def _keep(self, state: BridgeState) -> BridgeState:
        self._known = self._switch.incarnation(state.name), state
        return state

    def _remembered(self, bridge: str) -> BridgeState | None:
        if self._known is None:
            return None
        incarnation, state = self._known
        return state if state.name == bridge and incarnation == self._switch.incarnation(bridge) else None
