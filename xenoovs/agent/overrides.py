"""Overrides: weights that operators set at run time, and what is left of them when the config changes. Pure.

A change of the config is a three-way merge, key by key, of the config when an override was set (its `configured`
weight), the config now, and the override. Where the first two differ, whoever edited the file meant just this weight:
the file wins, for this backend only.
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

_MAX_SHOWN = 8
T = TypeVar("T", Service, Backend)


@dataclass(frozen=True, slots=True)
class Ended:
    """An override that the config has ended, and why."""

    override: Override
    reason: str


@dataclass(frozen=True, slots=True)
class Merged:
    """`kept`: under their names in the new config."""

    kept: tuple[Override, ...]
    ended: tuple[Ended, ...]


def merge(overrides: Iterable[Override], new: Balancer, *, old: Balancer | None = None) -> Merged:
    """Overrides under another config. `old`: the one before, where it is known, to follow what was only renamed."""
    kept, ended = list[Override](), list[Ended]()
    for override in overrides:
        found = _find(override, new, old)
        if found is None:
            ended.append(Ended(override, "the config does not have it any more"))
        elif found.configured != override.configured:
            ended.append(Ended(override, "the config gives it another weight now"))
        else:
            kept.append(found)
    return Merged(tuple(kept), tuple(ended))


def merge_back(
    now: Iterable[Override], tried: Merged, *, before: Iterable[Override], configs: tuple[Balancer, Balancer]
) -> Merged:
    """Overrides when a config is taken back: those of `before`, but for what an operator has set or ended since.

    tried: what was left of them by the config that is taken back. configs: that one, and the one that holds again.
    """
    left, there = ({(one.service, one.backend): one for one in some} for some in (tried.kept, now))
    since = {names for names in left.keys() | there.keys() if left.get(names) != there.get(names)}
    found = merge((there[names] for names in sorted(since & there.keys())), configs[1], old=configs[0])
    stays = (one for one in before if (one.service, one.backend) not in since)
    return Merged(tuple(sorted((*stays, *found.kept), key=lambda one: (one.service, one.backend))), found.ended)


def _find(override: Override, new: Balancer, old: Balancer | None) -> Override | None:
    """The override under its names in `new`, with the weight that it has there."""
    was = None if old is None else _named(old.services, override.service)
    service = _named(new.services, override.service)
    if service is None and was is not None:
        service = next((one for one in new.services if one.claim == was.claim), None)
    if service is None:
        return None
    backend = _named(service.backends, override.backend)
    had = None if was is None else _named(was.backends, override.backend)
    if backend is None and had is not None:
        backend = next((one for one in service.backends if _location(one) == _location(had)), None)
    if backend is None:
        return None
    return replace(override, service=service.name, backend=backend.name, configured=backend.weight)


def _location(backend: Backend) -> tuple[object, tuple[str, ...]]:
    hop = backend.next_hop
    return (backend.address, hop.ports) if backend.follows else (hop, ())


def _named(among: Iterable[T], name: str) -> T | None:
    return next((one for one in among if one.name == name), None)


def with_weight(
    runtime: Runtime, balancer: Balancer, name: BackendName, weight: Fraction | None, *, now_s: float
) -> Runtime:
    """Return the runtime in which a backend has this weight; None: that of the config. Raises RequestRefused."""
    backend = find_backend(balancer, name)
    before = next((one for one in runtime.overrides if (one.service, one.backend) == name), None)
    overrides = [one for one in runtime.overrides if one is not before]
    if weight is not None and weight != backend.weight:
        since_s = before.since_s if before is not None and before.weight == weight else now_s
        overrides.append(Override(*name, weight, since_s, backend.weight))
    return replace(runtime, overrides=tuple(sorted(overrides, key=lambda one: (one.service, one.backend))))


def require_possible(
    tracker: HealthTracker, balancer: Balancer, overrides: Iterable[Override], *, instead_of: Iterable[Override] = ()
) -> None:
    """Check that flows can have the weights of these overrides, and that a backend which is up is left.

    Raises:
        CompileError: A service has no weight left, or none on a backend that is up.
        ToleranceUnreachable: No flows have these weights.
        BudgetUnreachable: No flows within `max_flows` have these weights.
    """
    used, before = with_overrides(balancer, overrides), with_overrides(balancer, instead_of)
    require_weights(balancer, used)
    for old, new in zip(before.services, used.services, strict=True):
        if old != new and _has_up(old, tracker) and not _has_up(new, tracker):
            raise CompileError(
                service=new.name,
                reason="no other backend with a weight answers, so all of its clients would go to one that is "
                "down (`xenoovs status` shows why it is)",
            )
    pairs = zip(used.services, balancer.services, strict=True)
    changed = tuple(service for service, configured in pairs if service is not configured)
    if changed:
        decide(Decision(), DesiredState(replace(used, services=changed)))


def find_service(balancer: Balancer, name: str) -> Service:
    """Return a service of the config. Raises RequestRefused that names the nearest ones."""
    service = _named(balancer.services, name)
    if service is None:
        raise _unknown("service", name, (one.name for one in balancer.services), "the config")
    return service


def find_backend(balancer: Balancer, name: BackendName) -> Backend:
    """Return a backend of the config. Raises RequestRefused that names the nearest ones."""
    service = find_service(balancer, name[0])
    backend = _named(service.backends, name[1])
    if backend is None:
        raise _unknown("backend", name[1], (one.name for one in service.backends), f"service {service.name}")
    return backend


def _has_up(service: Service, tracker: HealthTracker) -> bool:
    down = tracker.ejections.get(service.name, Ejection()).down
    return any(backend.weight and backend.name not in down for backend in service.backends)


def _unknown(kind: str, name: str, known: Iterable[str], where: str) -> RequestRefused:
    there = list(known)
    near = get_close_matches(name, there, n=3, cutoff=0.5)
    more = f" and {len(there) - _MAX_SHOWN} more" if len(there) > _MAX_SHOWN else ""
    hint = f"did you mean {' or '.join(near)}?" if near else f"there is {', '.join(there[:_MAX_SHOWN])}{more}"
    return RequestRefused(f"{where} has no {kind} {name[:63]}; {hint}", status=404, code=f"unknown_{kind}")
