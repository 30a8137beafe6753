"""All that is known of a fleet at one moment: the same for commands, on its page and in its metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from fractions import Fraction
from itertools import chain

from xenoovs.dataclass import dataclass, replace
from xenoovs.display import duration
from xenoovs.errors import counted, first_names, worded
from xenoovs.fleet.health import SILENT_S, Targets, VoteResult, Votes, fit_dpus, targets_of, votes_on
from xenoovs.fleet.plan import IN_USE, FleetChange, Memo, rolling_intent, stored_services
from xenoovs.fleet.rollout import hw_share, uncompared, waits_for
from xenoovs.store.servers import ServerFacts
from xenoovs.store.view import Dpu, DpuStatus, FleetView, Intent, IntentState, Standing, Watch, standing
from xenoovs.switch.certificates import CERTIFICATE_WARNING_S, certificate_problem


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """A moment of a fleet. `view`: None: the store has not answered yet. `servers`, `is_active`: of this host.

    `problems`: what an operator should look after, in words. `now_s`: since 1970. `targets`: those that are down first.
    `is_stalled`: no controller has written what was due. `roll_out`: what it does and waits for, and which config waits
    for its time, in words.
    """

    view: FleetView | None
    rows: tuple[DpuRow, ...]
    servers: tuple[ServerFacts, ...]
    is_active: bool
    problems: tuple[str, ...]
    now_s: float
    is_stalled: bool = False
    roll_out: tuple[str, ...] = ()
    targets: tuple[TargetRow, ...] = ()

    def counts(self) -> Counter[DpuState]:
        """Return how many DPUs there are in each state."""
        return Counter(row.state for row in self.rows)

    def worst_first(self) -> list[DpuRow]:
        """Return the DPUs; those that need an operator come first, of one state those with a note."""
        return sorted(self.rows, key=lambda row: (WORST_FIRST.index(row.state), not row.note, row.name))

    @property
    def headline(self) -> tuple[str, str]:
        """The state of the fleet in a few words, and how bad it is: `good`, `warn` or `bad`."""
        counts = self.counts()
        differing = len(self.rows) - counts[DpuState.APPLIED]
        if self.view is None or self.problems:
            return "has problems", "bad"
        if not differing and self.view.wave:
            return f"wave {self.view.wave} of a roll-out", "warn"
        if not differing:
            return "all DPUs have the newest generation", "good"
        if set(counts) <= {DpuState.APPLIED, DpuState.BEHIND}:
            return f"{counted(differing, 'DPU')} behind", "warn"
        return f"{counted(differing, 'DPU')} {worded(differing, 'differs', 'differ')}", "bad"

    @property
    def newest(self) -> Intent | None:
        """The config that was given last."""
        intents = {} if self.view is None else self.view.intents
        return intents[max(intents)] if intents else None

    @property
    def is_refused(self) -> bool:
        """Whether the controller refused that config."""
        return self.newest is not None and self.newest.state is IntentState.REFUSED

    @property
    def is_well(self) -> bool:
        """Whether every DPU has the newest generation, no roll-out runs, and there is no problem."""
        return not (self.problems or self.roll_out) and all(row.state is DpuState.APPLIED for row in self.rows)


def fleet_snapshot(
    view: FleetView | None,
    statuses: Mapping[str, DpuStatus] | None,
    servers: tuple[ServerFacts, ...],
    *,
    is_active: bool,
    now_s: float,
    change: FleetChange,
    stall: str,
    unwritten: Collection[str],
    problems: Iterable[str],
    memo: Memo | None = None,
) -> FleetSnapshot:
    """Return the snapshot of these facts, with all problems. `change`: what the store lacks. `problems`: further ones.
    `stall`: as of `FleetProgress.stall`. `unwritten`: as of `UnwrittenVotes.late`."""
    rows = () if view is None or statuses is None else tuple(dpu_rows(view, statuses, now_s=now_s))
    targets, found, roll_out = list[TargetRow](), list[str](), list[str]()
    if view is not None:
        if statuses is None:
            found.append("the database of states does not answer: what DPUs have is not known")
        if stall:
            found.append(f"{stall}: is `xenoovs fleet serve` running?")
        found += [*map(str, change.unusable), *change.contested.values()]
        targets = target_rows(view, statuses, now_s=now_s, unwritten=unwritten, memo=memo)
        roll_out = roll_out_lines(view, statuses, now_s=now_s)
    found += [*dpu_problems(rows), *target_problems(targets), *chain.from_iterable(each.problems() for each in servers)]
    return FleetSnapshot(
        view, rows, servers, is_active, (*problems, *found), now_s, bool(stall), tuple(roll_out), tuple(targets)
    )


# How DPUs stand to the newest generation, from what they report.


class DpuState(Enum):
    """How a DPU stands to the newest generation."""

    APPLIED = Standing.APPLIED.value
    BEHIND = Standing.BEHIND.value
    AHEAD = Standing.AHEAD.value
    OTHER_STORE = Standing.OTHER_STORE.value
    FAILED = "failed"
    DRIFTED = "drifted"
    SILENT = "silent"
    UNKNOWN = "never reported"
    STRANGER = "not of the fleet"


WORST_FIRST = (
    DpuState.OTHER_STORE,
    DpuState.AHEAD,
    DpuState.FAILED,
    DpuState.DRIFTED,
    DpuState.SILENT,
    DpuState.UNKNOWN,
    DpuState.BEHIND,
    DpuState.STRANGER,
    DpuState.APPLIED,
)


@dataclass(frozen=True, slots=True)
class DpuRow:
    """A DPU in the list. `seen_s`: since its last report, timed by the DPU's clock; None: there is none. `is_out`: an
    operator took it out of service. `is_unfit`: it should get no clients, as it alone is cut off or its bridge is not
    right. `certificate_left_s`: by the reader's clock; None: not known."""

    name: str
    state: DpuState
    status: DpuStatus
    seen_s: float | None
    is_out: bool = False
    is_unfit: bool = False
    groups: frozenset[str] = frozenset()
    certificate_left_s: float | None = None
    rack: str = ""

    @property
    def is_well(self) -> bool:
        """Whether there is nothing to look after."""
        return self.state is DpuState.APPLIED and not self.note

    @property
    def hw_share(self) -> Fraction | None:
        """Which share of its megaflows is in hardware, 0..1; None: there is no traffic, or it is not known."""
        return hw_share(self.status.verdicts)

    @property
    def note(self) -> str:
        """What is wrong, in words."""
        count = len(self.status.drift)
        drift = f"{counted(count, 'service')} {worded(count, 'differs', 'differ')} on the bridge: "
        drift += first_names(sorted(self.status.drift), most=3)
        drifts = drift if self.status.drift else ""
        left_s, ends = self.certificate_left_s, ""
        if left_s is not None and left_s <= CERTIFICATE_WARNING_S:
            ends = f"its certificate ends in {duration(left_s)}" if left_s > 0 else "its certificate has ended"
        reasons = (self._service, self.wrong_clock, self.status.error, drifts, ends)
        return "; ".join(filter(None, reasons))

    @property
    def _service(self) -> str:
        if self.is_out:
            return "out of service by an operator"
        if self.is_unfit:
            return "not ready: it is cut off from most backends, or its bridge is not right"
        return "" if self.status.is_fit else "reports that it is not fit, but too many others do: it stays in service"

    @property
    def wrong_clock(self) -> str:
        """Why the time of its last report cannot be right, in words; an empty text: it may be."""
        if self.state is DpuState.SILENT or self.seen_s is None or abs(self.seen_s) <= SILENT_S:
            return ""
        when = f"{duration(abs(self.seen_s))} {'in the future' if self.seen_s < 0 else 'ago'}"
        return f"its last report is {when} by its clock and that of this host: set them (NTP)"


