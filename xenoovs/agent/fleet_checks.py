"""The health checks of a DPU in a fleet: often for the targets whose witness it is, and seldom for the others. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from xenoovs.agent.health import Check, Checks, by_check, check_of, shared_health
from xenoovs.dataclass import dataclass, replace
from xenoovs.decision.decision import BackendName
from xenoovs.decision.slow_start import KnownShares
from xenoovs.fleet.votes import target_of
from xenoovs.model.balancer import Balancer, Health, Service
from xenoovs.store.view import FleetView

SELF_CHECK_MS = 10_000
"""Between two probes of a backend by a DPU that is no witness of it: 1,000 DPUs make 100 probes a second."""


@dataclass(frozen=True, slots=True)
class FleetWatches:
    """The health of targets, as one DPU reads it from a view of the store: `down` by votes, `witnessed` by this DPU."""

    generation: int
    down: frozenset[str] = frozenset()
    witnessed: frozenset[str] = frozenset()

    @classmethod
    def of(cls, view: FleetView, dpu: str) -> FleetWatches:
        watches = view.watches.values()
        return cls(
            view.generation,
            frozenset(watch.target for watch in watches if watch.is_down),
            frozenset(watch.target for watch in watches if dpu in watch.witnesses),
        )


def fleet_checks(balancer: Balancer, watches: FleetWatches, last: tuple[Balancer, Checks] | None = None) -> Checks:
    """Return the checks of all backends that have one: by `health` where the DPU is a witness, else seldom. `last`: the
    checks of another config, of the same witnesses, which are taken for services that it has too."""
    before, known = ({service.name: service for service in last[0].services}, last[1]) if last else ({}, Checks())
    checks = dict[BackendName, Check]()
    for service in balancer.services:
        if before.get(service.name) is service:
            names = ((service.name, backend.name) for backend in service.backends)
            checks |= {name: known.by_backend[name] for name in names if name in known.by_backend}
        elif service.health is not None:
            checks |= _checks_of(service, service.health, watches)
    return known if checks == known.by_backend else Checks(by_check(checks), checks)


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
