"""The plan of a fleet: the services and blocks that its store must have, by its intents and overrides.

Every process computes the same change from the same view, whatever it has in memory. A view that is right needs no
change. The clock is that of the caller.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache
from hashlib import sha256
from itertools import chain, islice
from typing import Any, TypeVar

from xenoovs.dataclass import dataclass, field, replace
from xenoovs.decision.advance import SETTLE_S
from xenoovs.decision.decide import decide, parts_served, undisturbed
from xenoovs.decision.decision import (
    BackendName,
    Decision,
    DesiredState,
    ServiceDecision,
    Stored,
    Transition,
    delivered,
    follow,
    moved,
)
from xenoovs.decision.ejection import Ejected, Ejection, KnownShares, Ramps, SlowStarts
from xenoovs.errors import ConfigError, FleetRefused, StoredServiceUnusable, XenoovsError, did_you_mean, first_names
from xenoovs.model.balancer import (
    Balancer,
    DrainMode,
    Failover,
    OtherTraffic,
    Service,
    Uplinks,
    claim_text,
    service_ids,
)
from xenoovs.model.claims import check_between, claimed
from xenoovs.model.fleet import (
    FleetServices,
    Placement,
    join,
    neutral_service,
    parse_fleet,
    read_services,
    service_text,
    sites_of,
    unsupported,
)
from xenoovs.model.include import ConfigSources
from xenoovs.model.values import MAX_SERVICES, site_name, split_site
from xenoovs.partition.block import spread
from xenoovs.store.view import (
    Changes,
    Dpu,
    DpuStatus,
    FleetOverride,
    FleetView,
    Intent,
    IntentState,
    StoredService,
    rows_after,
)

MAX_INTENTS = 20
"""How many intents stay in the store; with texts of 100 kB they take 2 MB of its file."""
_MAX_REASON = 1000


@dataclass(frozen=True, slots=True)
class Availability:
    """Which backends of a config may have clients. `ejected`: those that get none. `ramps`: the part of its clients
    that each backend in a slow start has by now. `held`: those that are down, and keep their clients. `ejections`: the
    decisions so far, by service, for services with a backend that is down. `starts`: the slow starts so far."""

    ejected: Ejected = field(default_factory=dict)
    ramps: Ramps = field(default_factory=dict)
    held: Ejected = field(default_factory=dict)
    ejections: Mapping[str, Ejection] = field(default_factory=dict, compare=False)
    starts: SlowStarts = field(default_factory=SlowStarts, compare=False)

    @property
    def is_waiting(self) -> bool:
        """Return whether time alone may change it."""
        return bool(self.starts.begun) or any(each.held for each in self.ejections.values())

    def of(self, service: Service) -> Availability:
        """Return the availability of one service alone."""
        ejected, held = (
            {service.name: names[service.name]} if service.name in names else {} for names in (self.ejected, self.held)
        )
        names = ((service.name, each.name) for each in service.backends)
        return Availability(ejected, {name: self.ramps[name] for name in names if name in self.ramps}, held)


@dataclass(frozen=True, slots=True)
class ServiceStep:
    """The change of one service on the DPUs of `groups`; empty for all. `was`, `now`: which backend has which clients;
    None if the service is added, or removed. `old_groups`: those of its old row. `clients`: the share, 0..1, that had a
    backend and get another one; a backend with another next hop is another one, as on a bridge."""

    name: str
    was: ServiceDecision | None
    now: ServiceDecision | None
    old_groups: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    clients: Fraction = Fraction(0)

    @property
    def kind(self) -> str:
        return "removed" if self.now is None else "added" if self.was is None else "changed"

    @property
    def blocks(self) -> int:
        """Return how many blocks are new or get another backend."""
        had = () if self.was is None else self.was.active.rows
        return 0 if self.now is None else len({*self.now.active.rows} - {*had})


@dataclass(frozen=True, slots=True)
class FleetChange:
    """What to write in one transaction. `steps`: by name, without services that stay as they are. `ended`: overrides
    that the config ends, by another weight or without such a backend. `unusable`: rows whose services get new blocks,
    and why. `contested`: the result of `_contested`."""

    changes: Changes
    steps: tuple[ServiceStep, ...] = ()
    ended: tuple[FleetOverride, ...] = ()
    unusable: tuple[Problem, ...] = ()
    contested: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return self.changes == Changes()


def parse_intent(text: str, *, file: str) -> FleetServices:
    """Return the parsed config of a fleet. Raises ConfigError; FleetRefused if it has what fleets do not support."""
    try:
        services = _parse(text)
    except ConfigError:
        # Again, for the messages: they have the name of the file, which a plan and the store do not share.
        services = parse_fleet(text, file=file)
    if reasons := list(unsupported(services.balancer)):
        raise FleetRefused(f"{file}: {'; '.join(reasons)}")
    return services


@lru_cache(maxsize=2)
def _parse(text: str) -> FleetServices:
    return parse_fleet(text, file="")


def newest_intent(view: FleetView) -> Intent | None:
    """Return the intent for all DPUs: the newest that is not in waves and not refused."""
    apart = (IntentState.REFUSED, IntentState.ROLLING)
    return view.intents.get(max((number for number, one in view.intents.items() if one.state not in apart), default=0))


def config_in_use(view: FleetView) -> tuple[Intent, FleetServices]:
    """Return the intent for all DPUs, and its config. Raises FleetRefused if there is none yet."""
    if (intent := newest_intent(view)) is None:
        raise FleetRefused("the fleet has no config yet; write one with `xenoovs fleet apply FILE --now`")
    return intent, _parsed(intent)


def rolling_intent(view: FleetView) -> Intent | None:
    """Return the intent that is rolled out in waves."""
    rolling = (number for number, one in view.intents.items() if one.state is IntentState.ROLLING)
    return view.intents.get(max(rolling, default=0))


def next_wave(view: FleetView) -> int | None:
    """Return the next wave with DPUs that the roll-out concerns; None if there are no more."""
    return min((dpu.wave for dpu in view.concerned.values() if dpu.wave > view.wave), default=None)


def concerned(view: FleetView, changes: Changes) -> dict[str, Dpu]:
    """Return the DPUs that serve a changed service, before or after the changes, by name."""
    rows = (row for name, new in changes.services.items() for row in (view.services.get(name), new))
    return view.serving(filter(None, rows))


def known_intent(view: FleetView, number: int) -> Intent:
    """Return the intent with a number. Raises FleetRefused if the store has none."""
    intent = view.intents.get(number)
    if intent is None:
        known = first_names([str(n) for n in sorted(view.intents, reverse=True)]) or "none"
        raise FleetRefused(f"the store has no config {number}; it has {known}")
    return intent


def next_change(
    view: FleetView, availability: Mapping[str, Availability] | None = None, memo: Memo | None = None
) -> FleetChange:
    """Return what the store lacks. An intent that cannot be decided is refused, and the one before it stays.

    `availability`: by `IN_USE` and `ROLLED_OUT`; None for callers without votes, by which the backends that have
    clients now stay available. `memo`: that of earlier views. It begins the first wave of a roll-out, and updates its
    services for overrides; reports of DPUs decide when the next wave begins (`rollout.next_step`). Raises XenoovsError
    if the intent in use cannot be decided any more, such as after a change of overrides.
    """
    intent, rolling, memo = newest_intent(view), rolling_intent(view), memo or Memo()
    has_begun = bool(view.staged or view.removed)
    if (view.wave and not has_begun) or (rolling is None and (view.wave or has_begun)):
        # An operator, who writes no services, or another program has stopped the roll-out. If its wave stayed, all
        # DPUs up to it would get the next config at once.
        return FleetChange(_without_roll_out(view))
    if rolling is not None and view.wave and next_wave(replace(view, wave=0)) is None:
        # Without DPUs there is no wave to wait for.
        return FleetChange(completion(view, rolling))
    change = FleetChange(Changes())
    if intent is not None:
        try:
            change = _towards(view, intent, memo, IN_USE, availability)
            if intent.state is not IntentState.CURRENT:
                _require_uncontested(change.contested)
        except XenoovsError as problem:
            if intent.state is IntentState.CURRENT:
                raise
            return FleetChange(refusal(view, intent, str(problem)))
    if rolling is None:
        return change
    try:
        return _with_staged(view, change, rolling, memo, availability)
    except XenoovsError as problem:
        return FleetChange(refusal(view, rolling, str(problem)))


def refusal(view: FleetView, intent: Intent, reason: str) -> Changes:
    """Return the changes that refuse an intent, and take back its roll-out."""
    is_rolling = view.wave and intent.state is IntentState.ROLLING
    ended = intent.ended(IntentState.REFUSED, f"refused: {reason}"[:_MAX_REASON])
    return replace(_without_roll_out(view) if is_rolling else Changes(), intents={intent.number: ended})


def _without_roll_out(view: FleetView) -> Changes:
    return Changes(staged=dict.fromkeys(view.staged), removed=frozenset(), wave=0)


def completion(view: FleetView, intent: Intent) -> Changes:
    """Return the changes that end a roll-out: the staged services become those in use, which changes no flows."""
    return Changes(
        services={**dict.fromkeys(view.removed), **view.staged},
        staged=dict.fromkeys(view.staged),
        removed=frozenset(),
        wave=0,
        intents=_intents(view, intent),
        intent=intent.number,
    )


def with_intent(view: FleetView, text: str, *, memo: Memo | None = None) -> FleetChange:
    """Return what a new intent would change, for a plan. `text`: what `parse_intent` takes. Raises FleetRefused,
    XenoovsError if it cannot be decided."""
    number = max(view.intents, default=0) + 1
    intent = Intent(number, text, "", "", "", 0, IntentState.STAGED)
    change = _towards(view, intent, memo or Memo(), IN_USE)
    _require_uncontested(change.contested)
    return change


def with_override(
    view: FleetView, name: BackendName, weight: Fraction | None, *, author: str, now_ms: int, memo: Memo | None = None
) -> FleetOverride:
    """Return the override of a backend, after a check that the fleet can have it. `weight`: 0 for a drain; None to end
    the override that is returned. Raises FleetRefused if there is no such service or backend, or no override to end;
    XenoovsError if no blocks can have these weights."""
    intent, services = config_in_use(view)
    memo = memo or Memo()
    (service, group), backend = split_site(name[0]), name[1]
    found = {each.name: each for each in services.balancer.services}
    if service not in found:
        raise _unknown(f"the fleet has no service {service}", service, found)
    if group and group not in services.groups[service]:
        raise _unknown(f"service {service} has no group {group}", group, services.groups[service])
    weights = services.weights(found[service], group)
    if backend not in weights:
        where = f" in the group {group}" if group else ""
        raise _unknown(f"service {service} of the fleet has no backend {backend}{where}", backend, weights)
    overrides = dict(view.overrides)
    if weight is None:
        if name not in overrides:
            raise FleetRefused(f"{'/'.join(name)} has no override; its weight is that of the config")
        made = overrides.pop(name)
    else:
        made = FleetOverride(*name, weight, weights[backend], author, now_ms)
        overrides[name] = made
    after = _towards(replace(view, overrides=overrides), intent, memo, IN_USE)
    if after.contested and after.contested != _towards(view, intent, memo, IN_USE).contested:
        _require_uncontested(after.contested)
    return made


def _unknown(text: str, name: str, known: Collection[str]) -> FleetRefused:
    guess = did_you_mean(name, known, " (did you mean {}?)")
    return FleetRefused(f"{text}; it has {first_names(sorted(known)) or 'none'}{guess}")


def _parsed(intent: Intent) -> FleetServices:
    return parse_intent(intent.text, file=f"intent {intent.number}")


def _with_staged(
    view: FleetView, change: FleetChange, rolling: Intent, memo: Memo, availability: Mapping[str, Availability] | None
) -> FleetChange:
    """Return the change of the services in use together with that of the staged ones, in one transaction."""
    changes = change.changes
    services = rows_after(view.services, changes.services)
    rolled_out = replace(view, services=services).rolled_out
    towards = _towards(rolled_out, rolling, memo, ROLLED_OUT, availability)
    wanted = rows_after(rolled_out.services, towards.changes.services)
    staged = {name: each for name, each in wanted.items() if not _is_same(services.get(name), each)}
    removed = frozenset(services.keys() - wanted.keys())
    differs: dict[str, StoredService | None] = {
        **{name: each for name, each in staged.items() if not _is_same(view.staged.get(name), each)},
        **dict.fromkeys(view.staged.keys() - staged.keys()),
    }
    is_same = not differs and removed == view.removed
    if view.wave and is_same and changes == Changes():
        return change
    wave = None if view.wave else next_wave(replace(view, services=services, staged=staged, removed=removed))
    if not view.wave and wave is None:
        # Without DPUs there is no wave to wait for.
        return _towards(view, rolling, memo, ROLLED_OUT, availability)
    changes = replace(
        changes, staged=differs, removed=None if removed == view.removed else removed, wave=wave, ack=True
    )
    return replace(change, changes=changes, steps=change.steps or towards.steps)


def configs_of(view: FleetView, memo: Memo) -> dict[str, FleetServices]:
    """Return the configs in use and of the roll-out, if there are any, by `IN_USE` and `ROLLED_OUT`. They have the
    weights of overrides, and for each site a service under the name of its row. Raises XenoovsError."""
    found = dict[str, FleetServices]()
    for name, intent in ((IN_USE, newest_intent(view)), (ROLLED_OUT, rolling_intent(view))):
        if intent is not None:
            sites, _ = _sites(view, given := _parsed(intent), memo, name)
            balancer = replace(given.balancer, services=tuple(site.service for site in sites.values()))
            found[name] = FleetServices(balancer, {each: site.groups for each, site in sites.items()})
    return found


def stored_shares(view: FleetView, memo: Memo) -> KnownShares:
    """Return the part of its clients that each backend has in the store."""
    stored = stored_services(view.services.values(), memo, memo.part(IN_USE))[0]
    return {(name, backend): part for name, each in stored.items() for backend, part in parts_served(each[1]).items()}


@dataclass(frozen=True, slots=True)
class _Site:
    """A service on the DPUs of some groups, with the weights of overrides. `text`: the config of its row. `read`: the
    service that every DPU reads from it. `service`: the same under the name of the row."""

    groups: frozenset[str]
    text: str
    read: Service
    service: Service
    claim: str


def _sites(
    view: FleetView, given: FleetServices, memo: Memo, name: str
) -> tuple[dict[str, _Site], tuple[FleetOverride, ...]]:
    """Return the sites of a config by the names of their rows, and the overrides that the config ends."""
    overrides, ended = _merged(view.overrides.values(), given)
    weights = defaultdict[str, dict[tuple[str, str], Fraction]](dict)
    for each in overrides:
        service, group = split_site(each.service)
        weights[service][each.backend, group] = each.weight
    services = sorted(given.balancer.services, key=lambda each: each.name)
    arguments = {
        each.name: (
            *(each, given.groups[each.name], given.placements.get(each.name, {}), weights.get(each.name, {})),
            given.balancer.uplinks,
        )
        for each in services
    }
    made = [site for sites in memo.part(name).each(_sites_of_one, arguments).values() for site in sites]
    memo.read |= {site.text: site.read for site in made}
    return {site.service.name: site for site in made}, ended


def _sites_of_one(
    configured: Service,
    groups: frozenset[str],
    placements: Mapping[str, Placement],
    overrides: Mapping[tuple[str, str], Fraction],
    switch: Uplinks,
) -> tuple[_Site, ...]:
    """Return the sites of a service. Raises FleetRefused if no backend of one has a weight."""
    found, made = list(sites_of(configured, groups, placements, overrides)), list[_Site]()
    for of, used in found:
        where = min(of) if len(found) > 1 else ""
        if overrides and not any(backend.weight for backend in used.backends if not backend.is_backup):
            raise FleetRefused(
                f"service {site_name(used.name, where)}: every backend with a weight would be drained; end a drain "
                f"with `xenoovs fleet reset {used.name} BACKEND`, {'' if where else 'or '}give another one a weight"
                + (", or change other groups alone with --group" if where else "")
            )
        read = neutral_service(used, switch.egress)
        named = replace(read, name=site_name(used.name, where)) if where else read
        made.append(_Site(of, service_text(used, switch), read, named, claim_text(used.claim)))
    return tuple(made)


def _towards(
    view: FleetView, intent: Intent, memo: Memo, name: str, availability: Mapping[str, Availability] | None = None
) -> FleetChange:
    """Return the change from a view to an intent with the overrides that fit it. `name`: `IN_USE` or `ROLLED_OUT`."""
    given, results = _parsed(intent), memo.part(name)
    made, ended = _sites(view, given, memo, name)
    stored, unusable = stored_services(view.services.values(), memo, results)
    before = _predecessors(view, made, stored)
    decided = results.each(
        _decided,
        {
            each: (
                *(site.service, stored[before[each][0]] if before[each] else None, given.balancer.uplinks.failover),
                None if availability is None else availability.get(name, Availability()).of(site.service),
            )
            for each, site in made.items()
        },
    )
    wanted = results.each(_row, {each: (made[each], now) for each, (_, now) in decided.items()})
    is_same = results.each(_is_same, {each: (view.services.get(each), new) for each, new in wanted.items()})
    services = {each: replace(new, generation=view.generation + 1) for each, new in wanted.items() if not is_same[each]}
    gone = dict.fromkeys(view.services.keys() - wanted.keys())
    changes = Changes(
        services={**services, **gone},
        overrides={(one.service, one.backend): None for one in ended},
        intents=_intents(view, intent),
        intent=None if view.intent == intent.number else intent.number,
    )
    steps = _steps(view, made, services, gone.keys(), before, stored, decided)
    return FleetChange(changes, steps, ended, tuple(unusable), _contested(view, made))


def _predecessors(view: FleetView, sites: Mapping[str, _Site], usable: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the rows that the DPUs of each site have, that of most DPUs first. The claim identifies a service, which
    may have got another name."""
    rows, found = defaultdict[str, list[StoredService]](list), dict[str, tuple[str, ...]]()
    for each in sorted(usable):
        rows[view.services[each].claim].append(view.services[each])
    for name, site in sites.items():
        same = rows.get(site.claim, [])
        shared = [row for row in same if not site.groups or row.is_for(site.groups)]
        if len(shared) > 1:
            dpus = [dpu.groups for dpu in view.dpus.values() if not site.groups or site.groups & dpu.groups]
            shared.sort(key=lambda row: (-sum(map(row.is_for, dpus)), row.name != name))
        found[name] = tuple(row.name for row in shared or same if shared or row.name == name)
    return found


