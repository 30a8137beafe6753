"""A roll-out in waves: when the next wave of DPUs begins, and why a roll-out is taken back."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import ceil

from xenoovs.dataclass import dataclass, field, replace
from xenoovs.datapath.megaflow import Verdict
from xenoovs.display import percent
from xenoovs.errors import counted, first_names
from xenoovs.fleet.health import REPORT_S, Silence, TargetState, target_of, votes_on
from xenoovs.fleet.plan import (
    FleetChange,
    Memo,
    completion,
    next_change,
    next_wave,
    refusal,
    rolling_intent,
    stored_services,
)
from xenoovs.model.values import site_name
from xenoovs.store.view import Changes, Dpu, DpuStatus, FleetView, Intent, lacks, rows_after

# The share of a DPU's megaflows that its NIC forwards, and whether a roll-out has lowered it.


TOLERANCE = Fraction(1, 100)
"""Shares that differ by no more are equal: megaflows come and go with the traffic."""

_SOFTWARE = tuple(verdict for verdict in Verdict if verdict.is_software)
_SCALE = 1000


def hw_share(verdicts: Mapping[str, int]) -> Fraction | None:
    """Return the share, 0..1, of the megaflows that are in hardware; None if there are none, or it is unknown.
    `ABSENT`, `UNCONFIRMED` and names that this version does not know are neither in hardware nor in software."""
    in_hardware = verdicts.get(Verdict.HW.value, 0)
    judged = in_hardware + sum(verdicts.get(verdict.value, 0) for verdict in _SOFTWARE)
    return Fraction(in_hardware, judged) if judged else None


def hw_problem(before: int | None, status: DpuStatus, *, ack: int) -> tuple[str, bool] | None:
    """Return why a DPU does not pass its wave, and whether that is a failure; None if it passes. A DPU without hardware
    offload `before` the wave, as in `Intent.hw_before`, is not judged, and neither is one that has no traffic now.
    `ack`: the generation whose megaflows are judged; the DPU has applied it."""
    if before is None or Fraction(before, _SCALE) <= TOLERANCE:
        return None
    if status.sampled < ack:
        return f"has not reported the megaflows of generation {ack}", False
    share = hw_share(status.verdicts)
    if share is None or share >= Fraction(before, _SCALE) - TOLERANCE:
        return None
    software = [(each.value, count) for each in _SOFTWARE if (count := status.verdicts.get(each.value, 0))]
    return (
        f"{percent(share)} of its megaflows are in hardware, {percent(Fraction(before, _SCALE))} before ("
        f"{', '.join(f'{count} {name}' for name, count in software)}); run `xenoovs verify-offload` and `xenoovs why` "
        "there",
        True,
    )


# What was wrong before a wave. It is stored when the wave begins: only what becomes wrong later ends the roll-out.


def with_baseline(view: FleetView, changes: Changes, statuses: Mapping[str, DpuStatus]) -> Changes:
    """Return the changes that begin a wave, with the problems from before it: for the DPUs of this wave the share of
    megaflows in hardware, and which are not fit; before the first wave also which targets are down."""
    intent = rolling_intent(view)
    if intent is None or not changes.wave:
        return changes
    dpus = rows_after(view.dpus, changes.dpus)
    begins = {name: dpu for name, dpu in dpus.items() if view.wave < dpu.wave <= changes.wave}
    watches = rows_after(view.watches, changes.watches)
    down = frozenset(target for target in watches.keys() & view.watches.keys() if watches[target].is_down)
    changed = changes.intents.get(intent.number) or intent
    shares = {name: hw_share(statuses[name].verdicts) for name in begins.keys() & statuses.keys()}
    known = {name: int(share * _SCALE) for name, share in shares.items() if share is not None}
    changed = replace(
        changed,
        hw_before={**changed.hw_before, **known},
        unfit_before=changed.unfit_before.union(name for name, dpu in begins.items() if is_unfit(dpu, statuses)),
        down_before=changed.down_before if view.wave else down,
    )
    return replace(changes, intents={**changes.intents, intent.number: changed})


def is_unfit(dpu: Dpu, statuses: Mapping[str, DpuStatus] | None) -> bool:
    """Return whether a DPU reports that it is not fit, or has done so before it became silent."""
    status = (statuses or {}).get(dpu.name)
    return dpu.is_unfit or (status is not None and not status.is_fit)


def lost_targets(view: FleetView, statuses: Mapping[str, DpuStatus] | None) -> dict[str, str]:
    """Return the targets that a roll-out has lost, each with the reason in words. Their witnesses vote that they are
    down, they were up when it began, and a service that it adds or changes has a backend with a weight there. A backend
    of another service, or a drained one, may go down during the roll-out."""
    intent = rolling_intent(view)
    if intent is None or not view.wave:
        return {}
    down = {target for target, each in view.watches.items() if each.is_down} - intent.down_before
    if not down:
        return {}
    lost, found, memo = dict[str, str](), statuses or {}, Memo()
    for name, (service, _) in stored_services(view.staged.values(), memo, memo)[0].items():
        row = view.staged[name]
        for backend in service.backends:
            # A new target may begin as down, before the first votes.
            if (target := target_of(service, backend)) not in down or target is None:
                continue
            # A drain may be newer than the row, and for one group of several.
            sites = [site_name(row.service, group) for group in row.groups or ("",)]
            overrides = [view.overrides.get((site, backend.name)) for site in sites]
            of_all = view.overrides.get((row.service, backend.name))
            if not any((one or of_all or backend).weight for one in overrides):
                continue
            votes = votes_on(view, view.watches[target], found, found.keys())
            if votes.result is TargetState.DOWN:
                lost[target] = f"{name}/{backend.name} ({target}) is down since the roll-out began: {votes.text}"
    return lost


# Waves.


CANARY, _SECOND_WAVE, LATER_WAVE = 1, 2, 3
"""Operators put DPUs into the first two waves; each roll-out splits all others into waves from 3 on."""
SOAK_S = 60
"""How long a wave is watched by default."""
PATIENCE_S = 120
"""How long after the soak time the DPUs of a wave may still lack it."""
LASTS_S = 10
"""How long a problem must last in its wave to end a roll-out: one unanswered read of a switch does not, and a report
may be older than the wave."""
_MAX_SILENT = Fraction(1, 20)
_CANARIES, _SECOND, _AT_ONCE = Fraction(1, 100), Fraction(1, 10), Fraction(1, 4)


@dataclass(frozen=True, slots=True)
class WaveStep:
    """The next step of a roll-out. `changes`: to write now; None if the wave goes on. `reason`: why the config is
    refused; empty if it is not. `silent`: DPUs that the next step does not wait for; they follow later. `problems`:
    what ends the roll-out if it lasts, in words, by DPU or target."""

    changes: Changes | None = None
    reason: str = ""
    silent: tuple[str, ...] = ()
    problems: Mapping[str, str] = field(default_factory=dict, compare=False)


def next_step(
    view: FleetView,
    statuses: Mapping[str, DpuStatus] | None,
    *,
    watched_s: float,
    lasted_s: Mapping[str, float] | None = None,
    unheard_s: Mapping[str, float] | None = None,
) -> WaveStep:
    """Return the next step, by the reports of the DPUs whose wave has begun.

    A wave is judged after the soak time. It passes if all of them have the staged services, without an error or drift,
    are fit, and have as large a share of megaflows in hardware; in the end at most 5 % may lack them without an error.
    A DPU reports each minute: after a soak time of a minute or more, one without a report since may be down. Backends
    of its services must not have gone down. A problem that lasts 10 s ends the roll-out, also in a pause.

    `view`: one to which `plan.next_change` adds nothing. `watched_s`: for how long the caller has seen this wave and
    `view.ack`. `lasted_s`: how long each problem has lasted without a break, as far as known; None for `watched_s`.
    `unheard_s`: the age of each DPU's report, as far as known; None if all are new.
    """
    intent = rolling_intent(view)
    if intent is None or not view.wave:
        return WaveStep()
    waits = waits_for(view, statuses)
    texts = {name: f"{name}: {reason}" for name, (reason, _) in waits.items()}
    problems = {name: texts[name] for name, (_, is_failed) in waits.items() if is_failed}
    problems |= lost_targets(view, statuses)
    ages_s = dict.fromkeys(problems, watched_s) if lasted_s is None else lasted_s
    enough_s = min(intent.soak_s, LASTS_S)
    lasting = [text for name, text in problems.items() if min(watched_s, ages_s.get(name, 0.0)) >= enough_s]
    if lasting:
        return _refused(view, intent, lasting[0] + _others(lasting, "other problem"))
    if watched_s < intent.soak_s or intent.is_paused:
        return WaveStep(problems=problems)
    members = len(_members(view, statuses))
    if intent.soak_s >= REPORT_S:
        least_s = watched_s - intent.soak_s
        old = (name for name in sorted(_members(view, statuses)) if (unheard_s or {}).get(name, 0.0) > least_s)
        texts = {name: f"{name}: has not reported since the soak time" for name in old} | texts
    if texts or problems:
        if watched_s < intent.soak_s + PATIENCE_S:
            return WaveStep(problems=problems)
        if problems or len(texts) > members * _MAX_SILENT:
            late = [*(problems or texts).values()]
            return _refused(view, intent, f"{late[0]} after {PATIENCE_S} s" + _others(late, "other DPU"))
    if not members and any(not dpu.is_out for dpu in view.concerned.values()):
        return _refused(view, intent, "none of its DPUs is in service any more, so nothing shows what the config does")
    wave = next_wave(view)
    changes = completion(view, intent) if wave is None else Changes(wave=wave, ack=True)
    return WaveStep(changes, silent=tuple(texts))


class WaveWatch:
    """Measures by its own clock how long the waves of a roll-out, and their problems, have lasted."""

    def __init__(self) -> None:
        self._wave: tuple[int, int] | None = None
        self._began_s = 0.0
        self._since_s: dict[str, float] = {}
        self._silence = Silence()

    def step(self, view: FleetView, statuses: Mapping[str, DpuStatus] | None, *, now_s: float) -> WaveStep:
        """Return the next step. Call it repeatedly."""
        wave = view.wave, view.ack
        if wave != self._wave:
            self._wave, self._began_s, self._since_s = wave, now_s, {}
        lasted_s = {name: now_s - since_s for name, since_s in self._since_s.items()}
        self._silence.silent(view, statuses, now_s=now_s)
        unheard_s = self._silence.ages_s(now_s)
        step = next_step(view, statuses, watched_s=now_s - self._began_s, lasted_s=lasted_s, unheard_s=unheard_s)
        self._since_s = {name: self._since_s.get(name, now_s) for name in step.problems}
        return step


def waits_for(view: FleetView, statuses: Mapping[str, DpuStatus] | None) -> dict[str, tuple[str, bool]]:
    """Return the DPUs for which a wave waits: the reason, and whether it is a failure. DPUs do not count if they serve
    nothing of the roll-out, an operator took them out of service, or they were not fit before their wave and still are
    not."""
    found = dict[str, tuple[str, bool]]()
    intent = rolling_intent(view)
    before = {} if intent is None else intent.hw_before
    for name, dpu in sorted(_members(view, statuses).items()):
        status = (statuses or {}).get(name)
        if status is None:
            found[name] = ("has not reported yet", False)
        elif name in view.silent:
            found[name] = ("has not reported for three minutes", False)
        elif status.error:
            found[name] = (status.error, True)
        elif status.drift:
            found[name] = (f"its bridge has other blocks of {first_names(sorted(status.drift), most=3)}", True)
        elif is_unfit(dpu, statuses):
            found[name] = ("has become unfit: it is cut off from most backends, or its bridge is not right", True)
        elif lack := lacks(view, status, least=view.ack):
            found[name] = (lack, False)
        elif problem := hw_problem(before.get(name), status, ack=view.ack):
            found[name] = problem
    return found


def uncompared(view: FleetView) -> tuple[str, ...]:
    """Return the message about DPUs whose share in hardware was unknown before their wave; empty if there are none."""
    intent = rolling_intent(view)
    begun = sorted(name for name, dpu in view.concerned.items() if dpu.wave <= view.wave and not dpu.is_out)
    unknown = [name for name in begun if intent is not None and name not in intent.hw_before]
    if not unknown:
        return ()
    return (f"share in hardware not compared, as unknown before the wave: {first_names(unknown, most=3)}",)


def _members(view: FleetView, statuses: Mapping[str, DpuStatus] | None) -> dict[str, Dpu]:
    """Return the DPUs whose wave has begun, by name, without those that do not count (`waits_for`)."""
    intent = rolling_intent(view)
    before = frozenset[str]() if intent is None else intent.unfit_before
    return {
        name: dpu
        for name, dpu in view.concerned.items()
        if dpu.wave <= view.wave and not dpu.is_out and not (name in before and is_unfit(dpu, statuses))
    }


def planned_waves(
    dpus: Mapping[str, Dpu],
    *,
    canaries: int | None = None,
    second: int | None = None,
    at_once: int | None = None,
    by: str | None = None,
) -> dict[str, Dpu]:
    """Return the DPUs whose wave a roll-out changes, with their new waves.

    DPUs of later waves join the first two until these have enough. All others are split into waves from the third on.
    DPUs that are out of service or not fit are no test, so they do not count in the first two.

    `canaries`: least DPUs in wave 1; None for 1 of 100, at least one. `second`: likewise in wave 2; None for 1 of 10,
    and none of fewer than 10, or with `by`. `at_once`: most DPUs in each later wave; None for a quarter of all, or with
    `by` for the whole rack or group, if it is known. `by`: `rack` or `group`: each later wave has DPUs of one only; of
    several groups the first by name counts. None to mix them.
    """
    found = {name: dpu for name, dpu in dpus.items() if not dpu.is_out and not dpu.is_unfit}
    most = at_once or ceil(len(dpus) * _AT_ONCE)
    wanted = ceil(len(found) * _CANARIES) if canaries is None else canaries
    planned = _moved_to(CANARY, found, wanted)
    wanted = (0 if by else min(int(len(found) * _SECOND), most)) if second is None else second
    planned |= _moved_to(_SECOND_WAVE, {**found, **planned}, wanted)
    later, ranks = defaultdict[str, list[tuple[int, Dpu]]](list), Counter[str]()
    for _, dpu in sorted({**dpus, **planned}.items()):
        if dpu.wave >= LATER_WAVE:
            place = dpu.rack if by == "rack" else min(dpu.groups, default="") if by else ""
            later[place].append((ranks[dpu.rack], dpu))
            ranks[dpu.rack] += 1
    wave = LATER_WAVE
    for place, members in sorted(later.items()):
        # The racks take turns, so that no wave takes a whole rack without need.
        members.sort(key=lambda each: (each[0], each[1].name))
        size = len(members) if place and not at_once else most
        for start in range(0, len(members), size):
            planned |= {dpu.name: replace(dpu, wave=wave) for _, dpu in members[start : start + size]}
            wave += 1
    return {name: dpu for name, dpu in planned.items() if dpu != dpus[name]}


def _moved_to(wave: int, dpus: Mapping[str, Dpu], wanted: int) -> dict[str, Dpu]:
    """Return the DPUs of later waves that join this one: first those of racks with the fewest in it, from the end."""
    racks = Counter(dpu.rack for dpu in dpus.values() if dpu.wave == wave)
    later, moved = {name: dpu for name, dpu in dpus.items() if dpu.wave > wave}, dict[str, Dpu]()
    for _ in range(min(len(later), wanted - racks.total())):
        chosen = min(later.values(), key=lambda dpu: (racks[dpu.rack], -min(dpu.wave, LATER_WAVE), dpu.name))
        racks[chosen.rack] += 1
        moved[chosen.name] = replace(later.pop(chosen.name), wave=wave)
    return moved


def _refused(view: FleetView, intent: Intent, reason: str) -> WaveStep:
    return WaveStep(refusal(view, intent, f"wave {view.wave}: {reason}"), reason)


def _others(found: Sequence[str], noun: str) -> str:
    return f", and {counted(len(found) - 1, noun)}" if len(found) > 1 else ""


# Whether a controller writes what is due, for a client that only reads the store.


SETTLE_S = 15.0
"""How long a controller may take to write what is due: an election, and the decision about thousands of services."""


class FleetProgress:
    """Watches changes, votes and waves by its own clock, as the controller does. `change`: what the newest view lacks.
    `is_due`: whether a controller has to write that, or a result of votes."""

    def __init__(self, memo: Memo | None = None) -> None:
        self.memo = memo or Memo()
        self.change = FleetChange(Changes())
        self._view: FleetView | None = None
        self.is_due, self._due_s = False, 0.0
        self._watch = WaveWatch()
        self._successor: tuple[WaveWatch, float] | None = None

    def stall(
        self, view: FleetView, statuses: Mapping[str, DpuStatus] | None, *, now_s: float, votes: Sequence[str] = ()
    ) -> str:
        """Return what is due and no controller has written, in words; empty if one may still write it. A controller
        that has taken over watches the wave from the beginning. So the next step must be overdue even for one that took
        over when it was due. Call it repeatedly with the newest view and reports. `votes`: results that the view lacks,
        in words. `now_s` never goes back."""
        if view is not self._view:
            self._view, self.is_due, self.change = view, False, next_change(view, memo=self.memo)
        was_due, self.is_due = self.is_due, bool(votes) or not self.change.is_empty
        if self.is_due:
            self._due_s = self._due_s if was_due else now_s
            result = f"written {votes[0]}{_others(votes, 'other result of votes')}" if votes else ""
            what = result if self.change.is_empty else "decided about the newest change"
            return f"no controller has {what}" if now_s - self._due_s > SETTLE_S else ""
        if self._watch.step(view, statuses, now_s=now_s).changes is None:
            self._successor = None
            return ""
        watch, due_s = self._successor = self._successor or (WaveWatch(), now_s)
        step = watch.step(view, statuses, now_s=max(due_s, now_s - SETTLE_S))
        is_overdue = step.changes is not None and now_s - due_s >= SETTLE_S
        return f"no controller has written the next step of wave {view.wave}" if is_overdue else ""
