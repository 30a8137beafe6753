"""Overrides: weights, drains and maintenance that operators set at run time. Pure.

A change of the config is a three-way merge, for each backend: the config when an override was set (its `configured`
weight), the config now, and the override. If the first two differ, the file was edited for this weight, and the file
wins. Maintenance is no weight, and stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from fractions import Fraction

from xenoovs.agent.health import HealthTracker, in_maintenance
from xenoovs.agent.servers import backends_of, find_backend, find_server, location, named
from xenoovs.agent.state import Runtime, require_weights, with_overrides
from xenoovs.dataclass import dataclass, replace
from xenoovs.decision.decide import require_decidable
from xenoovs.decision.decision import BackendName
from xenoovs.decision.ejection import Ejection
from xenoovs.display import decimal
from xenoovs.errors import CompileError, RequestRefused
from xenoovs.model.balancer import Balancer, Service
from xenoovs.show.snapshot import Override


class OverrideAction(Enum):
    """The action of an operator on a backend."""

    DRAIN = "drain"
    MAINTENANCE = "maintenance"
    WEIGHT = "weight"
    UNDRAIN = "undrain"
    RESET = "reset"


@dataclass(frozen=True, slots=True)
class OverrideRequest:
    """A request of an operator. `backend`: name of a backend of `service`; without a service the name, MAC or address
    of a server. `service`: None for all services of the server. `for_s`: until the override ends; None if never."""

    action: OverrideAction
    backend: str
    service: str | None = None
    weight: Fraction = Fraction(0)
    for_s: float | None = None


@dataclass(frozen=True, slots=True)
class Merged:
    """Overrides after a change of the config. `remaining`: those that still apply, with names of the new config.
    `ended`: the others, and why."""

    remaining: tuple[Override, ...]
    ended: tuple[tuple[Override, str], ...]


def merge(overrides: Iterable[Override], new: Balancer, *, old: Balancer | None = None) -> Merged:
    """Merge overrides with a new config. `old`: the config before, if known, to find services that were renamed."""
    remaining, ended = list[Override](), list[tuple[Override, str]]()
    for override in overrides:
        renamed = _renamed(override, new, old)
        if renamed is None:
            ended.append((override, "the config does not have it any more"))
        elif renamed.configured != override.configured and override.is_maintenance:
            remaining.append(replace(renamed, weight=renamed.configured))
        elif renamed.configured != override.configured:
            ended.append((override, "the config gives it another weight now"))
        else:
            remaining.append(renamed)
    return Merged(tuple(remaining), tuple(ended))


def merge_rollback(
    now: Iterable[Override], tried: Merged, *, before: Iterable[Override], configs: tuple[Balancer, Balancer]
) -> Merged:
    """Merge overrides when a config is rolled back: restore those before it, with later changes by operators.

    `now`: the overrides under that config. `tried`: the merge when it was applied. `before`: the overrides before it.
    `configs`: that one, and its replacement.
    """
    left, present = ({each.name: each for each in some} for some in (tried.remaining, now))
    changed = {names for names in left.keys() | present.keys() if left.get(names) != present.get(names)}
    merged = merge((present[names] for names in sorted(changed & present.keys())), configs[1], old=configs[0])
    unchanged = (each for each in before if each.name not in changed)
    remaining = sorted((*unchanged, *merged.remaining), key=lambda each: each.name)
    return Merged(tuple(remaining), merged.ended)


def _renamed(override: Override, new: Balancer, old: Balancer | None) -> Override | None:
    """Return the override under its names in `new`, found by claim and next hop, with the configured weight there."""
    old_service = None if old is None else named(old.services, override.service)
    service = named(new.services, override.service)
    if service is None and old_service is not None:
        service = next((each for each in new.services if each.claim == old_service.claim), None)
    if service is None:
        return None
    backend = named(service.backends, override.backend)
    old_backend = None if old_service is None else named(old_service.backends, override.backend)
    if backend is None and old_backend is not None:
        backend = next((each for each in service.backends if location(each) == location(old_backend)), None)
    if backend is None:
        return None
    return replace(override, service=service.name, backend=backend.name, configured=backend.weight)


def with_requests(
    runtime: Runtime,
    balancer: Balancer,
    requests: Iterable[OverrideRequest],
    *,
    resolved: Balancer,
    utc_s: float,
    now_s: float,
) -> tuple[Runtime, tuple[BackendName, ...]]:
    """Return the runtime after requests, and the backends that they change. `resolved`: the config with resolved MACs.
    Raises RequestRefused if there is no such backend, or if its override is of another kind."""
    overrides, names = runtime.by_name, list[BackendName]()
    known = backends_of(balancer)
    for request in requests:
        one = () if request.service is None else ((request.service, request.backend),)
        for name in one or find_server(backends_of(resolved), request.backend):
            configured = (known.get(name) or find_backend(balancer, name)).weight
            before = overrides.pop(name, None)
            weight = _weight_after(before, configured, request)
            is_maintenance = request.action is OverrideAction.MAINTENANCE
            if weight != configured or is_maintenance:
                is_same = before is not None and (before.weight, before.is_maintenance) == (weight, is_maintenance)
                since_s = before.since_s if before is not None and is_same else utc_s
                until_s = None if request.for_s is None else now_s + request.for_s
                overrides[name] = Override(*name, weight, since_s, configured, until_s, is_maintenance)
            names.append(name)
    return replace(runtime, overrides=tuple(overrides[name] for name in sorted(overrides))), tuple(names)


def _weight_after(before: Override | None, configured: Fraction, request: OverrideRequest) -> Fraction:
    """Return the weight of a backend after a request. Raises RequestRefused."""
    match request.action:
        case OverrideAction.DRAIN:
            return Fraction(0)
        case OverrideAction.MAINTENANCE:
            return configured if before is None else before.weight
        case OverrideAction.WEIGHT | OverrideAction.UNDRAIN if before is not None:
            _require_kind(before, request.action)
    return request.weight if request.action is OverrideAction.WEIGHT else configured


def _require_kind(before: Override, action: OverrideAction) -> None:
    """Refuse a weight in maintenance, and `undrain` of what is no drain: the operator may not know why it was set."""
    name, is_undrain = f"{before.service}/{before.backend}", action is OverrideAction.UNDRAIN
    if before.is_maintenance:
        advice = "`undrain` ends a drain, and this ends maintenance" if is_undrain else "end it first"
        raise RequestRefused(
            f"{name} is in maintenance; {advice}: `xenoovs reset {name}`", status=409, code="in_maintenance"
        )
    if is_undrain and before.weight:
        raise RequestRefused(
            f"{name} is not drained, but has weight {decimal(before.weight)} by an override; `xenoovs reset {name}` "
            "returns it to the config",
            status=409,
            code="not_drained",
        )


def require_possible(
    tracker: HealthTracker, balancer: Balancer, overrides: Iterable[Override], *, instead_of: Iterable[Override] = ()
) -> None:
    """Check that flows can have the weights of these overrides, and that changed services keep a backend that is up.

    Raises:
        CompileError: A service has no weight left, or none on a backend that is up.
        ToleranceUnreachable: No flows have these weights.
        BudgetUnreachable: No flows within `max_flows` have these weights.
    """
    overrides, instead_of = tuple(overrides), tuple(instead_of)
    after, before = with_overrides(balancer, overrides), with_overrides(balancer, instead_of)
    require_weights(balancer, after)
    for old, new in zip(before.services, after.services, strict=True):
        if old != new and _has_up(old, tracker, instead_of) and not _has_up(new, tracker, overrides):
            raise CompileError(
                service=new.name,
                reason="every other backend with a weight is down or in maintenance, so none would be left that "
                "answers (`xenoovs status` shows why)",
            )
    pairs = zip(after.services, balancer.services, strict=True)
    changed = tuple(service for service, configured in pairs if service is not configured)
    if changed:
        require_decidable(replace(after, services=changed))


def _has_up(service: Service, tracker: HealthTracker, overrides: Iterable[Override]) -> bool:
    away = {*tracker.ejections.get(service.name, Ejection()).down, *in_maintenance(overrides).get(service.name, ())}
    return any(backend.weight and backend.name not in away for backend in service.backends)
