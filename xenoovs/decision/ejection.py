"""Which backends that are down get no clients: `max_down` limits how many. Pure: the time is an argument.

If all probes fail, the probes are the more likely fault. A backend that goes down while the limit is reached is held:
it keeps its clients. When the limit later allows one more ejection, the failures of a held backend are old, and it may
be about to answer. So it is ejected only after `fall` more failures in a row of probes that were sent since.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction

from xenoovs.dataclass import dataclass, field, replace
from xenoovs.decision.decision import BackendName
from xenoovs.model.balancer import AllDown, Balancer, Health, Service
from xenoovs.partition.change import STEPS

Ejected = Mapping[str, frozenset[str]]
"""Names of the backends that get no clients, by the name of their service. Services without any are left out."""


@dataclass(frozen=True, slots=True)
class Ejection:
    """The backends of one service that are down, with the times. By the last decision the `ejected` get no clients, and
    the `held` keep theirs: with the time since when the limit allows one more ejection, None if it does not."""

    down: Mapping[str, float] = field(default_factory=dict)
    ejected: frozenset[str] = frozenset()
    held: Mapping[str, float | None] = field(default_factory=dict)

    def with_down(self, down: Mapping[str, float]) -> Ejection:
        """Return the last decision for the backends that are down now. Those that came up since are held no more."""
        held = {name: free_s for name, free_s in self.held.items() if down.get(name) == self.down[name]}
        return Ejection(down, self.ejected, held)


def held_backends(ejections: Mapping[str, Ejection], ejected: Ejected) -> Ejected:
    """Return the backends, by service, that are down and keep their clients because of `max_down` or `on_all_down`."""
    held = ((name, frozenset(each.down) - ejected.get(name, frozenset())) for name, each in ejections.items())
    return {name: names for name, names in held if names}


def decide_ejections(before: Ejection, service: Service, failing: Mapping[str, float], *, now_s: float) -> Ejection:
    """Decide which backends of a service, with the weights in use, get no clients. `before`: the backends that are down
    now, and the last decision about them. `service`: its backends without a weight count neither as up nor as down.
    While one of its backups is up, nothing limits ejections, as it can serve all clients. `failing`: when the first of
    the last `fall` probes was sent, for each held backend that failed all of them."""
    if service.health is None or not before.down:
        return Ejection(before.down)
    down = sorted((b for b in service.backends if b.name in before.down), key=lambda b: before.down[b.name])
    split, backups = _pools(service)
    names, total = [backend.name for backend in down if backend.name in split], len(split)
    limits = _limits(service.health, backups, before.down)
    stale = {name for name in before.held if not may_be_ejected(before, name, failing.get(name))}
    ejected = select_ejected(names, total=total, health=limits, before=before.ejected, stale=stale)
    free_s = now_s if len(ejected) < max_ejected(total, limits) else None
    held = dict.fromkeys((name for name in names if name not in ejected), free_s)
    if free_s is not None:
        held |= {name: was for name in held if (was := before.held.get(name)) is not None}
    return Ejection(before.down, ejected.union(b.name for b in down if b.name in backups or not b.weight), held)


def _pools(service: Service) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of the backends that split the clients by weight, and of the backups that wait."""
    pairs = zip(service.backends, service.weights, strict=True)
    split = frozenset(backend.name for backend, weight in pairs if weight)
    return split, frozenset(backend.name for backend in service.backends if backend.weight) - split


def _limits(health: Health, backups: Collection[str], down: Collection[str]) -> Health:
    """Return the health check, without limits to ejections while a backup is up."""
    if all(name in down for name in backups):
        return health
    return replace(health, max_down=Fraction(1), on_all_down=AllDown.DROP)


def select_ejected(
    down: Sequence[str], *, total: int, health: Health, before: Collection[str] = (), stale: Collection[str] = ()
) -> frozenset[str]:
    """Select the backends to eject: at most `max_down` of all, and never all. Those that went down first come first.

    If all are down, and `on_all_down` says to drop their packets, all are ejected. `total`: number of backends with a
    weight. `before`: backends that are ejected already. `stale`: backends that must not be ejected yet.
    """
    if len(down) >= total and health.on_all_down is AllDown.DROP:
        return frozenset(down)
    limit = max_ejected(total, health)
    stay = [name for name in down if name in before][:limit]
    others = [name for name in down if name not in before and name not in stale]
    return frozenset([*stay, *others[: limit - len(stay)]])