def _steps(
    view: FleetView,
    sites: Mapping[str, _Site],
    changed: Mapping[str, StoredService],
    gone: Collection[str],
    before: Mapping[str, tuple[str, ...]],
    stored: Mapping[str, tuple[Service, ServiceDecision]],
    decided: Mapping[str, tuple[ServiceDecision | None, ServiceDecision]],
) -> tuple[ServiceStep, ...]:
    """Return the steps of a change, also for DPUs that get another row. `before`: the result of `_predecessors`."""
    had = frozenset(chain.from_iterable(before.values()))
    steps = [
        ServiceStep(split_site(each)[0], None, None, view.services[each].groups) for each in gone if each not in had
    ]
    old_groups, new_groups = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    for row in view.services.values():
        old_groups[row.claim] |= row.groups
    for site in sites.values():
        new_groups[site.claim] |= site.groups
    for name, new in changed.items():
        if not before[name]:
            steps.append(ServiceStep(new.service, None, decided[name][1], groups=new.groups))
        for number, each in enumerate(before[name]):
            old, was = (
                view.services[each],
                decided[name][0] if not number else _followed(sites[name].service, stored[each]),
            )
            groups = old.groups, new.groups
            if old.groups and new.groups:
                both = old.groups & new.groups
                groups = both | old.groups - new_groups[new.claim], both | new.groups - old_groups[new.claim]
            now, (configured, held) = decided[name][1], stored[each]
            clients = moved(delivered(held, configured, sites[name].service), now)
            step = ServiceStep(new.service, was, now, *groups, clients)
            if step.was != step.now or old.config != new.config or step.old_groups != step.groups:
                steps.append(step)
    return tuple(sorted(steps, key=lambda each: (each.name, sorted(each.groups), sorted(each.old_groups))))


