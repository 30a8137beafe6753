"""Configs that were given for later: which one waits, when it begins, and when DPUs switch to it.

Pure: the clock is that of the caller. A controller that starts after the time begins it at once.
"""

from __future__ import annotations

from dataclasses import replace

from xenoovs.display import moment
from xenoovs.fleet.change import newest_intent, refusal, rolling_intent
from xenoovs.fleet.progress import SETTLE_S
from xenoovs.fleet.switch_time import MAX_WAIT_S
from xenoovs.store.view import Changes, FleetView, Intent, IntentState

MAX_AHEAD_S = 7 * 86_400
"""A config that waits for longer was probably given for a wrong date."""
LEAD_S = 3.0
"""So long before its time a config is decided about, for DPUs to prepare; they wait for at most `MAX_WAIT_S`."""


def waiting_intent(view: FleetView) -> Intent | None:
    """Return the intent that waits for its time."""
    waiting = (number for number, one in view.intents.items() if one.state is IntentState.WAITING)
    return view.intents.get(max(waiting, default=0))


def begun(view: FleetView, *, now_ms: int, after_s: float) -> Changes | None:
    """Return the changes that begin the waiting intent; None: there is none, or it waits on.

    Args:
        now_ms: The time now, since 1970.
        after_s: How long DPUs need to prepare a change; never less than `LEAD_S`.
    """
    intent = waiting_intent(view)
    if intent is None or rolling_intent(view) is not None:
        return None
    lead_ms = int(min(max(LEAD_S, after_s), MAX_WAIT_S) * 1000)
    if now_ms < intent.at_ms - lead_ms:
        return None
    newest = newest_intent(view)
    if newest is not None and newest.number > intent.number:
        return refusal(view, intent, f"config {newest.number} is newer")
    state = IntentState.ROLLING if intent.in_waves else IntentState.STAGED
    return Changes(intents={intent.number: replace(intent, state=state)})


def waiting_lines(view: FleetView) -> list[str]:
    """Return what waits until when, in words."""
    intent = waiting_intent(view)
    if intent is None:
        return []
    return [f"config {intent.number} waits until {moment(intent.at_ms)}; `xenoovs fleet stop` takes it back"]


def overdue_config(view: FleetView, *, now_ms: int) -> str:
    """Return the words for a config that no controller has begun; an empty text: it is not due, or may yet begin."""
    intent = waiting_intent(view)
    if intent is None or now_ms < intent.at_ms + SETTLE_S * 1000:
        return ""
    return f"no controller has begun config {intent.number}, which waited until {moment(intent.at_ms)}"
