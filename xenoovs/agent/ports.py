"""What the database says of a bridge, and what was said last while it says nothing.

A backend that dies while ovsdb-server hangs must lose its clients all the same: for that nothing is needed that the
database alone knows, and ovs-ofctl refuses a bundle that names a port which is not there.
"""

from __future__ import annotations

from collections.abc import Iterable

from xenoovs.errors import CommandTimeout, SwitchUnreachable
from xenoovs.openflow.action import LOCAL
from xenoovs.switch.api import BridgeState, Switch, require_ports


class Ports:
    """The ports of one bridge at a time, remembered for as long as the bridge is not made anew."""

    def __init__(self, switch: Switch) -> None:
        self._switch = switch
        self._known: tuple[str | None, BridgeState] | None = None
        self._good: frozenset[str] = frozenset()

    def describe(self, bridge: str) -> BridgeState:
        """As it is now; as it was last, where the database does not answer. Raises SwitchError."""
        try:
            return self._keep(self._switch.describe(bridge))
        except (SwitchUnreachable, CommandTimeout):
            if (known := self._remembered(bridge)) is None:
                raise
            return known

    def require(self, bridge: str, ports: Iterable[str]) -> None:
        """Raises PortsMissing, UnusablePorts and others of `require_ports`. What was good once is not asked again."""
        known = self._remembered(bridge)
        wanted = set(ports) - {LOCAL}
        if known is None or not wanted <= known.ofports.keys() & self._good:
            self.require_now(bridge, wanted)

    def require_now(self, bridge: str, ports: Iterable[str]) -> None:
        """As `require`, of the database."""
        self._known, self._good, wanted = None, frozenset(), frozenset(ports)
        self._keep(require_ports(self._switch, bridge, wanted))
        self._good = wanted

    def _keep(self, state: BridgeState) -> BridgeState:
        self._known = self._switch.incarnation(state.name), state
        return state

    def _remembered(self, bridge: str) -> BridgeState | None:
        if self._known is None:
            return None
        incarnation, state = self._known
        return state if state.name == bridge and incarnation == self._switch.incarnation(bridge) else None