def _contested(view: FleetView, sites: Mapping[str, _Site]) -> dict[str, str]:
    """Return the DPUs that would have two services which no DPU can have together, each with a message."""
    # Services of one group are compared when the config is read.
    crossing = {dpu.groups for dpu in view.dpus.values() if len(dpu.groups) > 1}
    listed, clashes = list(sites.values()), dict[frozenset[str], str]()
    claimants = [(index, site.service) for index, site in enumerate(listed)] if crossing else []
    for groups in crossing if any(check_between(claimants)) else ():
        served = [each for each in claimants if not (of := listed[each[0]].groups) or of & groups]
        for remark in islice(check_between(served), 1):
            numbers = (path[1] for path in (remark.other or (), remark.path))
            clashes[groups] = " and of ".join(listed[each].service.name for each in numbers if isinstance(each, int))
    return {
        name: f"{name} is in groups of {clashes[dpu.groups]}, which no DPU can have together; give it other groups "
        f"with `xenoovs fleet set-dpu {name} --groups ...`"
        for name, dpu in sorted(view.dpus.items())
        if dpu.groups in clashes
    }


def _require_uncontested(contested: Mapping[str, str]) -> None:
    for problem in contested.values():
        raise FleetRefused(problem)


def require_groups(view: FleetView, dpu: Dpu) -> None:
    """Raise FleetRefused if a DPU in these groups would have services that no DPU can have together."""
    view = replace(view, dpus={dpu.name: dpu})
    for intent in filter(None, (newest_intent(view), rolling_intent(view)) if len(dpu.groups) > 1 else ()):
        _require_uncontested(_contested(view, _sites(view, _parsed(intent), Memo(), IN_USE)[0]))


