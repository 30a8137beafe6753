"""All checks of a config: who is to be asked when, and who is out by what was answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from xenoovs.agent.check import Check, uses_of
from xenoovs.agent.health import Standing, begin, observe, pause_s
from xenoovs.agent.panic import taken_out
from xenoovs.compile.program import Outages
from xenoovs.model.balancer import Balancer

Known = Mapping[tuple[str, str], bool]
"""By names of service and backend: whether the switch gives it clients (False: it remembers that it is out)."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """`due_s`: when to ask next; None while a probe is on its way."""

    standing: Standing
    due_s: float | None
    results: int = 0


@dataclass(frozen=True, slots=True)
class Transition:
    """A backend, under all the names it has, that came in or went out."""

    check: Check
    names: tuple[str, ...]
    is_up: bool


class Watch:
    """The state of all checks. Time comes from the caller."""

    def __init__(self) -> None:
        self._entries: dict[Check, _Entry] = {}
        self._balancer: Balancer | None = None

    def follow(self, balancer: Balancer, known: Known, *, now_s: float) -> None:
        """Watch another config. Checks that stay keep their state; new ones are asked at once."""
        facts: dict[Check, bool | None] = {}
        for use in uses_of(balancer):
            told = known.get((use.service.name, use.backend.name))
            before = facts.get(use.check)
            facts[use.check] = told if before is None else before and told is not False
        self._entries = {
            check: self._entries.get(check) or _Entry(begin(check.health, known_up=up, now_s=now_s), now_s)
            for check, up in facts.items()
        }
        self._balancer = balancer

    def take_due(self, now_s: float) -> tuple[Check, ...]:
        """The checks to be asked now; each is on its way until `record`."""
        due = [check for check, entry in self._entries.items() if entry.due_s is not None and entry.due_s <= now_s]
        for check in due:
            self._entries[check] = replace(self._entries[check], due_s=None)
        return tuple(due)

    def next_due_s(self) -> float | None:
        """When `take_due` will have something; None: not before a result comes."""
        return min((entry.due_s for entry in self._entries.values() if entry.due_s is not None), default=None)

    def record(self, check: Check, *, ok: bool, asked_s: float, now_s: float) -> Transition | None:
        """A result. A check that the config no longer has is ignored."""
        entry = self._entries.get(check)
        if entry is None:
            return None
        standing = observe(entry.standing, check.health, ok=ok, now_s=now_s)
        # A clock that jumps ahead, as after a suspend, must not make up for all probes that were missed.
        due_s = max(asked_s + pause_s(standing, check.health), now_s)
        self._entries[check] = _Entry(standing, due_s, entry.results + 1)
        changed = standing.is_up != entry.standing.is_up
        return Transition(check, self._names(check), standing.is_up) if changed else None

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

        Backends without a weight in `balancer` count neither as up nor as down.
        """
        balancer = balancer or self._balancer
        if balancer is None:
            return {}
        fallen: dict[str, list[tuple[float, str]]] = {service.name: [] for service in balancer.services}
        for use in uses_of(balancer):
            standing = self.standing_of(use.check)
            if standing is not None and not standing.is_up:
                fallen[use.service.name].append((standing.since_s, use.backend.name))
        return {
            service.name: frozenset()
            if service.health is None
            else taken_out(
                [name for _, name in sorted(fallen[service.name], key=lambda entry: entry[0])],
                of=sum(1 for weight in service.weights if weight),
                health=service.health,
            )
            for service in balancer.services
        }

    def _names(self, check: Check) -> tuple[str, ...]:
        uses = uses_of(self._balancer) if self._balancer is not None else ()
        return tuple(f"{use.service.name}/{use.backend.name}" for use in uses if use.check == check)
