"""Rounds by a way to the switch that tells of its ports, and has to know the balancer itself."""

from __future__ import annotations

from collections.abc import Callable

from xenoovs.agent.links import PortsDown
from xenoovs.agent.reconcile import Reconciler, Round
from xenoovs.compile.program import Outages
from xenoovs.model.balancer import Balancer
from xenoovs.switch.api import Switch

Follow = Callable[[Balancer], None]
"""Takes the balancer of each round. Answers at once."""

Resolve = Callable[[Balancer], Balancer]
"""As of Reconciler."""


class LinkReconciler(Reconciler):
    """A reconciler for a switch that tells of its ports at once. `follow`: who else has to know the balancer."""

    def __init__(
        self, switch: Switch, ports_down: PortsDown, *, follow: Follow | None = None, resolve: Resolve | None = None
    ) -> None:
        super().__init__(switch, resolve=resolve)
        self._ports_down, self._follow = ports_down, follow

    def ports_down(self, bridge: str) -> frozenset[str]:
        return self._ports_down(bridge)

    def round(self, balancer: Balancer, out: Outages, *, now_s: float) -> Round:
        """As in `Reconciler`."""
        if self._follow is not None:
            self._follow(balancer)
        return super().round(balancer, out, now_s=now_s)
