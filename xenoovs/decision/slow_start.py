"""Slow start: a backend that comes, or comes back, gets its clients in steps. Pure: the time is an argument."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fractions import Fraction

from xenoovs.dataclass import dataclass, field
from xenoovs.decision.decision import BackendName
from xenoovs.decision.ejection import Ejected
from xenoovs.model.balancer import Balancer, Service
from xenoovs.partition.change import STEPS

KnownShares = Mapping[BackendName, Fraction]
"""The part (0..1) of its clients that each backend has on the bridge, as an earlier agent left it. 0: the backend is
ejected; below 1: it is in a slow start. Backends that are new to the bridge are left out."""

Ramps = Mapping[BackendName, Fraction]
"""Part of its clients (0 < part < 1) that each backend in a slow start has by now."""


@dataclass(frozen=True, slots=True)
class SlowStarts:
    """The slow starts of all services.

    Attributes:
        balancer: The balancer that was observed last; None: none was yet.
        ejected: The backends that had no clients then.
        begun: When each start began that is not over.
    """

    balancer: Balancer | None = None
    ejected: Ejected = field(default_factory=dict)
    begun: Mapping[BackendName, float] = field(default_factory=dict)


def update_slow_starts(
    before: SlowStarts, balancer: Balancer, ejected: Ejected, *, known: KnownShares, now_s: float
) -> SlowStarts:
    """Return the slow starts after backends were ejected, returned or added.

    A start begins for a backend that had no clients or is new. The first call continues the starts of an earlier agent,
    by `known`. If all backends of a service would start slowly, none does: no other could serve their clients
    meanwhile.
    """
    if not before.begun and (before.balancer, before.ejected) == (balancer, ejected):
        return before
    names = _differing(before, balancer, ejected)
    serving = _serving(balancer, ejected, names)
    served = known if before.balancer is None else _serving(before.balancer, before.ejected, names)
    begun = _begun_before(serving, known, now_s) if before.balancer is None else before.begun
    starts = {name: begun.get(name, now_s) for name in serving if name in begun or name not in served}
    running = {name: since_s for name, since_s in starts.items() if _part(serving[name], now_s - since_s) < 1}
    settled = {service for service, backend in serving if (service, backend) not in running}
    return SlowStarts(balancer, ejected, {name: since_s for name, since_s in running.items() if name[0] in settled})


def ramps(starts: SlowStarts, balancer: Balancer, *, now_s: float) -> Ramps:
    """Return how far each start has come, in steps of one part of `STEPS`. Those that are over are left out."""
    if not starts.begun:
        return {}
    services = {service.name: service for service in balancer.services}
    begun = ((name, services[name[0]], since_s) for name, since_s in starts.begun.items() if name[0] in services)
    parts = {name: _part(service, now_s - since_s) for name, service, since_s in begun}
    return {name: part for name, part in parts.items() if part < 1}


def _differing(before: SlowStarts, balancer: Balancer, ejected: Ejected) -> set[str]:
    """Return the names of the services in which a start may begin, go on or end."""
    old = {service.name: service for service in (() if before.balancer is None else before.balancer.services)}
    starting = {service for service, _ in before.begun}
    return {
        service.name
        for service in balancer.services
        if service.name in starting
        or service.name not in old
        # Mostly it is the same object.
        or (old[service.name] is not service and old[service.name] != service)
        or before.ejected.get(service.name) != ejected.get(service.name)
    }


def _serving(balancer: Balancer, ejected: Ejected, names: Collection[str]) -> dict[BackendName, Service]:
    """Return the backends of these services that may have clients by weight, each with its service."""
    return {
        (service.name, backend.name): service
        for service in balancer.services
        if service.name in names
        for backend, weight in zip(service.backends, service.weights, strict=True)
        if weight and backend.name not in ejected.get(service.name, ())
    }


def _begun_before(serving: Mapping[BackendName, Service], known: KnownShares, now_s: float) -> dict[BackendName, float]:
    """Return when the starts began that the bridge shows under way: as if half of the time of their step were over.

    Those that the bridge shows ejected, and that answer by now, begin.
    """
    midway = {name: part for name, part in known.items() if part < 1 and name in serving}
    return {
        name: now_s - max(0.0, float(part) * STEPS - 0.5) / (STEPS - 1) * _ramp_s(serving[name])
        for name, part in midway.items()
    }


def _part(service: Service, elapsed_s: float) -> Fraction:
    """Return the part that a start has after so long: its first step at once, its last when the time is over."""
    ramp_s = _ramp_s(service)
    if elapsed_s >= ramp_s:
        return Fraction(1)
    return Fraction(1 + int(max(0.0, elapsed_s) * (STEPS - 1) / ramp_s), STEPS)


def _ramp_s(service: Service) -> float:
    return (service.health.ramp_ms or 0) / 1000 if service.health is not None else 0.0
