"""Which drains run in a fleet: services whose open connections stay with their old backends for a while. Pure."""

from __future__ import annotations

from itertools import chain

from xenoovs.decision.advance import SETTLE_S
from xenoovs.fleet.change import newest_intent, parse_intent, rolling_intent
from xenoovs.fleet.switch_time import MAX_WAIT_S
from xenoovs.model.balancer import DrainMode
from xenoovs.store.view import FleetView

_LATEST_S = MAX_WAIT_S + SETTLE_S
"""From what the store has as the begin of a drain until the last DPU has begun it."""


def pinned_drains(view: FleetView, *, now_ms: int) -> dict[str, float]:
    """Return how many seconds the drain of each service may yet last, by name, for those with `drain: {mode: pin}`.

    A drain begins with an override, or with the last planned change, which has the time at which DPUs switch. It may
    end earlier on each DPU: only the DPU knows when its connections are idle.

    Raises XenoovsError: A config of the store cannot be read.
    """
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
        ((each.service, each.since_ms) for each in view.overrides.values()),
        ((row.name, view.switch_at_ms) for row in rows if row.generation == newest),
    )
    left = dict[str, float]()
    for name, began_ms in began:
        left_s = _LATEST_S + (began_ms + timeouts_ms.get(name, 0) - now_ms) / 1000
        if name in timeouts_ms and left_s > left.get(name, 0):
            left[name] = left_s
    return left