_NOWHERE = Uplinks("fleet", ("ingress",), "egress", OtherTraffic.DROP)
"""Decisions do not depend on the ports of a bridge."""


def _decided(
    service: Service,
    before: tuple[Service, ServiceDecision] | None,
    failover: Failover | None,
    availability: Availability | None,
) -> tuple[ServiceDecision | None, ServiceDecision]:
    """Return the old decision, under the present names of backends, and the new one. Raises what `decide` raises.
    `before`: the old config and decision; None if the service is new. `failover`: that of all DPUs; a port matters only
    as one that backends share."""
    desired = DesiredState(Balancer(replace(_NOWHERE, failover=failover), (service,)))
    was = None if before is None else _followed(service, before)
    previous = Decision.of({} if was is None else {service_ids([service.claim])[service.claim]: was})
    if availability is None:
        desired = undisturbed(previous, desired)
    else:
        desired = replace(desired, ejected=availability.ejected, held=availability.held, ramps=availability.ramps)
    ((_, now),) = decide(previous, desired).services
    return was, now


def _followed(service: Service, before: tuple[Service, ServiceDecision]) -> ServiceDecision:
    """Return the old decision, under the present names of backends. `before`: as for `_decided`."""
    old, after = (Balancer(_NOWHERE, (each,)) for each in (before[0], service))
    ((_, was),) = follow(decision_of(old, {before[0].name: before[1]}), Transition(), before=old, after=after)[
        0
    ].services
    return was


