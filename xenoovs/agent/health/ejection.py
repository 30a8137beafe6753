"""Which backends that are down get no clients: `max_down` limits how many. Pure: the time is an argument.

Probes that all fail say more about the probing than about the servers. A backend that goes down while the limit is
reached is held: it keeps its clients. When the limit later allows one more, what is known of a held backend is old: it
failed long ago, and may be about to answer, as after an outage of all. So it is ejected only after `fall` more failures
in a row, of probes that were sent since.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from immutables import Map

from xenoovs.model.balancer import Balancer
from xenoovs.model.health import AllDown, Health
from xenoovs.model.service import Service

Ejected = Mapping[str, frozenset[str]]
"""Names of the backends that get no clients, by the name of their service. Services without any are left out."""


@dataclass(frozen=True, slots=True)
class Held:
    """A backend that is down and keeps its clients.

    Attributes:
        since_s: When it went down.
        free_s: Since when the limit allows one more ejection; None: it does not.
    """

    since_s: float
    free_s: float | None


@dataclass(frozen=True, slots=True)
class Ejection:
    """The backends of one service that are down.

    Attributes:
        down: When each of them went down.
        ejected: Those that get no clients, as decided last.
        held: Those that keep their clients, as decided last.
    """

    down: Map[str, float] = field(default_factory=Map)
    ejected: frozenset[str] = frozenset()
    held: Mapping[str, Held] = field(default_factory=dict)


def decide(before: Ejection, service: Service, failing: Mapping[str, float], *, now_s: float) -> Ejection:
    """Decide which backends of a service, with the weights in use, get no clients.

    Args:
        before: The backends that are down now, and what was decided last.
        service: Of its backends, those without a weight count neither as up nor as down.
        failing: For each held backend whose last `fall` probes failed: when the first of these was sent.
        now_s: The time.
    """
    if service.health is None or not before.down:
        return Ejection(before.down)
    down = sorted((b for b in service.backends if b.name in before.down), key=lambda b: before.down[b.name])
    fallen = [backend.name for backend in down if backend.weight]
    of = sum(1 for backend in service.backends if backend.weight)
    stale = {name for name in fallen if _held(before, name) and not may_be_ejected(before, name, failing.get(name))}
    ejected = select(fallen, of=of, health=service.health, before=before.ejected, stale=stale)
    free_s = now_s if len(ejected) < max_ejected(of, service.health) else None
    held = {name: Held(before.down[name], free_s) for name in fallen if name not in ejected}
    if free_s is not None:
        held |= {name: was for name in held if (was := _held(before, name)) and was.free_s is not None}
    return Ejection(before.down, ejected.union(b.name for b in down if not b.weight), held)


def select(
    fallen: Sequence[str], *, of: int, health: Health, before: Collection[str] = (), stale: Collection[str] = ()
) -> frozenset[str]:
    """Select whom to eject of `fallen`, the first to go down first: at most `max_down` of `of`, and never all.

    Those that were ejected `before` stay so; then come the others, without those that are `stale`. If all are down
    `on_all_down` may say to drop their packets: then all are ejected.
    """
    if len(fallen) >= of and health.on_all_down is AllDown.DROP:
        return frozenset(fallen)
    most = max_ejected(of, health)
    stay = [name for name in fallen if name in before][:most]
    others = [name for name in fallen if name not in before and name not in stale]
    return frozenset([*stay, *others[: most - len(stay)]])


def max_ejected(of: int, health: Health) -> int:
    """Return how many of `of` backends may be ejected at once, unless all are down and dropped."""
    return max(min(int(health.max_down * of), of - 1), 0)


def may_be_ejected(before: Ejection, name: str, failing_s: float | None) -> bool:
    """Return whether a held backend has failed `fall` probes, sent from `failing_s` on, since the limit allows it."""
    held = _held(before, name)
    return held is not None and held.free_s is not None and failing_s is not None and failing_s > held.free_s


def will_be_held(before: Ejection, service: Service, name: str) -> bool:
    """Return whether a backend that went down just now will keep its clients, unless others come up before a decision.

    By counting alone: where thousands go down at once, this is asked thousands of times.
    """
    if service.health is None:
        return False
    weightless = [backend.name for backend in service.backends if not backend.weight]
    of = len(service.backends) - len(weightless)
    fallen = len(before.down) - sum(1 for each in weightless if each in before.down)
    if name in weightless or (fallen == of and service.health.on_all_down is AllDown.DROP):
        return False
    return fallen - sum(1 for each in before.held if each in before.down) > max_ejected(of, service.health)


def with_ports(ejected: Ejected, balancer: Balancer, ports_down: Collection[str]) -> Ejected:
    """Return `ejected`, and the backends whose egress is one of the ports without link.

    `max_down` does not limit these: a port without link is no mistake of a probe. A service of which no backend would
    be left stays as it is: its packets cannot leave either way, and when the link is back all is in place.
    """
    down = frozenset(ports_down)
    if not down:
        return ejected
    found = {}
    for service in balancer.services:
        weighted = {backend.name for backend in service.backends if backend.weight}
        behind = {backend.name for backend in service.backends if backend.weight and set(backend.next_hop.ports) & down}
        fallen = ejected.get(service.name, frozenset())
        found[service.name] = fallen if weighted <= fallen | behind else fallen | behind
    return {name: names for name, names in found.items() if names}


def _held(before: Ejection, name: str) -> Held | None:
    """Return what was decided of a backend; None if it was not held, or has come up since."""
    held = before.held.get(name)
    return held if held is not None and held.since_s == before.down[name] else None
