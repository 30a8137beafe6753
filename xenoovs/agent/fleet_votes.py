"""The health checks of a DPU in a fleet: it votes on the targets whose witness it is, and probes the others seldom.

So it finds what it alone cannot reach. Neither moves clients on this DPU: the store decides. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from xenoovs.agent.health import Check, Checks, by_check, check_of, shared_health
from xenoovs.decision.decision import BackendName
from xenoovs.decision.slow_start import KnownShares
from xenoovs.fleet.services import ResultMemory
from xenoovs.fleet.votes import Targets, target_of, targets_of
from xenoovs.model.balancer import Balancer, Health, Service
from xenoovs.store.view import FleetView

if TYPE_CHECKING:
    from xenoovs.agent.state import AgentState

SELF_CHECK_MS = 10_000
"""Between two probes of a backend by a DPU that is no witness of it: 1,000 DPUs make 100 probes a second."""


@dataclass(frozen=True, slots=True)
class FleetWatches:
    """The health of a fleet's targets, as one DPU reads it from the store.

    Attributes:
        generation: Of the view that this comes from.
        down: Those that are down by votes.
        witnessed: Those of which this DPU is a witness.
    """

    generation: int
    down: frozenset[str] = frozenset()
    witnessed: frozenset[str] = frozenset()

    @classmethod
    def of(cls, view: FleetView, dpu: str) -> FleetWatches:
        """Return what a view has for a DPU."""
        watches = view.watches.values()
        return cls(
            view.generation,
            frozenset(watch.target for watch in watches if watch.is_down),
            frozenset(watch.target for watch in watches if dpu in watch.witnesses),
        )


def fleet_checks(balancer: Balancer, watches: FleetWatches, before: AgentState | None = None) -> Checks:
    """Return the checks of all backends that have one: by `health` where the DPU is a witness, else seldom.

    Args:
        before: The state before. The checks of a service that stays are its checks, and all of them if none changes.
    """
    old, last = dict[str, Service](), Checks()
    if before is not None and before.watches is not None and before.watches.witnessed == watches.witnessed:
        old, last = {service.name: service for service in before.balancer.services}, before.tracker.checks
    checks = dict[BackendName, Check]()
    for service in balancer.services:
        if old.get(service.name) is service:
            names = ((service.name, backend.name) for backend in service.backends)
            checks |= {name: last.by_backend[name] for name in names if name in last.by_backend}
        elif service.health is not None:
            checks |= _checks_of(service, service.health, watches)
    return last if checks == last.by_backend else Checks(by_check(checks), checks)


def _checks_of(service: Service, health: Health, watches: FleetWatches) -> Iterator[tuple[BackendName, Check]]:
    often = shared_health(health)
    seldom = replace(often, interval_ms=SELF_CHECK_MS, fast_interval_ms=SELF_CHECK_MS)
    for backend in service.backends:
        if (target := target_of(service, backend)) is not None:
            check = check_of(service, backend, often if target in watches.witnessed else seldom)
            yield (service.name, backend.name), check


def fleet_shares(balancer: Balancer, watches: FleetWatches) -> KnownShares:
    """Return the first state of a new check: that of the fleet. So a new witness changes no vote before its results."""
    return {
        (service.name, backend.name): Fraction(target not in watches.down)
        for service in balancer.services
        for backend in service.backends
        if (target := target_of(service, backend)) is not None
    }


class FleetVoter:
    """Finds the targets that a DPU cannot reach. It remembers the targets of the last config."""

    def __init__(self) -> None:
        self._last: tuple[Balancer, Targets] | None = None
        self._memory = ResultMemory()

    def down(self, state: AgentState) -> frozenset[str]:
        """Return the targets that this DPU cannot reach, of those whose witness it is."""
        witnessed = frozenset() if state.watches is None else state.watches.witnessed
        return frozenset(target for target in self._dark(state) if target in witnessed)

    def is_cut_off(self, state: AgentState) -> bool:
        """Return whether this DPU cannot reach more than half of the targets that are up by votes."""
        known_down = frozenset() if state.watches is None else state.watches.down
        up = self._targets(state.balancer).keys() - known_down
        return 2 * sum(target in up for target in self._dark(state)) > len(up)

    def _dark(self, state: AgentState) -> Iterator[str]:
        """Yield the targets that are down by the checks of this DPU."""
        tracker = state.tracker
        for target, names in self._targets(state.balancer).items():
            check = tracker.checks.by_backend.get(names[0])
            if check is not None and not tracker.health[check].is_up:
                yield target

    def _targets(self, balancer: Balancer) -> Targets:
        if self._last is None or self._last[0] is not balancer:
            self._last = balancer, targets_of(balancer, self._memory)
        return self._last[1]