def _row(site: _Site, decision: ServiceDecision) -> StoredService:
    return StoredService(
        site.service.name, site.groups, site.text, site.claim, 0, active=decision.active, home=decision.home
    )


def _is_same(old: StoredService | None, new: StoredService) -> bool:
    return old is not None and replace(old, generation=new.generation) == new


def _intents(view: FleetView, intent: Intent) -> dict[int, Intent | None]:
    """Return the changes of intents once this one is in use; the oldest are removed."""
    if intent.state is IntentState.CURRENT:
        return {}
    current = {n: each for n, each in view.intents.items() if each.state is IntentState.CURRENT and n != intent.number}
    past: dict[int, Intent | None] = {n: replace(each, state=IntentState.PAST) for n, each in current.items()}
    oldest = sorted({*view.intents, intent.number})[:-MAX_INTENTS]
    return {**past, intent.number: intent.ended(IntentState.CURRENT), **dict.fromkeys(oldest)}


def _merged(
    overrides: Iterable[FleetOverride], given: FleetServices
) -> tuple[tuple[FleetOverride, ...], tuple[FleetOverride, ...]]:
    """Return the overrides that stay, and those that the config ends (docs/adr/0009)."""
    services = {service.name: service for service in given.balancer.services}
    holds, ended = list[FleetOverride](), list[FleetOverride]()
    for each in sorted(overrides, key=lambda each: (each.service, each.backend)):
        name, group = split_site(each.service)
        weights = given.weights(services[name], group) if name in services else {}
        (holds if weights.get(each.backend) == each.configured else ended).append(each)
    return tuple(holds), tuple(ended)