def dpu_rows(view: FleetView, statuses: Mapping[str, DpuStatus], *, now_s: float) -> list[DpuRow]:
    """Return the DPUs of the fleet by name, then those that report without being of it."""
    rows = []
    for name in (*sorted(view.dpus), *sorted(statuses.keys() - view.dpus.keys())):
        status = statuses.get(name)
        seen_s = None if status is None else now_s - status.seen_ms / 1000
        if seen_s is not None and -SILENT_S <= seen_s < 0:
            seen_s = 0.0
        state, dpu = _state(view, name, status), view.dpus.get(name, Dpu(name, frozenset()))
        found = status or DpuStatus(name)
        left_s = found.certificate_ends_s - now_s if found.certificate_ends_s else None
        rows.append(DpuRow(name, state, found, seen_s, dpu.is_out, dpu.is_unfit, dpu.groups, left_s, dpu.rack))
    return rows


def clocks_ms(view: FleetView, statuses: Mapping[str, DpuStatus] | None, *, now_ms: int) -> tuple[int, ...]:
    """Return the time by the clock of this host, and that by the reports of most DPUs if it differs by minutes."""
    seen = sorted(status.seen_ms for name, status in (statuses or {}).items() if name in view.dpus and status.seen_ms)
    most = seen[(len(seen) - 1) // 2] if seen else now_ms
    return (now_ms, most) if abs(now_ms - most) > SILENT_S * 1000 else (now_ms,)


def _state(view: FleetView, name: str, status: DpuStatus | None) -> DpuState:
    if name not in view.dpus:
        return DpuState.STRANGER
    if status is None:
        return DpuState.UNKNOWN
    if name in view.silent:
        return DpuState.SILENT
    now = DpuState(standing(view, status).value)
    if now in (DpuState.AHEAD, DpuState.OTHER_STORE):
        return now
    if status.error:
        return DpuState.FAILED
    return DpuState.DRIFTED if status.drift else now


def dpu_problems(rows: Iterable[DpuRow]) -> list[str]:
    """Return what is wrong with DPUs that follow the store: their clocks, by their reports, and their certificates."""
    rows = tuple(rows)
    names, problems = [row.name for row in rows if row.wrong_clock], list[str]()
    if names:
        problems.append(
            f"the clocks of this host and of {first_names(names, most=3)} differ by minutes: set them (NTP)"
        )
    ending = sorted((row.certificate_left_s, row.name) for row in rows if row.certificate_left_s is not None)
    ending = [(left_s, name) for left_s, name in ending if left_s <= CERTIFICATE_WARNING_S]
    if ending:
        whose = first_names([name for _, name in ending], most=3)
        problems.append(certificate_problem(ending[0][0], whose=whose))
    return problems


def roll_out_lines(view: FleetView, statuses: Mapping[str, DpuStatus] | None, *, now_s: float) -> list[str]:
    """Return what a roll-out does, and which DPUs it waits for, in words. `now_s`: since 1970. It is not compared where
    the store lacks the time of the switch to the wave, or clocks differ."""
    intent = rolling_intent(view)
    if intent is None or not view.wave:
        return []
    waits = [f"{name}: {reason}" for name, (reason, _) in waits_for(view, statuses).items()]
    concerned = view.concerned
    begun = sum(dpu.wave <= view.wave for dpu in concerned.values())
    soak, begun_s = duration(intent.soak_s), view.switch_at_ms / 1000
    is_known = 0 < begun_s <= now_s and len(clocks_ms(view, statuses, now_ms=int(now_s * 1000))) == 1
    watched = f"for {duration(now_s - begun_s)} of {soak}" if is_known else f"for {soak} in all"
    return [
        f"config {intent.number} is rolled out: wave {view.wave}, {begun} of {counted(len(concerned), 'DPU')}, "
        f"{'paused' if intent.is_paused else f'watched {watched}'}; `xenoovs fleet stop` takes it back"
        f"{', `xenoovs fleet resume` goes on' if intent.is_paused else ''}",
        *([f"the roll-out waits for {first_names(waits, most=3)}"] if waits else []),
        *uncompared(view),
    ]


# The state of the targets of health checks, from votes.


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
    """A target in the list: `ADDRESS/PROBE/PORT`. `backends`: `SERVICE/BACKEND`, of what is in use. `is_held`: a
    backend of it is down and keeps its clients. `is_unwritten`: most witnesses vote otherwise for some time, and no
    controller has written it."""

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
