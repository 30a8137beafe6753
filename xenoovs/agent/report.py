"""What rounds came to: told once for one problem, and counted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from xenoovs.agent.health.tracker import HealthChange
from xenoovs.agent.log import tell, warn
from xenoovs.compile.drains import Draining
from xenoovs.compile.summary import Fate
from xenoovs.decision.desired import BackendName
from xenoovs.engine.change import Change, Problem

_MOST_SERVICES = 20
"""Of those that one round changed are told one by one, those with the most clients that moved."""


class Report:
    """Counts from the start of the agent.

    rounds:    that changed something; flow_mods: in them; foreign: flows of others' making that were put right.
    moved:     share of clients moved, summed over all changes, by service.
    held:      flow-mods that a pause holds back now.
    problems:   what cannot be made right now, while all else is.
    last_error: why the bridge is not right now; empty while it is.
    last_round_s: UTC, when the bridge was last found or made right.
    """

    def __init__(self) -> None:
        self.rounds = self.flow_mods = self.foreign = self.held = 0
        self.moved = defaultdict[str, float](float)
        self.last_error = ""
        self.last_round_s: float | None = None
        self.problems: tuple[Problem, ...] = ()
        self._draining: dict[str, tuple[tuple[str, str], ...]] = {}
        self._kept: dict[str, frozenset[str]] = {}

    def done(self, done: Change, *, bridge: str, config: str, now_s: float) -> None:
        """A round that left the bridge right."""
        self.last_round_s, self.held = now_s, 0
        if done.lost:
            warn("the bridge had been made anew", bridge=bridge)
        if done.foreign:
            self.foreign += done.foreign
            warn("flows that somebody else had changed are put right", flows=done.foreign, bridge=bridge)
        self._tell_problems(done.problems)
        was_draining = bool(self._draining)
        self._tell_drains(done.drains)
        if done.difference.is_empty:
            return
        self.rounds += 1
        self.flow_mods += done.difference.flow_mods
        changes = [change for change in done.services() if change.moved or change.fate in (Fate.NEW, Fate.REMOVED)]
        if not changes and not done.foreign and was_draining:
            # The next step of a drain, which is told when it begins and ends.
            return
        tell("flows changed", bridge=bridge, flow_mods=done.difference.flow_mods, config=config)
        for change in changes:
            self.moved[change.name] += float(change.moved)
        most_moved = sorted(changes, key=lambda change: -change.moved)
        for change in most_moved[:_MOST_SERVICES]:
            moved, least = (f"{float(share):.4f}" for share in (change.moved, change.least_moved))
            out = ",".join(change.out) or "-"
            tell("service changed", service=change.name, clients_moved=moved, clients_moved_least=least, out=out)
        if left := most_moved[_MOST_SERVICES:]:
            tell("more services changed", services=len(left), clients_moved_most=f"{float(left[0].moved):.4f}")

    def health(self, change: HealthChange) -> None:
        """Backends came up or went down."""
        names, held = (",".join(map("/".join, some)) for some in (change.backends, change.held))
        if change.is_up:
            tell("backend up", backends=names, reason=change.reason)
        elif change.is_late:
            warn("backend still down, and others may have its clients now", backends=names, reason=change.reason)
        else:
            warn("backend down", backends=names, **({"kept": held} if held else {}), reason=change.reason)

    def keep(self, kept: Mapping[str, frozenset[str]]) -> None:
        """Backends, by service, that are down and have their clients all the same. Told when it changes."""
        for service in sorted(kept.keys() | self._kept.keys()):
            now, before = kept.get(service, frozenset()), self._kept.get(service, frozenset())
            if now and now != before:
                warn("backends that are down keep their clients", service=service, backends=",".join(sorted(now)))
            elif before and not now:
                tell("no backend that is down keeps clients", service=service)
        self._kept = dict(kept)

    def _tell_drains(self, drains: Iterable[Draining]) -> None:
        """Once when one begins or takes another way, and once when it is over."""
        now = {drain.service: drain for drain in drains}
        for service in self._draining.keys() - now.keys():
            tell("all clients have moved", service=service)
        for service, drain in now.items():
            if drain.ways != self._draining.get(service):
                ways = ",".join(f"{old}->{new}" for old, new in drain.ways)
                tell(
                    "connections are kept", service=service, ways=ways, blocks=drain.blocks, left_s=round(drain.left_s)
                )
        self._draining = {service: drain.ways for service, drain in now.items()}

    @property
    def unreachable(self) -> dict[BackendName, str]:
        """Why backends get no clients that could have some."""
        return {name: problem.text for problem in self.problems for name in problem.backends}

    def _tell_problems(self, problems: tuple[Problem, ...]) -> None:
        """Log what cannot be made right, once, and that it can be again."""
        for problem in problems:
            if problem not in self.problems:
                warn("a part of the bridge cannot be made right", reason=problem.text)
        for problem in self.problems:
            if problem not in problems:
                tell("a part of the bridge can be made right again", reason=problem.text)
        self.problems = problems

    def hold(self, flow_mods: int) -> None:
        """A round that a pause kept from changing anything."""
        if flow_mods != self.held:
            warn("paused; the bridge is not as it should be", flow_mods=flow_mods)
        self.held = flow_mods

    def complain(self, problem: str, *, bridge: str) -> None:
        """A round that failed, or, with an empty `problem`, one that did not. Says so only when it is news."""
        if problem and problem != self.last_error:
            warn("the bridge cannot be made right; trying again", bridge=bridge, reason=problem)
        if self.last_error and not problem:
            tell("the bridge is right again", bridge=bridge)
        self.last_error = problem
