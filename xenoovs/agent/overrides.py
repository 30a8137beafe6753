"""Overrides: weights that operators set at run time, and what is left of them when the config changes. Pure.

A change of the config is a three-way merge, key by key, of the config when an override was set (its `configured`
weight), the config now, and the override. Where the first two differ, the file was edited for just this weight: the
file wins, for this backend only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fractions import Fraction
from typing import TypeVar

from xenoovs.agent.health import Ejection, HealthTracker
from xenoovs.agent.snapshot import Override, Runtime
from xenoovs.agent.state import require_weights, with_overrides
from xenoovs.decision.decide import decide
from xenoovs.decision.decision import BackendName, Decision, DesiredState
from xenoovs.errors import CompileError, RequestRefused
from xenoovs.model.balancer import Backend, Balancer, Service

_MAX_NAMED = 8
T = TypeVar("T", Service, Backend)


@dataclass(frozen=True, slots=True)
class EndedOverride:
    """An override that the config has ended, and why."""

    override: Override
    reason: str


@dataclass(frozen=True, slots=True)
class Merged:
    """Overrides after a change of the config.

    Attributes:
        remaining: Those that still hold, under their names in the new config.
        ended: Those that the config has ended.
    """

    remaining: tuple[Override, ...]
    ended: tuple[EndedOverride, ...]


def merge(overrides: Iterable[Override], new: Balancer, *, old: Balancer | None = None) -> Merged:
    """Merge overrides with another config. `old`: the config before, if known, to follow services that were renamed."""
    remaining, ended = list[Override](), list[EndedOverride]()
    for override in overrides:
        renamed = _renamed(override, new, old)
        if renamed is None:
            ended.append(EndedOverride(override, "the config does not have it any more"))
        elif renamed.configured != override.configured:
            ended.append(EndedOverride(override, "the config gives it another weight now"))
        else:
            remaining.append(renamed)
    return Merged(tuple(remaining), tuple(ended))


def merge_rollback(
    now: Iterable[Override], tried: Merged, *, before: Iterable[Override], configs: tuple[Balancer, Balancer]
) -> Merged:
    """Merge overrides when a config is rolled back: those of before, but for what operators have changed since.

    Args:
        now: The overrides under the config that is rolled back.
        tried: What that config left of the overrides of before.
        before: The overrides before it.
        configs: The config that is rolled back, and the one that holds again.
    """
    left, present = ({(each.service, each.backend): each for each in some} for some in (tried.remaining, now))
    changed = {names for names in left.keys() | present.keys() if left.get(names) != present.get(names)}
    merged = merge((present[names] for names in sorted(changed & present.keys())), configs[1], old=configs[0])
    unchanged = (each for each in before if (each.service, each.backend) not in changed)
    remaining = sorted((*unchanged, *merged.remaining), key=lambda each: (each.service, each.backend))
    return Merged(tuple(remaining), merged.ended)


def _renamed(override: Override, new: Balancer, old: Balancer | None) -> Override | None:
    """Return the override under its names in `new`, found by claim and next hop, with the configured weight there."""
    old_service = None if old is None else _named(old.services, override.service)
    service = _named(new.services, override.service)
    if service is None and old_service is not None:
        service = next((each for each in new.services if each.claim == old_service.claim), None)
    if service is None:
        return None
    backend = _named(service.backends, override.backend)
    old_backend = None if old_service is None else _named(old_service.backends, override.backend)
    if backend is None and old_backend is not None:
        backend = next((each for each in service.backends if _location(each) == _location(old_backend)), None)
    if backend is None:
        return None
    return replace(override, service=service.name, backend=backend.name, configured=backend.weight)


def _location(backend: Backend) -> tuple[object, tuple[str, ...]]:
    hop = backend.next_hop
    return (backend.address, hop.ports) if backend.follows else (hop, ())


def _named(items: Iterable[T], name: str) -> T | None:
    return next((item for item in items if item.name == name), None)


def with_weight(
    runtime: Runtime, balancer: Balancer, name: BackendName, weight: Fraction | None, *, now_s: float
) -> Runtime:
    """Return the runtime in which a backend has this weight; None: that of the config. Raises RequestRefused."""
    backend = find_backend(balancer, name)
    before = next((each for each in runtime.overrides if (each.service, each.backend) == name), None)
    overrides = [each for each in runtime.overrides if each is not before]
    if weight is not None and weight != backend.weight:
        since_s = before.since_s if before is not None and before.weight == weight else now_s
        overrides.append(Override(*name, weight, since_s, backend.weight))
    return replace(runtime, overrides=tuple(sorted(overrides, key=lambda each: (each.service, each.backend))))


def require_possible(
    tracker: HealthTracker, balancer: Balancer, overrides: Iterable[Override], *, instead_of: Iterable[Override] = ()
) -> None:
    """Check that flows can have the weights of these overrides, and that a backend which is up is left.

    Raises:
        CompileError: A service has no weight left, or none on a backend that is up.
        ToleranceUnreachable: No flows have these weights.
        BudgetUnreachable: No flows within `max_flows` have these weights.
    """
    after, before = with_overrides(balancer, overrides), with_overrides(balancer, instead_of)
    require_weights(balancer, after)
    for old, new in zip(before.services, after.services, strict=True):
        if old != new and _has_up(old, tracker) and not _has_up(new, tracker):
            raise CompileError(
                service=new.name,
                reason="no other backend with a weight answers, so all of its clients would go to one that is "
                "down (`xenoovs status` shows why it is)",
            )
    pairs = zip(after.services, balancer.services, strict=True)
    changed = tuple(service for service, configured in pairs if service is not configured)
    if changed:
        decide(Decision(), DesiredState(replace(after, services=changed)))


def find_service(balancer: Balancer, name: str) -> Service:
    """Return a service of the config. Raises RequestRefused that names the nearest ones."""
    service = _named(balancer.services, name)
    if service is None:
        raise _unknown("service", name, (each.name for each in balancer.services), "the config")
    return service


def find_backend(balancer: Balancer, name: BackendName) -> Backend:
    """Return a backend of the config. Raises RequestRefused that names the nearest ones."""
    service = find_service(balancer, name[0])
    backend = _named(service.backends, name[1])
    if backend is None:
        raise _unknown("backend", name[1], (each.name for each in service.backends), f"service {service.name}")
    return backend


def _has_up(service: Service, tracker: HealthTracker) -> bool:
    down = tracker.ejections.get(service.name, Ejection()).down
    return any(backend.weight and backend.name not in down for backend in service.backends)


def _unknown(kind: str, name: str, known: Iterable[str], where: str) -> RequestRefused:
    there = list(known)
    near = get_close_matches(name, there, n=3, cutoff=0.5)
    more = f" and {len(there) - _MAX_NAMED} more" if len(there) > _MAX_NAMED else ""
    hint = f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(there[:_MAX_NAMED])}{more}"
    return RequestRefused(f"{where} has no {kind} {name[:63]}; {hint}", status=404, code=f"unknown_{kind}")
