"""Which drains run in a fleet: services whose open connections stay with their old backends for a while. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from xenoovs.decision.advance import SETTLE_S
from xenoovs.fleet.change import newest_intent, parse_intent, rolling_intent
from xenoovs.fleet.switch_time import MAX_WAIT_S
from xenoovs.model.balancer import DrainMode
from xenoovs.store.view import FleetView

_LATEST_S = MAX_WAIT_S + SETTLE_S
"""From what the store has as the begin of a drain until the last DPU has begun it."""


@dataclass(frozen=True, slots=True)
class _Drain:
    """A drain of a service: when it began, by the clock of the writer, and for how long it lasts at most."""

    service: str
    began_ms: int
    most_s: float


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
        ((each.service, each.since_ms) for each in view.overrides.values()),
        ((row.name, view.switch_at_ms) for row in rows if row.generation == newest),
    )
    return (_Drain(*each, _LATEST_S + timeouts_ms[each[0]] / 1000) for each in began if each[0] in timeouts_ms)


def pinned_drains(view: FleetView, *, now_ms: int) -> dict[str, float]:
    """Return how many seconds the drain of each service may yet last, by name, for those with `drain: {mode: pin}`.

    A drain begins with an override, or with the last planned change, which has the time at which DPUs switch. It may
    end earlier on each DPU: only the DPU knows when its connections are idle. By a clock that is behind those of the
    writers each lasts as long as it may at all.

    Raises XenoovsError: A config of the store cannot be read.
    """
    return _longest((each, each.most_s - max(0.0, (now_ms - each.began_ms) / 1000)) for each in _drains(view))


class DrainWatch:
    """Watches drains until they end, by its own clock from when it has first seen them.

    A clock of this host that is behind those of the writers makes no drain last for hours. By one that is ahead, all
    would be over: where clocks are known to differ, each lasts as long as it may from then on.
    """

    def __init__(self) -> None:
        self._seen_s: dict[_Drain, float] = {}

    def left(self, view: FleetView, *, now_ms: int, now_s: float, clocks_differ: bool) -> dict[str, float]:
        """Return what `pinned_drains` does. `now_s`: on a clock that never goes back."""
        found = list[tuple[_Drain, float]]()
        for each in _drains(view):
            watched_s = now_s - self._seen_s.setdefault(each, now_s)
            aged_s = 0.0 if clocks_differ else (now_ms - each.began_ms) / 1000
            found.append((each, each.most_s - max(watched_s, aged_s)))
        return _longest(found)


def _longest(found: Iterable[tuple[_Drain, float]]) -> dict[str, float]:
    left = dict[str, float]()
    for drain, left_s in found:
        if left_s > left.get(drain.service, 0):
            left[drain.service] = left_s
    return left