# When DPUs switch to a change: together, at a time that is written with it, or each at once.


SWITCH_AFTER_S = 2.0
"""Default time from a decision until DPUs switch, in which they receive the change and prepare it."""
MAX_WAIT_S = 5.0
"""The longest that a DPU waits after it has received a change, by any clock. Open vSwitch drops a bundle that is idle
for 10 s (ovs-vswitchd.conf.db(5), `bundle-idle-timeout`)."""


def switch_time_ms(view: FleetView, changes: Changes, *, now_ms: int, after_s: float) -> int | None:
    """Return when DPUs must switch, in milliseconds since 1970; 0 for at once, None if no flows change. A change that
    takes blocks from backends has a time, as DPUs would disagree about these while it spreads."""
    if changes.switch_at_ms is not None:
        return changes.switch_at_ms
    touched = changes.services.keys() | changes.staged.keys()
    if not touched and changes.wave is None and changes.removed is None:
        return None
    if changes.wave == 0:
        return 0
    takes_blocks = bool(changes.wave or changes.removed or touched & view.services.keys())
    return now_ms + int(after_s * 1000) if after_s and takes_blocks else 0


def is_awaited(view: FleetView, *, now_ms: int) -> bool:
    """Return whether the DPUs are about to switch, so that the next change must not be written yet. DPUs that receive
    both changes would make the first one at the time of the second."""
    return 0 < view.switch_at_ms - now_ms <= MAX_WAIT_S * 1000


def seconds_to_wait(switch_at_ms: int, *, now_ms: float) -> float:
    """Return for how long a DPU waits after it has received a change; 0 if it switches at once. The wait is limited, as
    a longer one means that a clock is behind."""
    return min(max(0.0, (switch_at_ms - now_ms) / 1000), MAX_WAIT_S)


# Drains: services whose open connections stay with their old backends for a while.


_LATEST_S = MAX_WAIT_S + SETTLE_S
"""Time from the beginning of a drain in the store until the last DPU has begun it."""


_Drain = tuple[str, int, float]
"""A service, the beginning of its drain in ms by the clock of the writer, and its longest duration in seconds."""


def _drains(view: FleetView) -> Iterator[_Drain]:
    timeouts_ms = {
        service.name: service.drain.timeout_ms
        for intent in (newest_intent(view), rolling_intent(view))
        if intent is not None
        for service in parse_intent(intent.text, file=f"intent {intent.number}").balancer.services
        if service.drain.mode is DrainMode.PIN
    }
    rows = [*view.services.values(), *view.staged.values()]
    newest = max((row.generation for row in rows), default=0)
    began = chain(
        ((split_site(each.service)[0], each.since_ms) for each in view.overrides.values()),
        ((row.service, view.switch_at_ms) for row in rows if row.generation == newest),
    )
    return ((*each, _LATEST_S + timeouts_ms[each[0]] / 1000) for each in began if each[0] in timeouts_ms)


class DrainWatch:
    """Measures drains by its own clock too, so that none seems to last for hours if the host's clock is behind."""

    def __init__(self) -> None:
        self._seen_s: dict[_Drain, float] = {}

    def left(self, view: FleetView, *, clocks_ms: Iterable[int], now_s: float) -> dict[str, float]:
        """Return how many seconds the drain of each service may still last, by name, for those with `drain: {mode:
        pin}`. It begins with an override, or the last planned change. It may end earlier on a DPU, when its connections
        there are idle. `now_s` never goes back. `clocks_ms`: the time by each clock that may be that of a writer, in ms
        since 1970. The least age counts; if all clocks are behind, a drain has its longest duration. Raises
        XenoovsError if a config of the store cannot be read."""
        left = dict[str, float]()
        for each in _drains(view):
            service, began_ms, most_s = each
            watched_s = now_s - self._seen_s.setdefault(each, now_s)
            # A clock that is behind the beginning is not that of its writer.
            aged_s = min((aged / 1000 for ms in clocks_ms if (aged := ms - began_ms) >= 0), default=0.0)
            if (left_s := most_s - max(watched_s, aged_s)) > left.get(service, 0):
                left[service] = left_s
        return left


