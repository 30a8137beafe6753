"""The health of a fleet's backends and DPUs: from votes to ejections, slow starts, and DPUs that withdraw."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from xenoovs.dataclass import dataclass, field, replace
from xenoovs.decision.ejection import (
    Ejected,
    Ejection,
    KnownShares,
    SlowStarts,
    decide_ejections,
    held_backends,
    ramps,
    update_slow_starts,
)
from xenoovs.fleet.plan import Availability, FleetAvailability, configs_of, stored_shares
from xenoovs.fleet.services import IN_USE, ROLLED_OUT, Memo
from xenoovs.fleet.votes import (
    Silence,
    Targets,
    down_backends,
    fit_dpus,
    fleet_targets,
    merged,
    next_watches,
    targets_of,
)
from xenoovs.model.balancer import Balancer, Health, Service
from xenoovs.model.fleet import FleetServices
from xenoovs.store.view import Changes, Dpu, DpuStatus, FleetView, Watch


@dataclass(frozen=True, slots=True)
class AvailabilityHistory:
    """What was decided about one config so far. `ejections`: by service; none without a backend that is down."""

    ejections: Mapping[str, Ejection] = field(default_factory=dict)
    starts: SlowStarts = field(default_factory=SlowStarts)

    @property
    def ejected(self) -> Ejected:
        return {name: each.ejected for name, each in self.ejections.items() if each.ejected}

    @property
    def is_waiting(self) -> bool:
        """Whether time alone may change something."""
        return bool(self.starts.begun) or any(each.held for each in self.ejections.values())

    def availability(self, balancer: Balancer, *, now_s: float) -> Availability:
        """Return which backends may have clients now."""
        return Availability(
            self.ejected, ramps(self.starts, balancer, now_s=now_s), held_backends(self.ejections, self.ejected)
        )


def followed(
    before: AvailabilityHistory,
    balancer: Balancer,
    down: Mapping[str, Mapping[str, float]],
    *,
    known: KnownShares,
    now_s: float,
) -> AvailabilityHistory:
    """Return the history after backends went down or came up. `balancer` has the weights in use. `down`: since when, by
    service and name, perhaps on another clock. `known`: what the store has, for the first call."""
    is_first = before.starts.balancer is None
    ejections = {}
    for service in balancer.services:
        if names := down.get(service.name):
            old = before.ejections.get(service.name, Ejection())
            if is_first:
                old = Ejection(ejected=frozenset(name for name in names if known.get((service.name, name)) == 0))
            ejections[service.name] = _ejection(old, service, names, now_s)
    ejected = {name: each.ejected for name, each in ejections.items() if each.ejected}
    starts = update_slow_starts(before.starts, balancer, ejected, known=known, now_s=now_s)
    return AvailabilityHistory(ejections, starts)


def _ejection(before: Ejection, service: Service, down: Mapping[str, float], now_s: float) -> Ejection:
    # A backend that is still down by votes has failed its last probes, of which the first was sent so long ago.
    failing = {} if service.health is None else {name: now_s - fall_s(service.health) for name in before.held}
    return decide_ejections(replace(before, down=down), service, failing, now_s=now_s)


def fall_s(health: Health) -> float:
    """Return how long a health check takes at most to find that a backend is down, in seconds."""
    return (health.interval_ms + (health.fall - 1) * health.fast_interval_ms + health.timeout_ms) / 1000


# Which DPUs are not fit to serve: they report it, and the controller agrees if enough others stay.


MAX_UNFIT = Fraction(3, 10)
"""No more than this part of the DPUs is unfit at once: if more report it, their checks are the more likely fault, as
with `max_down` of backends."""


def max_unfit(dpus: int) -> int:
    """Return how many of so many DPUs may be unfit at once: never all, and one of two."""
    return min(max(1, int(MAX_UNFIT * dpus)), max(0, dpus - 1))


def next_unfit(view: FleetView, statuses: Mapping[str, DpuStatus] | None) -> dict[str, Dpu]:
    """Return the DPUs to change. Those that are unfit already go first; one that is silent stays as it is."""
    if statuses is None:
        return {}
    heard = {name: status for name, status in statuses.items() if name not in view.silent}
    reported = {
        name
        for name, dpu in view.dpus.items()
        if not dpu.is_out and (not heard[name].is_fit if name in heard else dpu.is_unfit)
    }
    ranked = sorted(reported, key=lambda name: (not view.dpus[name].is_unfit, name))
    members = sum(not dpu.is_out for dpu in view.dpus.values())
    unfit = set(ranked[: max_unfit(members)])
    return {
        name: replace(dpu, is_unfit=name in unfit) for name, dpu in view.dpus.items() if dpu.is_unfit != (name in unfit)
    }


# The health of backends as the controller follows it.


_CHOOSE_S = 10.0
"""Between two choices of witnesses: DPUs that come back after a loss of the store do so one after the other."""


_Config = tuple[FleetServices, Targets]


class FleetHealth:
    """Follows the votes on the targets of a fleet. A controller that takes over goes on from the store."""

    def __init__(self, memo: Memo) -> None:
        """Begin without votes. `memo`: as of `next_change`."""
        self._memo, self._silence = memo, Silence()
        self._in_use = AvailabilityHistory()
        self._rolled_out: AvailabilityHistory | None = None
        self._seen: tuple[FleetView, object] | None = None
        self._step: tuple[Changes, FleetAvailability | None] = Changes(), None
        self._chosen_s: float | None = None
        self._chosen_of: object = None

    def step(
        self, view: FleetView, statuses: Mapping[str, DpuStatus] | None, *, now_s: float, now_ms: int
    ) -> tuple[Changes, FleetAvailability | None]:
        """Return what follows from the newest votes: rows to write of watches, DPUs that become fit or unfit, and which
        are silent; and which backends may have clients; None: not known. `now_s`: on a clock that never goes back;
        `now_ms`: since 1970. Raises XenoovsError: a config of the view cannot be read."""
        silent = self._silence.silent(view, statuses, now_s=now_s)
        heard = replace(view, silent=silent)
        fit = frozenset[str]() if statuses is None else fit_dpus(heard, statuses)
        votes = {name: (each.down, each.voted, each.is_fit) for name, each in (statuses or {}).items()}
        # What witnesses are chosen by.
        choice = fit, view.dpus, view.wave
        is_due = self._chosen_s is None or now_s - self._chosen_s >= _CHOOSE_S
        may_choose = is_due and self._chosen_of != choice
        seen = statuses is None, votes, fit, silent, may_choose
        is_waiting = self._in_use.is_waiting or (self._rolled_out is not None and self._rolled_out.is_waiting)
        if self._seen is not None and self._seen[0] is view and self._seen[1] == seen and not is_waiting:
            return self._step
        configs = self._configs(view)
        if self._rolled_out is not None and configs[1] is None:
            # What was staged is now in use or removed; the store shows which.
            self._in_use = AvailabilityHistory()
        in_use, staged = ({} if each is None else fleet_targets(*each, view) for each in configs)
        targets = merged(in_use, staged)
        watches = next_watches(heard, targets, statuses, now_ms=now_ms, may_choose=may_choose, memo=self._memo)
        if may_choose:
            self._chosen_s, self._chosen_of = now_s, choice
        available = self._follow(view, watches, configs, now_s)
        changed = None if silent == view.silent else silent
        self._step = Changes(watches=watches, dpus=next_unfit(heard, statuses), silent=changed), available
        self._seen = view, seen
        return self._step

    def _follow(
        self,
        view: FleetView,
        changed: Mapping[str, Watch | None],
        configs: tuple[_Config | None, _Config | None],
        now_s: float,
    ) -> FleetAvailability:
        rows = [watch for watch in {**view.watches, **changed}.values() if watch is not None]
        if configs[0] is None:
            return Availability(), Availability()
        in_use, targets = configs[0][0].balancer, configs[0][1]
        known = stored_shares(view, self._memo) if self._in_use.starts.balancer is None else {}
        self._in_use = followed(self._in_use, in_use, down_backends(targets, rows), known=known, now_s=now_s)
        available = self._in_use.availability(in_use, now_s=now_s)
        if configs[1] is None:
            self._rolled_out = None
            return available, Availability()
        staged, targets = configs[1][0].balancer, configs[1][1]
        down = down_backends(targets, rows)
        history = followed(self._rolled_out or self._in_use, staged, down, known={}, now_s=now_s)
        # A returning backend starts slowly in both. Canaries test one that is new in the roll-out.
        self._rolled_out = replace(history, starts=self._in_use.starts)
        return available, replace(history.availability(staged, now_s=now_s), ramps=available.ramps)

    def _configs(self, view: FleetView) -> tuple[_Config | None, _Config | None]:
        """Return the configs in use and of the roll-out, with their targets. Raises XenoovsError."""
        in_use, rolling = (
            None if config is None else (config, targets_of(config.balancer.services, self._memo.part(name)))
            for config, name in zip(configs_of(view, self._memo), (IN_USE, ROLLED_OUT), strict=True)
        )
        return in_use, rolling
