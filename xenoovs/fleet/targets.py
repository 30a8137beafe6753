"""The state of the targets of a fleet's health checks, from votes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum

from xenoovs.dataclass import dataclass, replace
from xenoovs.display import duration
from xenoovs.errors import counted, first_names
from xenoovs.fleet.services import IN_USE, Memo, stored_services
from xenoovs.fleet.votes import Targets, VoteResult, Votes, fit_dpus, targets_of, votes_on
from xenoovs.store.view import DpuStatus, FleetView, Watch

_MAX_PROBLEMS = 10
UNWRITTEN_S = 5.0
"""For so long the votes of most witnesses may differ from the store: two election timers, and the decision."""


class TargetState(Enum):
    """The state of a target. NO_QUORUM: it counts as up, and its witnesses lack the votes to change that."""

    DOWN = "down"
    NO_QUORUM = "no quorum"
    UP = "up"


@dataclass(frozen=True, slots=True)
class TargetRow:
    """A target in the list: `ADDRESS/PROBE/PORT`. `backends`: `SERVICE/BACKEND`, of what is in use.

    `is_held`: a backend of it is down and keeps its clients. `is_unwritten`: most witnesses vote otherwise for some
    time, and no controller has written it.
    """

    target: str
    backends: tuple[str, ...]
    state: TargetState
    since_s: float
    votes: Votes
    is_held: bool = False
    is_unwritten: bool = False

    @property
    def problem(self) -> str:
        """What is wrong, in words; an empty text: nothing is."""
        name = f"{first_names(self.backends, most=3)} ({self.target})" if self.backends else self.target
        if self.is_unwritten:
            return f"no controller has written that {name} is {self.votes.result.value}: {self.votes.text}"
        if self.state is TargetState.UP:
            return ""
        if self.state is TargetState.NO_QUORUM:
            return f"no quorum about {name}, which stays up: {self.votes.text}"
        held = "; it keeps clients, by `max_down` or because all are down" if self.is_held else ""
        return f"{name} has been down for {duration(self.since_s)}: {self.votes.text}{held}"


class UnwrittenVotes:
    """Watches by its own clock for how long most witnesses of a target have voted otherwise than the store has it."""

    def __init__(self) -> None:
        self._since_s: dict[str, float] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether there are such votes, perhaps only for a moment."""
        return bool(self._since_s)

    def late(self, view: FleetView, statuses: Mapping[str, DpuStatus] | None, *, now_s: float) -> frozenset[str]:
        """Return the targets of which that has been so for `UNWRITTEN_S`. `now_s`: on a clock that never goes back."""
        fit = frozenset[str]() if statuses is None else fit_dpus(view, statuses)
        found = dict[str, float]()
        for target, watch in view.watches.items():
            result = votes_on(view, watch, statuses or {}, fit).result
            if result is not VoteResult.NO_QUORUM and (result is VoteResult.DOWN) is not watch.is_down:
                found[target] = self._since_s.get(target, now_s)
        self._since_s = found
        return frozenset(target for target, since_s in found.items() if now_s - since_s >= UNWRITTEN_S)


def target_rows(
    view: FleetView,
    statuses: Mapping[str, DpuStatus] | None,
    *,
    now_s: float,
    unwritten: Collection[str] = (),
    memo: Memo | None = None,
) -> list[TargetRow]:
    """Return targets, down first; empty: no reports. `now_s`: since 1970. `unwritten`: of `UnwrittenVotes.late`."""
    if statuses is None:
        return []
    fit = fit_dpus(view, statuses)
    named = _targets(view, memo or Memo())
    rows = [_row(watch, votes_on(view, watch, statuses, fit), named, view, now_s) for watch in view.watches.values()]
    rows = [replace(row, is_unwritten=row.target in unwritten) for row in rows]
    order = list(TargetState)
    return sorted(rows, key=lambda row: (order.index(row.state), row.target))


def target_problems(rows: Iterable[TargetRow]) -> list[str]:
    """Return what is wrong with targets, in words."""
    problems = list(filter(None, (row.problem for row in rows)))
    left = len(problems) - _MAX_PROBLEMS
    more = [f"{counted(left, 'more target')} in trouble; JSON has all"] if left > 0 else []
    return problems[:_MAX_PROBLEMS] + more


def _row(watch: Watch, votes: Votes, named: Targets, view: FleetView, now_s: float) -> TargetRow:
    names = named.get(watch.target, ())
    state = TargetState.UP
    if watch.is_down:
        state = TargetState.DOWN
    elif votes.result is VoteResult.NO_QUORUM:
        state = TargetState.NO_QUORUM
    is_held = watch.is_down and any(backend in view.services[service].active.owners for service, backend in names)
    since_s = max(0.0, now_s - watch.since_ms / 1000)
    return TargetRow(watch.target, tuple("/".join(name) for name in names), state, since_s, votes, is_held)


def _targets(view: FleetView, memo: Memo) -> Targets:
    """Return the targets of the services in use, without those whose rows cannot be read, which is another problem."""
    results = memo.part(IN_USE)
    stored, _ = stored_services(view.services.values(), memo, results)
    return targets_of((service for service, _ in stored.values()), results.part("stored"))
