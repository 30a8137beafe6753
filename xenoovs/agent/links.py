"""Rounds that also know which ports have no link: backends behind them are out like those that do not answer."""

from __future__ import annotations

from collections.abc import Callable

from xenoovs.agent.reconcile import Reconciler, Round
from xenoovs.compile.program import Outages
from xenoovs.model.balancer import Balancer
from xenoovs.switch.api import Switch

PortsDown = Callable[[str], frozenset[str]]
"""The ports without link, by the name of a bridge. Answers at once."""

Resolve = Callable[[Balancer], Balancer]
"""As of Reconciler."""

Follow = Callable[[Balancer], None]
"""Takes the balancer of each round. Answers at once."""


class LinkReconciler(Reconciler):
    """A reconciler for a switch that tells of its ports at once. `follow`: who else has to know the balancer."""

    def __init__(
        self, switch: Switch, ports_down: PortsDown, *, follow: Follow | None = None, resolve: Resolve | None = None
    ) -> None:
        super().__init__(switch, resolve=resolve)
        self._ports_down, self._follow = ports_down, follow

    def round(self, balancer: Balancer, out: Outages, *, now_s: float = 0.0) -> Round:
        """As in `Reconciler`; backends behind ports that are down count as out."""
        if self._follow is not None:
            self._follow(balancer)
        down = self._ports_down(balancer.uplinks.bridge)
        return super().round(balancer, with_links(balancer, out, down), now_s=now_s)


def with_links(balancer: Balancer, out: Outages, down: frozenset[str]) -> Outages:
    """`out`, and the backends whose egress is one of the ports `down`.

    `max_down` does not hold here: a port without link is no mistake of a probe. Where nobody would be left the service
    stays as it is: its packets cannot leave either way, and when the link is back all is in place.
    """
    if not down:
        return out
    told = {}
    for service in balancer.services:
        weighted = {backend.name for backend in service.backends if backend.weight}
        behind = {backend.name for backend in service.backends if backend.weight and backend.egress in down}
        fallen = out.get(service.name, frozenset())
        told[service.name] = fallen if weighted <= fallen | behind else fallen | behind
    return told
