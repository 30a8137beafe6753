"""The health of a fleet's backends and DPUs: witnesses of each target of health checks, votes, and their effects.

A few DPUs, the witnesses of a target, probe it as its service configures. More than half of them decide for all DPUs.
No rack has so many, so a single DPU or rack that is cut off decides nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from hashlib import blake2b, sha256

from xenoovs.dataclass import dataclass, fields, replace
from xenoovs.decision.decision import BackendName
from xenoovs.decision.ejection import (
    Ejection,
    KnownShares,
    decide_ejections,
    held_backends,
    ramps,
    update_slow_starts,
    with_away,
)
from xenoovs.errors import counted
from xenoovs.fleet.plan import IN_USE, ROLLED_OUT, Availability, Memo, configs_of, stored_shares
from xenoovs.model.balancer import Backend, Balancer, Health, Initial, ProbeKind, Service, probe_port
from xenoovs.model.fleet import FleetServices
from xenoovs.model.next_hop import Tunneled, mac_of
from xenoovs.store.view import Changes, Dpu, DpuState, DpuStatus, FleetView, Watch, rows_after, sync_state

WITNESSES = 5
"""Witnesses of a target, if there are so many DPUs: three decide, and two may be wrong or silent."""
REPORT_S = 60.0
"""Time between two reports without news; 1,000 DPUs make 17 transactions a second."""
SILENT_S = 3 * REPORT_S
"""After three missed reports a DPU is silent, by the clock of the controller."""
_DIGEST_DIGITS = 8
_FIRST = 3 * WITNESSES
_MASK = (1 << 64) - 1
_ODD = 0x9E3779B97F4A7C15
"""Spreads the bits of a product over its upper half: 2**64 divided by the golden ratio (Knuth, TAOCP 3, 6.4)."""

Targets = Mapping[str, tuple[BackendName, ...]]
"""The backends whose health check each target is."""


def target_of(service: Service, backend: Backend) -> str | None:
    """Return the target of a backend's health check: `ADDRESS/PROBE/PORT`; None if there is no check. Services that
    probe a server in the same way share a target. Settings other than the defaults of `health`, such as a path, are in
    a digest at its end. There is none for `exec`. A remote without a probe may have BFD: `REMOTE/bfd/KEY`."""
    health, hop = service.health, backend.next_hop
    if health is None or health.probe in (ProbeKind.NONE, ProbeKind.EXEC):
        return f"{hop.remote}/bfd/{hop.key}" if isinstance(hop, Tunneled) else None
    port = probe_port(service, backend)
    where = backend.address or mac_of(backend.next_hop) or f"{service.name}.{backend.name}"
    # An ARP probe asks for the VIPs.
    way = _way(health, None if backend.address is not None else tuple(map(str, service.claim.vips)))
    return f"{where}/{health.probe.value}/{'-' if port is None else port}{way}"


@lru_cache(maxsize=1024)
def _way(health: Health, vips: tuple[str, ...] | None) -> str:
    """Return `/` and a digest of a health check's settings besides probe and port; empty if all are defaults."""
    default = Health(health.probe, health.port)
    own = health.of_check
    differs = {f.name: getattr(own, f.name) for f in fields(own) if getattr(own, f.name) != getattr(default, f.name)}
    if vips is not None:
        differs["vips"] = vips
    return f"/{sha256(repr(sorted(differs.items())).encode()).hexdigest()[:_DIGEST_DIGITS]}" if differs else ""


def targets_of(services: Iterable[Service], memo: Memo) -> Targets:
    """Return the targets of all backends, also of those without a weight: they may get one."""
    found = defaultdict[str, list[BackendName]](list)
    for named in memo.each(_targets_of_one, {each.name: (each,) for each in services}).values():
        for target, name in named:
            found[target].append(name)
    return {target: tuple(names) for target, names in found.items()}


def _targets_of_one(service: Service) -> tuple[tuple[str, BackendName], ...]:
    named = ((target_of(service, backend), (service.name, backend.name)) for backend in service.backends)
    return tuple((target, name) for target, name in named if target is not None)


# Witnesses.


def quorum(size: int) -> int:
    """Return how many votes decide, of `size` witnesses."""
    return size // 2 + 1


def members(dpus: Mapping[str, Dpu], groups: Collection[str] = ()) -> list[Dpu]:
    """Return the DPUs of these groups, or of all, that may be witnesses: no operator took them out of service."""
    return [dpu for dpu in dpus.values() if not dpu.is_out and (not groups or not dpu.groups.isdisjoint(groups))]