def max_ejected(total: int, health: Health) -> int:
    """Return how many of `total` backends may be ejected at once, unless all are down and dropped."""
    return max(min(int(health.max_down * total), total - 1), 0)


def may_be_ejected(before: Ejection, name: str, failing_s: float | None) -> bool:
    """Return whether a held backend failed `fall` probes since the limit allows it. `failing_s`: of the first."""
    free_s = before.held.get(name)
    return free_s is not None and failing_s is not None and failing_s > free_s


def will_be_held(before: Ejection, service: Service, name: str) -> bool:
    """Return whether a backend that just went down will keep its clients, unless others come up before the decision. It
    only counts, as it is called thousands of times when thousands of backends go down at once."""
    if service.health is None:
        return False
    split, backups = _pools(service)
    total, limits = len(split), _limits(service.health, backups, before.down)
    down = sum(1 for each in before.down if each in split)
    if name not in split or (down == total and limits.on_all_down is AllDown.DROP):
        return False
    return down - len(before.held) > max_ejected(total, limits)


def with_dead_ports(ejected: Ejected, services: Sequence[Service], ports_down: Collection[str]) -> Ejected:
    """Return `ejected`, and the backends whose egress is one of the ports without link.

    `max_down` does not limit these, as a port without link is no error of a probe. A service without any backend left
    does not change: its packets cannot leave either way, and its flows are right when the link is back.
    """
    down = frozenset(ports_down)
    if not down:
        return ejected
    behind = {
        service.name: frozenset(b.name for b in service.backends if b.weight and b.next_hop.port in down)
        for service in services
    }
    return with_away(ejected, services, behind)


def names_behind(services: Iterable[Service], ports: Collection[str]) -> set[BackendName]:
    """Return the backends whose packets leave through one of these ports."""
    pairs = ((service.name, each) for service in (services if ports else ()) for each in service.backends)
    return {(name, each.name) for name, each in pairs if each.next_hop.port in ports}


def with_away(ejected: Ejected, services: Iterable[Service], away: Ejected) -> Ejected:
    """Return `ejected`, and these backends, except where a service would be left without any."""
    extended = dict(ejected)
    for service in services if away else ():
        names = away.get(service.name, frozenset())
        before = ejected.get(service.name, frozenset())
        if not {backend.name for backend in service.backends if backend.weight} <= before | names:
            extended[service.name] = before | names
    return {name: names for name, names in extended.items() if names}


# Slow start: a backend that comes, or comes back, gets its clients in steps.


KnownShares = Mapping[BackendName, Fraction]
"""The part (0..1) of its clients that each backend has on the bridge, as an earlier agent left it: 0 if it is ejected,
below 1 in a slow start. Backends that are new to the bridge are left out."""

Ramps = Mapping[BackendName, Fraction]
"""Part of its clients (0 < part < 1) that each backend in a slow start has by now."""


@dataclass(frozen=True, slots=True)
class SlowStarts:
    """The slow starts of all services. `balancer`, `ejected`: as of the last call; None before the first one. `begun`:
    when each start began that is not over."""

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
    """Return the progress of each start in steps of 1 / `STEPS`, without the starts that are over."""
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
    """Return the begin of each start that the bridge shows under way, as if half of the time of its step were over. A
    start begins now for a backend that the bridge shows ejected and that answers again."""
    midway = {name: part for name, part in known.items() if part < 1 and name in serving}
    return {
        name: now_s - max(0.0, float(part) * STEPS - 0.5) / (STEPS - 1) * _ramp_s(serving[name])
        for name, part in midway.items()
    }


def _part(service: Service, elapsed_s: float) -> Fraction:
    """Return the part of its clients that a backend has after `elapsed_s`: the first step at once, all at the end."""
    ramp_s = _ramp_s(service)
    if elapsed_s >= ramp_s:
        return Fraction(1)
    return Fraction(1 + int(max(0.0, elapsed_s) * (STEPS - 1) / ramp_s), STEPS)


def _ramp_s(service: Service) -> float:
    return (service.health.ramp_ms or 0) / 1000 if service.health is not None else 0.0
