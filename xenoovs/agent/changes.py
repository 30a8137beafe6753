"""Records the last change of each backend, and how many there were since the agent started."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from xenoovs.agent.health import AdvertisedChange, HealthChange
from xenoovs.agent.state import AgentState
from xenoovs.agent.tasks import call_each
from xenoovs.decision.decision import BackendName
from xenoovs.display import decimal
from xenoovs.model.balancer import Balancer
from xenoovs.records import dataclass
from xenoovs.show.agent import Override


@dataclass(frozen=True, slots=True)
class LastChange:
    """The last change of a backend, UTC: `down: connection refused`, `drained by an operator`; and its number."""

    time_s: float
    reason: str
    number: int


class BackendChanges:
    """The last change of each backend: by health checks, agents of servers, operators, the config, ports."""

    def __init__(self) -> None:
        self.last: Mapping[BackendName, LastChange] = {}
        self.listeners: list[Callable[[BackendName, LastChange], None]] = []

    def health(self, change: HealthChange) -> None:
        """Record backends that came up or went down."""
        state = "up" if change.is_up else "ejected" if change.was_held else "down"
        self._record((name, f"{state}: {change.reason}") for name in change.backends)

    def advertised(self, change: AdvertisedChange) -> None:
        """Record what the agent of a server advertised."""
        if change.is_new:
            self._record((name, f"{change.advertised.state} advertised by its agent") for name in change.backends)

    def observe(self, before: AgentState, after: AgentState, now_s: float) -> None:
        """Record changes by operators, the config and ports."""
        if before.runtime.overrides is not after.runtime.overrides:
            self._record(_by_operators(before.runtime.overrides, after.runtime.overrides, now_s))
        if before.balancer is not after.balancer:
            self._record(_by_config(before.balancer, after.balancer))
        if before.ports_down != after.ports_down:
            self._record(_by_ports(after.balancer, before.ports_down, after.ports_down))

    def _record(self, changes: Iterable[tuple[BackendName, str]]) -> None:
        last = dict(self.last)
        for name, reason in changes:
            number = last[name].number if name in last else 0
            last[name] = LastChange(time.time(), reason, number + 1)
            call_each(self.listeners, name, last[name])
        self.last = last


def _by_operators(
    before: Iterable[Override], after: Iterable[Override], now_s: float
) -> Iterator[tuple[BackendName, str]]:
    old, new = ({each.name: each for each in some} for some in (before, after))
    for name in old.keys() | new.keys():
        was, now = old.get(name), new.get(name)
        if now is not None and (was is None or was.state != now.state):
            yield name, f"{now.state} by an operator"
        elif was is not None and now is None:
            is_over = was.until_s is not None and was.until_s <= now_s
            yield name, f"{was.state} ended{': its time is over' if is_over else ''}"


def _by_config(before: Balancer, after: Balancer) -> Iterator[tuple[BackendName, str]]:
    old = {service.name: service for service in before.services}
    for service in after.services:
        was = old.get(service.name)
        # Mostly one of a thousand services differs.
        if was is None or was is service:
            continue
        weights = {backend.name: backend.weight for backend in was.backends}
        for backend in service.backends:
            weight = weights.get(backend.name, backend.weight)
            if weight != backend.weight:
                reason = f"weight {decimal(backend.weight)} in the config, {decimal(weight)} before"
                yield (service.name, backend.name), reason


def _by_ports(balancer: Balancer, before: frozenset[str], after: frozenset[str]) -> Iterator[tuple[BackendName, str]]:
    for service in balancer.services:
        for backend in service.backends:
            for port in {*backend.next_hop.ports} & (before ^ after):
                yield (service.name, backend.name), f"port {port} has {'no link' if port in after else 'a link again'}"
