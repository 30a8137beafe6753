"""The health of all backends of a config, and which of them are ejected. Pure: the time is an argument."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from immutables import Map

from xenoovs.agent.health.backend import BackendHealth, Check, Signal, begin, observe
from xenoovs.agent.health.checks import Checks
from xenoovs.agent.health.ejection import Ejected, Ejection, decide, may_be_ejected, will_be_held
from xenoovs.agent.health.slow_start import Known
from xenoovs.agent.probe.result import ProbeResult
from xenoovs.decision.desired import BackendName
from xenoovs.model.service import Service

_BATCH, _BATCH_S = 100, 0.1
"""So many new checks are due at once, and as many so much later: a burst of probes would be answered late."""


@dataclass(frozen=True, slots=True)
class HealthChange:
    """Backends that share a check came up or went down: a reason to log, and for a round.

    Attributes:
        backends: Their names.
        is_up: Whether they are up now.
        reason: That of the last result.
        held: Those of them that keep their clients although they are down.
        is_late: They went down before and were held; now they are ejected.
    """

    backends: tuple[BackendName, ...]
    is_up: bool
    reason: str
    held: tuple[BackendName, ...] = ()
    is_late: bool = False


@dataclass(frozen=True, slots=True)
class HealthTracker:
    """What the probes say.

    Attributes:
        checks: The checks of the config.
        health: The health by each of them.
        ejections: The backends that are down, by the name of their service; services without any are left out.
    """

    checks: Checks = field(default_factory=Checks)
    health: Map[Check, BackendHealth] = field(default_factory=Map)
    ejections: Map[str, Ejection] = field(default_factory=Map)

    @property
    def is_settled(self) -> bool:
        """Whether every check has a result."""
        return all(health.results for health in self.health.values())

    @property
    def ejected(self) -> Ejected:
        """The backends that get no clients, as decided last."""
        return {name: each.ejected for name, each in self.ejections.items() if each.ejected}

    def signals(self, service: Service) -> dict[str, Signal]:
        """Return what probes measured of the backends of a service."""
        checks = ((b.name, self.checks.by_backend.get((service.name, b.name))) for b in service.backends)
        found = ((name, self.health[check].signal) for name, check in checks if check is not None)
        return {name: signal for name, signal in found if signal is not None}

    def followed(self, checks: Checks, known: Known, now_s: float) -> HealthTracker:
        """Return the tracker for the checks of another config. Checks that stay keep their health."""
        health, new = dict[Check, BackendHealth](), 0
        for check, names in checks.backends.items():
            if (old := self.health.get(check)) is not None:
                health[check] = old
                continue
            parts, due_s = [known[name] for name in names if name in known], now_s + new // _BATCH * _BATCH_S
            health[check] = begin(check.health, known_up=all(parts) if parts else None, due_s=due_s, now_s=now_s)
            new += 1
        return HealthTracker(checks, Map(health), self._ejections(checks, health))

    def probed(
        self, check: Check, result: ProbeResult, services: Iterable[Service], *, asked_s: float, now_s: float
    ) -> tuple[HealthTracker, HealthChange | None]:
        """Return the tracker after a result, and what changed. `services`: all of them, with the weights in use."""
        before, names = self.health[check], self.checks.backends[check]
        health = observe(before, check, result, asked_s=asked_s, now_s=now_s)
        tracker = HealthTracker(self.checks, self.health.set(check, health), self.ejections)
        if health.is_up != before.is_up:
            tracker = replace(tracker, ejections=tracker._with_down(names, None if health.is_up else now_s))
            held = () if health.is_up else tuple(tracker._to_be_held(names, services))
            return tracker, HealthChange(names, health.is_up, result.reason, held)
        if health.is_up:
            return tracker, None
        tracker, late = tracker._eject_late(check, services, now_s)
        return tracker, HealthChange(late, is_up=False, reason=result.reason, is_late=True) if late else None

    def decided(self, services: Iterable[Service], now_s: float) -> HealthTracker:
        """Return the tracker after it was decided which backends are ejected."""
        if not self.ejections:
            return self
        named = {service.name: service for service in services if service.name in self.ejections}
        pairs = ((name, self._decide(named[name], now_s)) for name, each in self.ejections.items() if each.down)
        return replace(self, ejections=Map(pairs))

    def _decide(self, service: Service, now_s: float) -> Ejection:
        before = self.ejections[service.name]
        checks = ((name, self.checks.by_backend[service.name, name]) for name in before.held if name in before.down)
        failing = ((name, self.health[check].failing_s(check.health.fall)) for name, check in checks)
        return decide(before, service, {name: since_s for name, since_s in failing if since_s is not None}, now_s=now_s)

    def _ejections(self, checks: Checks, health: Mapping[Check, BackendHealth]) -> Map[str, Ejection]:
        """Return who is down by other checks. What was decided holds for backends whose check stays."""
        down = defaultdict[str, dict[str, float]](dict)
        for check, names in checks.backends.items():
            if not health[check].is_up:
                for service, backend in names:
                    down[service][backend] = health[check].since_s
        found = {}
        for service in down.keys() | self.ejections.keys():
            before = self.ejections.get(service, Ejection())
            decided = ((service, name) for name in before.ejected | before.held.keys())
            same = {n[1] for n in decided if checks.by_backend.get(n) == self.checks.by_backend.get(n)}
            held = {name: each for name, each in before.held.items() if name in same}
            found[service] = Ejection(Map(down.get(service, {})), before.ejected & same, held)
        return Map(found)

    def _with_down(self, names: Iterable[BackendName], since_s: float | None) -> Map[str, Ejection]:
        """Return who is down after backends went down, or came up (None)."""
        found = self.ejections
        for service, backend in names:
            before = found.get(service, Ejection())
            down = before.down.delete(backend) if since_s is None else before.down.set(backend, since_s)
            found = found.set(service, Ejection(down, before.ejected, before.held))
        return found

    def _to_be_held(self, names: tuple[BackendName, ...], services: Iterable[Service]) -> Iterator[BackendName]:
        own = {service for service, _ in names}
        named = {service.name: service for service in services if service.name in own}
        return (each for each in names if will_be_held(self.ejections[each[0]], named[each[0]], each[1]))

    def _eject_late(
        self, check: Check, services: Iterable[Service], now_s: float
    ) -> tuple[HealthTracker, tuple[BackendName, ...]]:
        """Eject those of the backends of a check that were held and may be ejected now; also return their names."""
        tracker, late = self, list[BackendName]()
        failing_s = self.health[check].failing_s(check.health.fall)
        for service, backend in () if failing_s is None else self.checks.backends[check]:
            if may_be_ejected(tracker.ejections[service], backend, failing_s):
                ejection = tracker._decide(next(one for one in services if one.name == service), now_s)
                tracker = replace(tracker, ejections=tracker.ejections.set(service, ejection))
                if backend in ejection.ejected:
                    late.append((service, backend))
        return tracker, tuple(late)
