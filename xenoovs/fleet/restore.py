"""What a restore of an exported fleet writes into an empty store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from xenoovs.errors import FleetRefused, XenoovsError
from xenoovs.fleet.change import next_change
from xenoovs.fleet.services import Memo, stored_services
from xenoovs.store.view import Changes, DpuStatus, FleetView, Intent, IntentState

GENERATION_STEP = 1_000_000
"""DPUs refuse an older generation than they have, and how many came after the export is unknown. With a change a
second this is enough for 11 days."""


def restoring(view: FleetView, exported: FleetView, statuses: Mapping[str, DpuStatus], *, now_ms: int) -> Changes:
    """Return the changes that restore a fleet: its services with their blocks, DPUs, overrides and configs.

    The new generation is above that of the export and all that DPUs report. It is the time in milliseconds, so each
    restore of one export has a larger one, also when no DPU has reported by then.

    Args:
        view: Of the store, without a config.
        exported: What was exported.
        statuses: What DPUs have reported to the store by now.
        now_ms: The time, since 1970.

    Raises:
        FleetRefused: The store has a config, or the export has services or a config that cannot be used.
    """
    if view.intents or view.services or view.staged or view.overrides:
        raise FleetRefused(
            "the store has a config already, which a restore would replace; restore into new databases of `xenoovs "
            "fleet init`, or give an earlier config with `xenoovs fleet rollback`"
        )
    intents = {number: _ended(each) for number, each in exported.intents.items()}
    if problems := stored_services(exported.services.values(), memo := Memo(), memo)[1]:
        raise FleetRefused(f"the services of the export cannot be used: {problems[0]}")
    try:
        next_change(replace(exported, intents=intents), memo=memo)
    except XenoovsError as problem:
        raise FleetRefused(f"the config in use of the export cannot be used: {problem}") from None
    # A DPU whose key was stolen may report any number, and the fleet would have no larger one left.
    limit = max(exported.generation, now_ms) + 1000 * GENERATION_STEP
    reported = max((each.applied for each in statuses.values() if each.applied <= limit), default=0)
    return Changes(
        services=exported.services,
        dpus=exported.dpus,
        overrides=exported.overrides,
        watches=exported.watches,
        intents=intents,
        intent=exported.intent,
        generation=max(max(view.generation, exported.generation, reported) + GENERATION_STEP, now_ms),
    )


def _ended(intent: Intent) -> Intent:
    """Return an intent as it is after a restore: no roll-out goes on."""
    if intent.state is not IntentState.ROLLING:
        return intent
    return intent.ended(IntentState.REFUSED, "refused: its roll-out was running when the fleet was exported")


def services_to_move(view: FleetView) -> list[str]:
    """Return the names of services that the controller will change after a restore; usually none."""
    return [step.name for step in next_change(view).steps]