# What a restore of an exported fleet writes into an empty store.


GENERATION_STEP = 1_000_000
"""DPUs refuse an older generation than theirs, and how many followed the export is unknown. With one change per second
this is enough for 11 days."""


def restoring(view: FleetView, exported: FleetView, statuses: Mapping[str, DpuStatus], *, now_ms: int) -> Changes:
    """Return the changes that restore a fleet: its services with their blocks, DPUs, overrides and configs.

    The new generation is above that of the export and all that DPUs report. It is at least the time in milliseconds, so
    each restore of one export has a larger one, even if no DPU has reported yet. Raises FleetRefused if the store has a
    config, or the export has services or a config that cannot be used.
    """
    if view.intents or view.services or view.staged or view.overrides:
        raise FleetRefused(
            "the store has a config already, which a restore would replace; restore into new databases of `xenoovs "
            "fleet init`, or give an earlier config with `xenoovs fleet apply --rollback`"
        )
    # A restore ends a roll-out.
    reason = "refused: its roll-out was running when the fleet was exported"
    intents = {
        number: each.ended(IntentState.REFUSED, reason) if each.state is IntentState.ROLLING else each
        for number, each in exported.intents.items()
    }
    if problems := stored_services(exported.services.values(), memo := Memo(), memo)[1]:
        raise FleetRefused(f"the services of the export cannot be used: {problems[0]}")
    try:
        next_change(replace(exported, intents=intents), memo=memo)
    except XenoovsError as problem:
        raise FleetRefused(f"the config in use of the export cannot be used: {problem}") from None
    # A client with a stolen key may report any number, such as the largest one, which the fleet cannot exceed.
    limit = max(exported.generation, now_ms) + 1000 * GENERATION_STEP
    reported = max((each.applied for each in statuses.values() if each.applied <= limit), default=0)
    # The history of the export, followed by that of the store with new numbers.
    later = enumerate((each for _, each in sorted(view.actions.items())), start=max(exported.actions, default=0) + 1)
    own = {number: replace(each, number=number) for number, each in later}
    return Changes(
        services=exported.services,
        dpus=exported.dpus,
        overrides=exported.overrides,
        watches=exported.watches,
        actions={**dict.fromkeys(view.actions), **exported.actions, **own},
        intents=intents,
        intent=exported.intent,
        generation=max(max(view.generation, exported.generation, reported) + GENERATION_STEP, now_ms),
    )


# The services of the store as a config and its decision, and back.


_DIGEST_DIGITS = 16

T = TypeVar("T")
Name = TypeVar("Name")


class Memo:
    """Results of pure functions by name, reused while the arguments are equal. `read`: parsed services by text."""

    def __init__(self) -> None:
        self.read: dict[str, Service] = {}
        self._last: dict[Callable[..., Any], dict[Any, tuple[tuple[object, ...], Any]]] = {}
        self._parts: dict[str, Memo] = {}

    def part(self, name: str) -> Memo:
        """Return a separate memo for results under the same names, such as those of another config."""
        return self._parts.setdefault(name, Memo())

    def each(self, function: Callable[..., T], arguments: Mapping[Name, tuple[object, ...]]) -> dict[Name, T]:
        """Return the results by name, and drop other names of the function. `function`: not a lambda or a method."""
        last = self._last.get(function, {})
        found = dict[Name, tuple[tuple[object, ...], T]]()
        for name, given in arguments.items():
            before = last.get(name)
            # The newest arguments are stored: the next ones are mostly identical, which is quick to compare.
            found[name] = given, before[1] if before is not None and before[0] == given else function(*given)
        self._last[function] = found
        return {name: result for name, (_, result) in found.items()}


IN_USE, ROLLED_OUT = "in use", "rolled out"
"""The names of a memo's parts for the two configs of a fleet."""
_MAX_READ = 4 * MAX_SERVICES
"""When the memo has more services, all are dropped, and parsed again."""

Problem = StoredServiceUnusable | ConfigError
"""Why a row of the store cannot be used."""


def stored_services(
    rows: Iterable[StoredService], memo: Memo, results: Memo
) -> tuple[dict[str, tuple[Service, ServiceDecision]], list[Problem]]:
    """Return the services of the store by name, and why some rows cannot be used. Such a row affects no other one.
    `results`: the memo for the decisions of these rows."""
    if len(memo.read) > _MAX_READ:
        memo.read.clear()
    rows = sorted(rows, key=lambda each: each.name)
    if new := {row.name: row.config for row in rows if row.config not in memo.read}:
        # To parse all at once is quicker. If one is wrong, each is parsed alone below.
        with suppress(ConfigError):
            memo.read |= {new[name]: service for name, service in read_services(new).items()}
    found = results.each(_stored, {row.name: (row, _service_of(row, memo.read)) for row in rows})
    usable = {name: each for name, each in found.items() if isinstance(each, tuple)}
    return usable, [each for each in found.values() if not isinstance(each, tuple)]


