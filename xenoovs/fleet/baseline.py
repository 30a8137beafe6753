"""What was wrong before a wave. It is stored when the wave begins: only what becomes wrong later ends the roll-out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from xenoovs.decision.decision import BackendName
from xenoovs.fleet.change import parse_intent, rolling_intent
from xenoovs.fleet.hardware import shares_before
from xenoovs.fleet.votes import VoteResult, target_of, votes_on
from xenoovs.store.view import Changes, Dpu, DpuStatus, FleetView, Intent


def with_baseline(view: FleetView, changes: Changes, statuses: Mapping[str, DpuStatus]) -> Changes:
    """Return the changes that begin a wave, with what is wrong before it.

    Of the DPUs of this wave: the share of megaflows in hardware, and which are not fit. Before the first wave: which
    targets of health checks are down.
    """
    intent = rolling_intent(view)
    if intent is None or not changes.wave:
        return changes
    begins = {name: changes.dpus.get(name) or dpu for name, dpu in view.dpus.items()}
    begins = {name: dpu for name, dpu in begins.items() if view.wave < dpu.wave <= changes.wave}
    watches = {target: changes.watches.get(target, watch) for target, watch in view.watches.items()}
    down = frozenset(target for target, watch in watches.items() if watch is not None and watch.is_down)
    changed = changes.intents.get(intent.number) or intent
    changed = replace(
        changed,
        hw_before={**changed.hw_before, **shares_before(begins, statuses)},
        unfit_before=changed.unfit_before.union(name for name, dpu in begins.items() if is_unfit(dpu, statuses)),
        down_before=changed.down_before if view.wave else down,
    )
    return replace(changes, intents={**changes.intents, intent.number: changed})


def is_unfit(dpu: Dpu, statuses: Mapping[str, DpuStatus] | None) -> bool:
    """Return whether a DPU reports that it is not fit, or has done so before it became silent."""
    status = (statuses or {}).get(dpu.name)
    return dpu.is_unfit or (status is not None and not status.is_fit)


def lost_targets(view: FleetView, statuses: Mapping[str, DpuStatus] | None) -> dict[str, str]:
    """Return the targets that a roll-out has lost, each with the reason in words.

    Their witnesses vote that they are down, they were not when it began, and a backend with a weight needs them, of a
    service that it adds or changes. So a backend of another service, or one that is drained, may die meanwhile.
    """
    intent = rolling_intent(view)
    if intent is None or not view.wave:
        return {}
    down = {target for target, each in view.watches.items() if each.is_down} - intent.down_before
    if not down:
        return {}
    lost, found = dict[str, str](), statuses or {}
    for target, (service, backend) in _needed(view, intent):
        # A new target may begin as down, before the first votes.
        if target not in down:
            continue
        votes = votes_on(view, view.watches[target], found, found.keys())
        if votes.result is VoteResult.DOWN:
            lost[target] = f"{service}/{backend} ({target}) is down since the roll-out began: {votes.text}"
    return lost


def _needed(view: FleetView, intent: Intent) -> Iterator[tuple[str, BackendName]]:
    """Yield the targets of backends with a weight, of services that a roll-out adds or changes."""
    for service in parse_intent(intent.text, file=f"intent {intent.number}").balancer.services:
        for backend in service.backends if service.name in view.staged else ():
            name = service.name, backend.name
            override, target = view.overrides.get(name), target_of(service, backend)
            if target is not None and (backend.weight if override is None else override.weight):
                yield target, name
