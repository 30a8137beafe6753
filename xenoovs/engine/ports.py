"""The ports of a bridge as the database last described them, for as long as the bridge is the same.

A backend that dies while ovsdb-server hangs must lose its clients all the same. That needs nothing that the database
alone knows, and Open vSwitch refuses a bundle that names a port which is not there.
"""

from __future__ import annotations

from xenoovs.errors import CommandTimeout, SwitchUnreachable
from xenoovs.model.balancer import Balancer
from xenoovs.switch.api import PortCheck, Switch, check_ports


class Ports:
    """Remembers one bridge at a time."""

    def __init__(self, switch: Switch) -> None:
        self._switch = switch
        self._known: tuple[str | None, Balancer, PortCheck] | None = None

    def check(self, balancer: Balancer) -> PortCheck:
        """Return what the database says now; while it does not answer, what it said last. Raises SwitchError."""
        uplinks = balancer.uplinks
        try:
            found = check_ports(self._switch, uplinks.bridge, balancer.ports, datapath_id=uplinks.datapath_id)
        except (SwitchUnreachable, CommandTimeout):
            if (known := self.remembered(balancer)) is None:
                raise
            return known
        self._known = self._switch.incarnation(uplinks.bridge), balancer, found
        return found

    def remembered(self, balancer: Balancer) -> PortCheck | None:
        """Return what was found last, if it was this bridge and every port of the config was among those asked for."""
        if self._known is None:
            return None
        incarnation, asked, found = self._known
        same = asked.uplinks == balancer.uplinks and set(balancer.ports) <= set(asked.ports)
        return found if same and incarnation == self._switch.incarnation(balancer.uplinks.bridge) else None

    def forget(self) -> None:
        """Ask the database before the next change."""
        self._known = None