def _service_of(row: StoredService, read: dict[str, Service]) -> Service | ConfigError:
    if row.config not in read:
        try:
            (read[row.config],) = read_services({row.name: row.config}).values()
        except ConfigError as problem:
            return problem
    return read[row.config]


def _stored(row: StoredService, service: Service | ConfigError) -> tuple[Service, ServiceDecision] | Problem:
    """Return the service under the name of its row, which differs for a site, and the decision for it."""
    if isinstance(service, ConfigError):
        return service
    try:
        decision = _decision_of(row, service)
    except StoredServiceUnusable as problem:
        return problem
    return service if service.name == row.name else replace(service, name=row.name), decision


class ViewReader:
    """Reads the services of a DPU from successive views, and parses only new texts: a thousand take a second."""

    def __init__(self) -> None:
        self._last: tuple[tuple[str | bytes, str], Mapping[str, str], Balancer] | None = None
        self._memo = Memo()

    def read(
        self, services: Iterable[StoredService], local: str | bytes, *, file: str, sources: ConfigSources | None = None
    ) -> tuple[Balancer, Stored]:
        """Return the config of one DPU, and the decision for each service. `local`: as for `model.fleet.join`. Raises
        ConfigError if services and file make no config; StoredServiceUnusable if blocks do not fit their service."""
        rows = sorted(services, key=lambda each: each.name)
        texts = {row.name: row.config for row in rows}
        balancer = self._updated(texts, (local, file), sources) or join(local, texts, file=file, sources=sources)
        self._last = (local, file), texts, balancer
        pairs = zip(rows, balancer.services, strict=True)
        return balancer, self._memo.each(_decision_of, {service.name: (row, service) for row, service in pairs})

    def _updated(
        self, texts: Mapping[str, str], local: tuple[str | bytes, str], sources: ConfigSources | None
    ) -> Balancer | None:
        """Return the last config with the services of these texts; None if all must be parsed."""
        if self._last is None or self._last[0] != local or not 0 < len(texts) <= MAX_SERVICES:
            return None
        _, had, last = self._last
        before = dict(zip(had, last.services, strict=True))
        new = {name: text for name, text in texts.items() if had.get(name) != text}
        if not new and texts.keys() == before.keys():
            return last
        try:
            joined = join(local[0], new, file=local[1], sources=sources)
        except ConfigError:
            return None  # Parsing all of them gives all findings.
        read = dict(zip(new, joined.services, strict=True))
        services = {name: read.get(name) or before[name] for name in texts}
        is_same = all(name in before and claimed(each) == claimed(before[name]) for name, each in read.items())
        if not is_same and any(check_between(enumerate(services.values()))):
            return None
        return replace(last, services=tuple(services.values()))


def decision_of(balancer: Balancer, stored: Stored) -> Decision:
    """Return the stored decisions as one decision about the services of a config."""
    ids = service_ids(service.claim for service in balancer.services)
    return Decision.of({ids[service.claim]: stored[service.name] for service in balancer.services})


def digest(service: str, decision: ServiceDecision | None) -> str:
    """Return a digest that is equal on two DPUs exactly if they send the same clients of a service to the same
    backends; empty if there is no decision. It is the start of the SHA-256 of lines of value, mask and backend. So it
    depends on the bits of packets that flows match, not on how blocks are written as prefixes."""
    if decision is None:
        return ""
    rows = sorted((*spread(block, decision.key.positions), owner) for block, owner in decision.active.rows)
    lines = (f"{value:#x}/{mask:#x} {owner}\n" for value, mask, owner in rows)
    return sha256(f"{service}\n{''.join(lines)}".encode()).hexdigest()[:_DIGEST_DIGITS]


def _decision_of(stored: StoredService, service: Service) -> ServiceDecision:
    """Return the decision in a row. Raises StoredServiceUnusable."""
    if stored.service != service.name:
        raise StoredServiceUnusable(service=stored.name, reason=f"its config is that of {service.name}")
    if stored.claim != claim_text(service.claim):
        raise StoredServiceUnusable(service=stored.name, reason=f"its config is not for {stored.claim}")
    names = {backend.name for backend in service.backends}
    for blocks in (stored.home, stored.active):
        if unknown := sorted(blocks.owners - names):
            raise StoredServiceUnusable(
                service=stored.name, reason=f"it has blocks of {unknown[0]}, but no such backend"
            )
        if blocks.depth > service.key.max_width:
            reason = f"a block has {blocks.depth} bits, but the service {service.key.max_width}"
            raise StoredServiceUnusable(service=stored.name, reason=reason)
    # If all backends are down, packets are dropped.
    is_dropped = service.health is not None and not stored.active.rows
    if not (stored.active.is_complete or is_dropped) or not stored.home.is_complete:
        raise StoredServiceUnusable(service=stored.name, reason="its blocks are not all clients")
    return ServiceDecision(service.key, stored.home, stored.active)