def _panel_of(racks_of_members: Collection[str]) -> tuple[int, int]:
    """Return how many witnesses a target has, and how many of them may be in one rack: the largest panel, up to
    `WITNESSES`, in which no rack has a quorum; if there is one rack, all may be in it. It depends on all members, so
    after a loss of most of them the rest decides nothing."""
    racks, most = Counter(racks_of_members), min(WITNESSES, len(racks_of_members))
    for size in range(most, 1, -1):
        if sum(min(each, size // 2) for each in racks.values()) >= size:
            return size, size // 2
    return most, most


class Candidates:
    """The DPUs that may be witnesses of targets. Each has a rank for a target, by rendezvous hash, and those of the
    lowest ranks are chosen. So when a DPU leaves, only its own targets get another witness."""

    def __init__(self, racks: Mapping[str, str]) -> None:
        """`racks`: the result of `racks_of`."""
        self.panel, self._racks = _panel_of(racks.values()), racks
        self._hashes = [(_hash(name), name) for name in racks]
        self._first: dict[str, tuple[str, ...]] = {}

    def witnesses(self, target: str, fit: Collection[str]) -> frozenset[str]:
        """Return the witnesses of a target. DPUs that are not fit are chosen last."""
        chosen = self._chosen(name for name in self._first_of(target) if name in fit)
        if len(chosen) == self.panel[0]:
            return frozenset(chosen)
        ranked = self._ranked(target, below=_MASK)
        return frozenset(self._chosen(sorted(ranked, key=lambda name: name not in fit)))

    def _chosen(self, ranked: Iterable[str]) -> list[str]:
        (size, most_of_rack), chosen, racks = self.panel, list[str](), Counter[str]()
        for name in ranked:
            if len(chosen) == size:
                break
            if racks[self._racks[name]] < most_of_rack:
                racks[self._racks[name]] += 1
                chosen.append(name)
        return chosen

    def _first_of(self, target: str) -> tuple[str, ...]:
        """Return the DPUs of the lowest ranks. These are mostly enough, and faster to find than the order of 1,000."""
        if target not in self._first:
            below = _MASK * 3 * _FIRST // max(1, len(self._hashes))
            self._first[target] = tuple(self._ranked(target, below=below)[:_FIRST])
        return self._first[target]

    def _ranked(self, target: str, *, below: int) -> list[str]:
        """Return the DPUs whose rank is at most `below`, by their ranks."""
        seed = _hash(target)
        ranked = [(rank, name) for key, name in self._hashes if (rank := (seed ^ key) * _ODD & _MASK) <= below]
        return [name for _, name in sorted(ranked)]


def racks_of(dpus: Iterable[Dpu]) -> dict[str, str]:
    """Return the rack of each DPU by name. A DPU whose rack is not known has its own."""
    return {dpu.name: f"rack {dpu.rack}" if dpu.rack else f"dpu {dpu.name}" for dpu in dpus}


@lru_cache(maxsize=1 << 16)
def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


# Votes.


class Silence:
    """Records when a controller got the newest report of each DPU, by its own clock: those of DPUs may be wrong."""

    def __init__(self) -> None:
        self._heard: dict[str, tuple[int, float]] = {}

    def silent(self, view: FleetView, statuses: Mapping[str, DpuStatus] | None, *, now_s: float) -> frozenset[str]:
        """Return the names of the DPUs whose report has not changed for `SILENT_S`. The first report counts as new,
        except that of a DPU that was silent for another controller. Without `statuses` there are no reports of any DPU,
        so the result is that of the view. `now_s` never goes back."""
        if statuses is None:
            self._heard = {}
            return view.silent
        heard = dict[str, tuple[int, float]]()
        for name in view.dpus.keys() & statuses.keys():
            seen_ms, before = statuses[name].seen_ms, self._heard.get(name)
            if before is not None and before[0] == seen_ms:
                heard[name] = before
            else:
                was_silent = before is None and name in view.silent
                heard[name] = seen_ms, now_s - SILENT_S if was_silent else now_s
        self._heard = heard
        return frozenset(name for name, age_s in self.ages_s(now_s).items() if age_s >= SILENT_S)

    def ages_s(self, now_s: float) -> dict[str, float]:
        """Return the age of each DPU's newest report."""
        return {name: now_s - heard_s for name, (_, heard_s) in self._heard.items()}


def fit_dpus(view: FleetView, statuses: Mapping[str, DpuStatus]) -> frozenset[str]:
    """Return the names of the DPUs whose votes count: members that vote, are not silent, and not unfit."""
    return frozenset(
        dpu.name
        for dpu in members(view.dpus)
        if (status := statuses.get(dpu.name)) is not None
        and status.voted
        and not dpu.is_unfit
        and dpu.name not in view.silent
    )


class TargetState(Enum):
    """What most witnesses say of a target; the worst first. NO_QUORUM: it stays as it was."""

    DOWN = "down"
    NO_QUORUM = "no quorum"
    UP = "up"


@dataclass(frozen=True, slots=True)
class Votes:
    """The witnesses of a target by vote. `silent`: not fit, or without a report since they were chosen."""

    down: frozenset[str]
    up: frozenset[str]
    silent: frozenset[str]

    @property
    def text(self) -> str:
        """Return the votes in words."""
        down, up, silent = (len(names) for names in (self.down, self.up, self.silent))
        others = "".join(f", {number} {vote}" for number, vote in ((up, "up"), (silent, "nothing")) if number)
        return f"of {counted(down + up + silent, 'witness', 'witnesses')} {down} say down{others}"

    @property
    def result(self) -> TargetState:
        least = quorum(len(self.down) + len(self.up) + len(self.silent))
        if len(self.down) >= least:
            return TargetState.DOWN
        return TargetState.UP if len(self.up) >= least else TargetState.NO_QUORUM

    def contradict(self, *, is_down: bool) -> bool:
        """Return whether most witnesses vote for another state than that in the store."""
        return self.result is (TargetState.UP if is_down else TargetState.DOWN)


def votes_on(view: FleetView, watch: Watch, statuses: Mapping[str, DpuStatus], fit: Collection[str]) -> Votes:
    """Return the votes on a target. A witness has voted once it has reported on the generation that chose it, of this
    store: a DPU of another store is not informed that it is a witness."""
    down, up = set[str](), set[str]()
    for name in watch.witnesses:
        status = statuses.get(name)
        if (
            status is not None
            and name in fit
            and watch.generation <= status.voted <= view.generation
            and sync_state(view, status) is not DpuState.OTHER_STORE
        ):
            (down if watch.target in status.down else up).add(name)
    return Votes(frozenset(down), frozenset(up), watch.witnesses - down - up)


@dataclass(frozen=True, slots=True)
class FleetTarget:
    """A target of a fleet. `groups`: those whose DPUs serve it; empty for all. `is_staged`: whether only a roll-out has
    it. `begins_down`: whether it is new, and down before the first votes."""

    groups: frozenset[str] = frozenset()
    begins_down: bool = False
    is_staged: bool = False


def fleet_targets(
    configs: Mapping[str, FleetServices], targets: Mapping[str, Targets], view: FleetView
) -> dict[str, FleetTarget]:
    """Return the targets of a fleet. A new one begins as down if no backend of it serves, by `initial: down`, or
    because all were ejected before their check changed. `configs`, `targets`: by `IN_USE` and `ROLLED_OUT`."""
    found = dict[str, FleetTarget]()
    for part, config in configs.items():
        services = config.balancer.services
        pessimistic = {s.name for s in services if s.health is not None and s.health.initial is Initial.DOWN}
        for target, names in targets[part].items():
            old, groups = found.get(target), [config.groups[service] for service, _ in names]
            groups += [] if old is None else [old.groups]
            found[target] = FleetTarget(
                frozenset[str]().union(*groups) if all(groups) else frozenset(),
                (old is None or old.begins_down)
                and target not in view.watches
                and all(_begins_down(name, pessimistic, view) for name in names),
                is_staged=old is None and part == ROLLED_OUT,
            )
    return found


def _begins_down(name: BackendName, pessimistic: Collection[str], view: FleetView) -> bool:
    service, backend = name
    stored = view.services.get(service)
    if stored is None or backend not in stored.home.owners | stored.active.owners:
        return service in pessimistic
    return backend not in stored.active.owners


def next_watches(
    view: FleetView,
    targets: Mapping[str, FleetTarget],
    statuses: Mapping[str, DpuStatus] | None,
    *,
    now_ms: int,
    may_choose: bool,
    memo: Memo | None = None,
) -> dict[str, Watch | None]:
    """Return the changed rows: new targets, verdicts, witnesses. `statuses`: None if not known. `may_choose`: whether
    to replace witnesses that are not fit; if less than half of all members are fit, the store is at fault."""
    fit = frozenset[str]() if statuses is None else fit_dpus(view, statuses)
    may_choose = may_choose and 2 * len(fit) >= len(members(view.dpus))
    reported_down = frozenset[str]().union(*(status.down for status in (statuses or {}).values()))
    kinds = {(facts.groups, facts.is_staged) for facts in targets.values()}
    racks = {kind: (racks_of(_voters(view, kind[0], is_staged=kind[1])),) for kind in kinds}
    candidates = (memo or Memo()).each(Candidates, racks)
    found: dict[str, Watch | None] = dict.fromkeys(view.watches.keys() - targets.keys())
    for target, facts in targets.items():
        old, kind = view.watches.get(target), (facts.groups, facts.is_staged)
        if old is None:
            witnesses = candidates[kind].witnesses(target, fit)
            found[target] = Watch(target, witnesses, facts.begins_down, now_ms, view.generation + 1)
            continue
        new = old
        may_change = old.is_down or target in reported_down
        if may_change and votes_on(view, old, statuses or {}, fit).contradict(is_down=old.is_down):
            new = replace(new, is_down=not old.is_down, since_ms=now_ms)
        if may_choose and (witnesses := candidates[kind].witnesses(target, fit)) != old.witnesses:
            new = replace(new, witnesses=witnesses, generation=view.generation + 1)
        if new is not old:
            found[target] = new
    return found


def _voters(view: FleetView, groups: frozenset[str], *, is_staged: bool) -> list[Dpu]:
    """Return the DPUs that may be witnesses of targets with these groups. Only DPUs whose wave has begun can probe a
    target that only a roll-out has; before the first wave, those of the first wave."""
    dpus = members(view.dpus, groups)
    wave = view.wave or min((dpu.wave for dpu in dpus), default=0)
    return [dpu for dpu in dpus if not is_staged or dpu.wave <= wave] or dpus


def changed_health(view: FleetView, watches: Mapping[str, Watch | None]) -> dict[str, bool]:
    """Return the targets that a change of rows takes down (True) or up (False)."""
    was_down = {target for target, watch in view.watches.items() if watch.is_down}
    return {
        target: watch.is_down
        for target, watch in watches.items()
        if watch is not None and watch.is_down is not (target in was_down)
    }


def down_backends(targets: Targets, watches: Iterable[Watch]) -> dict[str, dict[str, float]]:
    """Return since when backends are down, in seconds by the clock of the writer, by service and name."""
    down = defaultdict[str, dict[str, float]](dict)
    for watch in watches:
        for service, backend in targets.get(watch.target, ()) if watch.is_down else ():
            down[service][backend] = watch.since_ms / 1000
    return down


# From votes to ejections, slow starts, and DPUs that withdraw.


def followed(
    before: Availability,
    balancer: Balancer,
    down: Mapping[str, Mapping[str, float]],
    *,
    known: KnownShares,
    now_s: float,
) -> Availability:
    """Return the availability after backends went down or came up. `balancer` has the weights in use. `down`: since
    when, by service and name, perhaps by another clock. `known`: the shares in the store, for the first call."""
    is_first = before.starts.balancer is None
    ejections = {}
    for service in balancer.services:
        if (names := down.get(service.name)) and service.health is None:
            # Down by BFD, which has no `max_down`. If no backend is left, the service stays as it is.
            away = with_away({}, (service,), {service.name: frozenset(names)})
            ejections[service.name] = Ejection(names, away.get(service.name, frozenset()))
        elif names and service.health is not None:
            old = before.ejections.get(service.name, Ejection())
            if is_first:
                old = Ejection(ejected=frozenset(name for name in names if known.get((service.name, name)) == 0))
            # A backend that is still down by votes has failed its last probes; `fall_s` ago the first one was sent.
            failing = dict.fromkeys(old.held, now_s - fall_s(service.health))
            ejections[service.name] = decide_ejections(old.with_down(names), service, failing, now_s=now_s)
    ejected = {name: each.ejected for name, each in ejections.items() if each.ejected}
    starts = update_slow_starts(before.starts, balancer, ejected, known=known, now_s=now_s)
    slow, held = ramps(starts, balancer, now_s=now_s), held_backends(ejections, ejected)
    return Availability(ejected, slow, held, ejections, starts)


def fall_s(health: Health) -> float:
    """Return the longest time, in seconds, that a health check takes to find that a backend is down."""
    return (health.interval_ms + (health.fall - 1) * health.fast_interval_ms + health.timeout_ms) / 1000


# Which DPUs are not fit to serve: they report it, and the controller agrees if enough others stay.


MAX_UNFIT = Fraction(3, 10)
"""The largest part of the DPUs that may be unfit at once: if more report it, their checks are the more likely fault, as
with `max_down` of backends."""


def max_unfit(dpus: int) -> int:
    """Return how many of `dpus` DPUs may be unfit at once: never all, and one of two."""
    return min(max(1, int(MAX_UNFIT * dpus)), max(0, dpus - 1))


def next_unfit(view: FleetView, statuses: Mapping[str, DpuStatus] | None) -> dict[str, Dpu]:
    """Return the DPUs that become fit or unfit. Those already unfit come first; a silent one stays as it is."""
    if statuses is None:
        return {}
    heard = {name: status for name, status in statuses.items() if name not in view.silent}
    reported = {
        name
        for name, dpu in view.dpus.items()
        if not dpu.is_out and (not heard[name].is_fit if name in heard else dpu.is_unfit)
    }
    ranked = sorted(reported, key=lambda name: (not view.dpus[name].is_unfit, name))
    unfit = set(ranked[: max_unfit(len(members(view.dpus)))])
    return {
        name: replace(dpu, is_unfit=name in unfit) for name, dpu in view.dpus.items() if dpu.is_unfit != (name in unfit)
    }


# The health of backends as the controller follows it.


_CHOOSE_S = 10.0
"""Least time between two choices of witnesses: after a loss of the store, DPUs come back one after the other."""


class FleetHealth:
    """Follows the votes on the targets of a fleet. A controller that takes over continues from the store."""

    def __init__(self, memo: Memo) -> None:
        """`memo`: that of `next_change`."""
        self._memo, self._silence = memo, Silence()
        self._available = dict[str, Availability]()
        self._seen: tuple[FleetView, object] | None = None
        self._step: tuple[Changes, Mapping[str, Availability]] = Changes(), {}
        self._chosen_s: float | None = None
        self._chosen_of: object = None

    def step(
        self, view: FleetView, statuses: Mapping[str, DpuStatus] | None, *, now_s: float, now_ms: int
    ) -> tuple[Changes, Mapping[str, Availability]]:
        """Return the effects of the newest votes: changed watches, DPUs that become fit or unfit, and silent DPUs, to
        write; and which backends may have clients, by `IN_USE` and `ROLLED_OUT`. `now_s`: on a clock that never goes
        back; `now_ms`: since 1970. Raises XenoovsError if a config of the view cannot be read."""
        silent = self._silence.silent(view, statuses, now_s=now_s)
        heard = replace(view, silent=silent)
        fit = frozenset[str]() if statuses is None else fit_dpus(heard, statuses)
        votes = {name: (each.down, each.voted, each.is_fit) for name, each in (statuses or {}).items()}
        # The choice of witnesses depends on these.
        choice = fit, view.dpus, view.wave
        is_due = self._chosen_s is None or now_s - self._chosen_s >= _CHOOSE_S
        may_choose = is_due and self._chosen_of != choice
        seen = statuses is None, votes, fit, silent, may_choose
        is_waiting = any(each.is_waiting for each in self._available.values())
        if self._seen is not None and self._seen[0] is view and self._seen[1] == seen and not is_waiting:
            return self._step
        configs = configs_of(view, self._memo)
        found = {name: targets_of(each.balancer.services, self._memo.part(name)) for name, each in configs.items()}
        if self._available.keys() - configs.keys():
            # What was staged is now in use or removed; the store shows which.
            self._available = {}
        targets = fleet_targets(configs, found, view)
        watches = next_watches(heard, targets, statuses, now_ms=now_ms, may_choose=may_choose, memo=self._memo)
        if may_choose:
            self._chosen_s, self._chosen_of = now_s, choice
        rows = rows_after(view.watches, watches).values()
        down = {name: down_backends(each, rows) for name, each in found.items()}
        available = self._follow(view, configs, down, now_s)
        changed = None if silent == view.silent else silent
        self._step = Changes(watches=watches, dpus=next_unfit(heard, statuses), silent=changed), available
        self._seen = view, seen
        return self._step

    def _follow(
        self,
        view: FleetView,
        configs: Mapping[str, FleetServices],
        down: Mapping[str, Mapping[str, Mapping[str, float]]],
        now_s: float,
    ) -> dict[str, Availability]:
        """Follow the configs of `configs_of`; `down`: the backends that are down by each of them."""
        found = dict[str, Availability]()
        for name, config in configs.items():
            before = self._available.get(name) or found.get(IN_USE) or Availability()
            known = stored_shares(view, self._memo) if before.starts.balancer is None else {}
            found[name] = followed(before, config.balancer, down[name], known=known, now_s=now_s)
            if name == ROLLED_OUT and IN_USE in found:
                # A returning backend starts slowly in both. Canaries test one that is new in the roll-out.
                found[name] = replace(found[name], starts=found[IN_USE].starts, ramps=found[IN_USE].ramps)
        self._available = found
        return found
