"""All checks of a config: who is to be asked when, and who is out by what was answered."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from heapq import heapify, heappop, heappush
from zlib import crc32

from xenoovs.agent.check import Check, uses_of
from xenoovs.agent.health import Standing, begin, observe, pause_s
from xenoovs.agent.panic import Fallen, Places, decide, is_stale, most_out
from xenoovs.compile.program import Outages
from xenoovs.model.balancer import Balancer
from xenoovs.model.health import AllDown
from xenoovs.model.service import Service

Names = tuple[str, str]
"""Of a service, and of one of its backends."""

Known = Mapping[Names, Fraction]
"""By names of service and backend: the part (0..1) of its clients that the switch gives it. 0: it remembers that the
backend is out; below 1: that it starts slowly."""


_BATCH, _BATCH_S = 100, 0.1
"""So many new checks are asked at once, and as many so much later: a burst would be answered late."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """`due_s`: when to ask next; None while a probe is on its way. `seed`: of its jitter.

    results: so far; failures: those in a row that failed, up to the last one.
    """

    standing: Standing
    due_s: float | None
    seed: int
    results: int = 0
    failures: int = 0

    @property
    def chance(self) -> float:
        """0..1, another one for each result, and always the same for the same check."""
        return crc32(self.results.to_bytes(8, "big"), self.seed) / (1 << 32)


@dataclass(frozen=True, slots=True)
class Transition:
    """A backend that came up or went down, and under which names: a reason for a round.

    kept:     the names under which it keeps its clients although it is down.
    is_again: it was down, kept its clients, and goes out now: a place is free, and it has failed `fall` times since.
    """

    check: Check
    names: tuple[str, ...]
    is_up: bool
    kept: tuple[str, ...] = ()
    is_again: bool = False


class Watch:
    """The state of all checks. Time comes from the caller."""

    def __init__(self) -> None:
        self._entries: dict[Check, _Entry] = {}
        self._due: list[tuple[float, int, Check]] = []
        self._count = 0
        self._names: dict[Check, tuple[Names, ...]] = {}
        self._checks: dict[Names, Check] = {}
        self._down: dict[str, dict[str, float]] = {}
        self._places: dict[str, Places] = {}
        self._services: dict[str, Service] = {}
        self._balancer: Balancer | None = None
        self._used: Balancer | None = None

    def copy(self) -> Watch:
        """The same knowledge, which then goes its own way."""
        other = Watch()
        other._entries, other._due, other._count = dict(self._entries), list(self._due), self._count
        other._names, other._checks, other._balancer = self._names, self._checks, self._balancer
        other._places, other._services, other._used = dict(self._places), self._services, self._used
        other._down = {service: dict(down) for service, down in self._down.items()}
        return other

    def follow(self, balancer: Balancer, known: Known, *, now_s: float) -> None:
        """Watch another config. Checks that stay keep their state; new ones are asked soon."""
        facts: dict[Check, bool | None] = {}
        names: dict[Check, list[Names]] = {}
        for use in uses_of(balancer):
            part = known.get((use.service.name, use.backend.name))
            told = None if part is None else part > 0
            names.setdefault(use.check, []).append((use.service.name, use.backend.name))
            before = facts.get(use.check)
            facts[use.check] = told if before is None else before and told is not False
        old = self._entries
        self._entries = {check: old[check] for check in facts if check in old}
        for number, check in enumerate(check for check in facts if check not in old):
            standing = begin(check.health, known_up=facts[check], now_s=now_s)
            due_s = now_s + number // _BATCH * _BATCH_S
            self._entries[check] = _Entry(standing, due_s, crc32(repr(check.target).encode()))
        times = ((check, entry.due_s) for check, entry in self._entries.items())
        self._due = [(due_s, self._number(), check) for check, due_s in times if due_s is not None]
        heapify(self._due)
        self._names = {check: tuple(of) for check, of in names.items()}
        asked = {each: check for check, of in names.items() for each in of}
        self._forget({each for each, check in self._checks.items() if asked.get(each) != check})
        self._checks, self._down = asked, {}
        for check, entry in self._entries.items():
            self._note(check, entry.standing)
        self._balancer = balancer
        self._use(balancer)

    def take_due(self, now_s: float) -> tuple[Check, ...]:
        """The checks to be asked now; each is on its way until `record`."""
        taken = []
        while self._due and self._due[0][0] <= now_s:
            due_s, _, check = heappop(self._due)
            entry = self._entries[check]
            # A check that was dropped and came again while its probe was under way stands here twice.
            if entry.due_s == due_s:
                self._entries[check] = replace(entry, due_s=None)
                taken.append(check)
        return tuple(taken)

    def next_due_s(self) -> float | None:
        """When `take_due` will have something; None: not before a result comes."""
        return self._due[0][0] if self._due else None

    def record(self, check: Check, *, ok: bool, asked_s: float, now_s: float) -> Transition | None:
        """A result. A check that the config no longer has is ignored."""
        entry = self._entries.get(check)
        if entry is None:
            return None
        standing = observe(entry.standing, check.health, ok=ok, now_s=now_s)
        # A clock that jumps ahead, as after a suspend, must not make up for all probes that were missed.
        due_s = max(asked_s + pause_s(standing, check.health, first=not entry.results, chance=entry.chance), now_s)
        failures = 0 if ok else entry.failures + 1
        self._entries[check] = _Entry(standing, due_s, entry.seed, entry.results + 1, failures)
        heappush(self._due, (due_s, self._number(), check))
        if standing.is_up == entry.standing.is_up:
            return None if standing.is_up else self._again(check)
        self._note(check, standing)
        names = self._names[check]
        kept = () if standing.is_up else tuple(each for each in names if self._keeps(each))
        return Transition(check, _shown(names), standing.is_up, _shown(kept))

    @property
    def checks(self) -> int:
        """How many checks the config asks for."""
        return len(self._entries)

    @property
    def is_settled(self) -> bool:
        """Whether every backend has been asked at least once."""
        return all(entry.results for entry in self._entries.values())

    def standing_of(self, check: Check) -> Standing | None:
        """What is known of a check; None where it is not of the config."""
        entry = self._entries.get(check)
        return None if entry is None else entry.standing

    def outages(self, balancer: Balancer | None = None) -> Outages:
        """Who gets no clients, for every service of a config; None: of the one that is followed.

        Backends without a weight in `balancer` count neither as up nor as down. Who is out stays so while it is down,
        and who keeps its clients keeps them until it has failed again (see panic.py); so this remembers what it says.
        """
        balancer = balancer or self._balancer
        if balancer is None:
            return {}
        self._use(balancer)
        found = {service.name: self._places_of(service) for service in balancer.services}
        self._places = {name: places for name, places in found.items() if places != Places()}
        return {name: places.out for name, places in found.items()}

    def down_of(self, service: str) -> frozenset[str]:
        """Which backends of a service do not answer, whether they keep their clients or not."""
        return frozenset(self._down.get(service, ()))

    def _places_of(self, service: Service) -> Places:
        down = self._down.get(service.name)
        if service.health is None or not down:
            return Places()
        since = {backend.name: down[backend.name] for backend in service.backends if backend.name in down}
        weights = {backend.name: backend.weight for backend in service.backends}
        first = sorted(since, key=lambda name: since[name])
        fallen = [self._fallen((service.name, name), since[name]) for name in first if weights[name]]
        drained = frozenset(name for name in since if not weights[name])
        of = sum(1 for weight in weights.values() if weight)
        places = decide(self._places.get(service.name, Places()), fallen, of=of, health=service.health)
        return replace(places, out=places.out | drained)

    def _fallen(self, names: Names, since_s: float) -> Fallen:
        entry = self._entries[self._checks[names]]
        on_way = 1 if entry.due_s is None else 0
        return Fallen(names[1], since_s, entry.results + on_way, entry.failures, on_way)

    def _keeps(self, names: Names) -> bool:
        """Whether a backend that fell just now keeps its clients, by the weights that were used last.

        By counting alone: where thousands fall at once, thousands ask.
        """
        service = self._services.get(names[0])
        if service is None or service.health is None:
            return False
        down = self._down[service.name].keys()
        weighted = {backend.name for backend in service.backends if backend.weight}
        fallen, kept = weighted & down, self._places.get(service.name, Places()).kept.keys() & down
        if names[1] not in fallen or (fallen == weighted and service.health.on_all_down is AllDown.DROP):
            return False
        return len(fallen) - len(kept) > most_out(len(weighted), service.health)

    def _again(self, check: Check) -> Transition | None:
        """Under those names of a backend that kept clients which others may have now."""
        gone = tuple(each for each in self._names[check] if self._goes(each))
        return Transition(check, _shown(gone), is_up=False, is_again=True) if gone else None

    def _goes(self, names: Names) -> bool:
        places, service = self._places.get(names[0], Places()), self._services.get(names[0])
        kept = places.kept.get(names[1])
        if kept is None or service is None or service.health is None:
            return False
        if is_stale(self._fallen(names, kept.since_s), kept, service.health):
            return False
        self._places[names[0]] = found = self._places_of(service)
        return names[1] in found.out

    def _use(self, balancer: Balancer) -> None:
        if self._used is not balancer:
            self._used, self._services = balancer, {service.name: service for service in balancer.services}

    def _forget(self, gone: Collection[Names]) -> None:
        """Backends that are asked otherwise now, or no more."""
        for service, backend in gone:
            if (places := self._places.get(service)) is not None:
                kept = {name: each for name, each in places.kept.items() if name != backend}
                self._places[service] = Places(places.out - {backend}, kept)

    def _note(self, check: Check, standing: Standing) -> None:
        """Keep by name who is down, and since when: rounds ask for that, and transitions are rare."""
        for service, backend in self._names[check]:
            if standing.is_up:
                self._down.get(service, {}).pop(backend, None)
            else:
                self._down.setdefault(service, {})[backend] = standing.since_s

    def _number(self) -> int:
        """Keeps checks that are due at one time in their order."""
        self._count += 1
        return self._count


def _shown(names: Iterable[Names]) -> tuple[str, ...]:
    return tuple("/".join(each) for each in names)
