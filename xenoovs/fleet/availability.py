"""Which backends of a fleet may have clients: ejections of those that are down by votes, and slow starts. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from xenoovs.decision.decision import BackendName
from xenoovs.decision.ejection import Ejected, Ejection, decide_ejections
from xenoovs.decision.slow_start import KnownShares, Ramps, SlowStarts, ramps, update_slow_starts
from xenoovs.model.balancer import Balancer, Health, Service


@dataclass(frozen=True, slots=True)
class Availability:
    """Which backends of a config may have clients.

    Attributes:
        ejected: Those that get none.
        ramps: Part of its clients that each backend in a slow start has by now.
        held: Those that are down and keep their clients; they get none of others.
    """

    ejected: Ejected = field(default_factory=dict)
    ramps: Ramps = field(default_factory=dict)
    held: Ejected = field(default_factory=dict)

    def by_service(self) -> dict[str, Availability]:
        """Return the same for each service alone; those all of whose backends may have clients are left out."""
        ramps = defaultdict[str, dict[BackendName, Fraction]](dict)
        for name, part in self.ramps.items():
            ramps[name[0]][name] = part
        return {
            name: Availability(_only(self.ejected, name), ramps.get(name, {}), _only(self.held, name))
            for name in {*self.ejected, *ramps, *self.held}
        }


def _only(names: Ejected, service: str) -> Ejected:
    return {service: names[service]} if service in names else {}


@dataclass(frozen=True, slots=True)
class FleetAvailability:
    """The same for the config in use, and for that of a roll-out."""

    in_use: Availability = Availability()
    rolled_out: Availability = Availability()


@dataclass(frozen=True, slots=True)
class AvailabilityHistory:
    """What was decided about one config so far.

    Attributes:
        ejections: By service; those without a backend that is down are left out.
    """

    ejections: Mapping[str, Ejection] = field(default_factory=dict)
    starts: SlowStarts = field(default_factory=SlowStarts)

    @property
    def ejected(self) -> Ejected:
        return {name: each.ejected for name, each in self.ejections.items() if each.ejected}

    @property
    def held(self) -> Ejected:
        down = ((name, frozenset(each.down) - each.ejected) for name, each in self.ejections.items())
        return {name: names for name, names in down if names}

    @property
    def is_waiting(self) -> bool:
        """Whether time alone may change something."""
        return bool(self.starts.begun) or any(each.held for each in self.ejections.values())

    def availability(self, balancer: Balancer, *, now_s: float) -> Availability:
        """Return which backends may have clients now."""
        return Availability(self.ejected, ramps(self.starts, balancer, now_s=now_s), self.held)


def followed(
    before: AvailabilityHistory,
    balancer: Balancer,
    down: Mapping[str, Mapping[str, float]],
    *,
    known: KnownShares,
    now_s: float,
) -> AvailabilityHistory:
    """Return the history after backends went down or came up.

    Args:
        balancer: The config with the weights in use.
        down: Since when backends are down, by service and name, perhaps on another clock.
        known: What the store has, for the first call.
    """
    is_first = before.starts.balancer is None
    ejections = {}
    for service in balancer.services:
        if names := down.get(service.name):
            old = before.ejections.get(service.name, Ejection())
            if is_first:
                old = Ejection(ejected=frozenset(name for name in names if known.get((service.name, name)) == 0))
            ejections[service.name] = _ejection(old, service, names, now_s)
    ejected = {name: each.ejected for name, each in ejections.items() if each.ejected}
    starts = update_slow_starts(before.starts, balancer, ejected, known=known, now_s=now_s)
    return AvailabilityHistory(ejections, starts)


def _ejection(before: Ejection, service: Service, down: Mapping[str, float], now_s: float) -> Ejection:
    # A backend that is still down by votes has failed its last probes, of which the first was sent so long ago.
    failing = {} if service.health is None else {name: now_s - fall_s(service.health) for name in before.held}
    return decide_ejections(replace(before, down=down), service, failing, now_s=now_s)


def fall_s(health: Health) -> float:
    """Return how long a health check takes at most to find that a backend is down, in seconds."""
    return (health.interval_ms + (health.fall - 1) * health.fast_interval_ms + health.timeout_ms) / 1000
