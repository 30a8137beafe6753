"""Logs and counts what the rounds of an agent did. What stays the same is logged once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from xenoovs.agent.health import AdvertisedChange, HealthChange
from xenoovs.agent.log import info, warn
from xenoovs.agent.state import OverrideExpired
from xenoovs.compile.drains import Draining
from xenoovs.compile.plan import ChangeKind
from xenoovs.decision.decision import BackendName
from xenoovs.engine.change import Change, Problem

_MAX_SERVICES = 20
"""How many services that one round changed are logged one by one: those with the most clients moved."""

_EVENTS = {ChangeKind.NEW: "service installed", ChangeKind.REMOVED: "service removed"}


class Report:
    """Counts from the start of the agent.

    Attributes:
        moved: Share of clients moved, summed over all changes, by service of the bridge.
        is_late: Whether that is only that it is not finished yet.
        last_round_s: UTC, when a round last succeeded.
        without: Ports that flows of the last good round cannot name.
    """

    def __init__(self) -> None:
        self.rounds = self.flow_mods = self.foreign = self.held = 0
        self.moved = defaultdict[str, float](float)
        self.last_error, self.is_late = "", False
        self.last_round_s: float | None = None
        self.problems: tuple[Problem, ...] = ()
        self._unchecked: tuple[str, ...] = ()
        self._unread_policies = ""
        self.without: frozenset[str] = frozenset()
        self._draining: dict[str, tuple[tuple[str, str], ...]] = {}
        self._held_backends: dict[str, frozenset[str]] = {}
        self._drain_problem = ""

    def succeeded(self, change: Change, *, bridge: str, config: str, now_s: float) -> None:
        """Report a round that succeeded."""
        if self.last_error:
            info("reconcile succeeded again", bridge=bridge)
        self.last_error, self.is_late, self.last_round_s, self.held = "", False, now_s, 0
        self.without = change.target.without
        if change.lost:
            warn("bridge was recreated; reinstalling flows", bridge=bridge)
        if change.foreign:
            self.foreign += change.foreign
            warn("reverted external changes", flows=change.foreign, bridge=bridge)
        self._report_problems(change.problems)
        if change.unchecked and change.unchecked != self._unchecked:
            remedy = "look there with `xenoovs doctor`; a wrong remote, or a missing IPsec key, is not seen from here"
            warn("tunnel ports cannot be checked without the database", ports=",".join(change.unchecked), remedy=remedy)
        self._unchecked = change.unchecked or self._unchecked
        if change.unread_policies and change.unread_policies != self._unread_policies:
            remedy = "look there with `xenoovs doctor`; a tunnel without a policy of IPsec sends unencrypted"
            warn("policies of IPsec cannot be read", reason=change.unread_policies, remedy=remedy)
        self._unread_policies = change.unread_policies
        was_draining = bool(self._draining)
        self._report_drains(change.drains)
        if change.difference.is_empty:
            return
        on_bridge = {made.service.name for made in change.program.services}
        for name in self.moved.keys() - on_bridge:
            del self.moved[name]
        self.rounds += 1
        self.flow_mods += change.difference.flow_mods
        services = [
            each for each in change.services() if each.moved or each.kind in (ChangeKind.NEW, ChangeKind.REMOVED)
        ]
        if not services and not change.foreign and was_draining:
            # The next step of a drain, whose begin and end are logged.
            return
        remotes = {made.service.name for made in change.program.services if made.service.is_remote}
        is_of_paths = all(each.name in remotes and each.kind not in _EVENTS for each in services)
        if services and is_of_paths and not change.foreign:
            # Blocks between paths, of which the decision itself is logged.
            return
        info("flows changed", bridge=bridge, flow_mods=change.difference.flow_mods, config=config)
        for service in services:
            if service.name in on_bridge:
                self.moved[service.name] += float(service.moved)
        most_moved = sorted(services, key=lambda service: -service.moved)
        for service in most_moved[:_MAX_SERVICES]:
            moved, least = (f"{float(share):.4f}" for share in (service.moved, service.least_moved))
            ejected = ",".join(service.ejected) or "-"
            if (event := _EVENTS.get(service.kind)) is not None:
                # No client had a backend before, or none has one now: no share of them has moved.
                info(event, service=service.name, backends=len(service.backends), ejected=ejected)
                continue
            info(
                "service changed", service=service.name, clients_moved=moved, clients_moved_least=least, ejected=ejected
            )
        if left := most_moved[_MAX_SERVICES:]:
            info("more services changed", services=len(left), clients_moved_most=f"{float(left[0].moved):.4f}")

    def failed(self, problem: str, *, bridge: str, is_late: bool = False) -> None:
        """Report a round that failed, or is late."""
        if problem != self.last_error:
            warn("reconcile failed; retrying", bridge=bridge, reason=problem)
        self.last_error, self.is_late = problem, is_late

    def drains_measured(self, problem: str = "") -> None:
        """Report that the progress of drains could be measured, or why not: they wait until it can."""
        if problem and problem != self._drain_problem:
            warn("drains wait for Open vSwitch", reason=problem)
        self._drain_problem = problem

    def held_back(self, flow_mods: int) -> None:
        """Report a round whose changes a pause holds back."""
        if flow_mods != self.held:
            warn("paused; changes are held back", flow_mods=flow_mods)
        self.held = flow_mods

    def health(self, change: HealthChange) -> None:
        """Report backends that came up or went down."""
        names, held = (",".join(map("/".join, some)) for some in (change.backends, change.held))
        if change.is_up:
            info("backend up", backends=names, reason=change.reason)
        elif change.was_held:
            warn("backend still down, and ejected now", backends=names, reason=change.reason)
        else:
            warn("backend down", backends=names, **({"held": held} if held else {}), reason=change.reason)

    def advertised(self, change: AdvertisedChange) -> None:
        """Report what the agent of a server advertised, and when its replies stop or come back."""
        names = ",".join(map("/".join, change.backends))
        if change.problem:
            stays = change.advertised.state if change.advertised.reply else "the weight of the config"
            warn("agent of a server does not reply", backends=names, reason=change.problem, stays=stays)
            return
        facts = {"description": change.advertised.description} if change.advertised.description else {}
        info("agent of a server advertised", backends=names, state=change.advertised.state, **facts)

    def refused_advertised(self, reasons: Mapping[str, str]) -> None:
        """Report advertised weights that cannot be installed."""
        for service, reason in reasons.items():
            warn("advertised weights cannot be installed; they are ignored", service=service, reason=reason)

    def expired(self, expired: OverrideExpired) -> None:
        """Report an override whose time is over."""
        one = expired.override
        names = {"service": one.service, "backend": one.backend, "state": one.state}
        if expired.is_last:
            warn("an override stays beyond its time", **names, reason="without it no backend would have a weight")
        else:
            info("an override has ended", **names, reason="its time is over")

    def held_backends(self, held: Mapping[str, frozenset[str]]) -> None:
        """Report backends, by service, that are down and keep their clients: max_down, or all are down."""
        for service in sorted(held.keys() | self._held_backends.keys()):
            now, before = held.get(service, frozenset()), self._held_backends.get(service, frozenset())
            if now and now != before:
                warn("backends are down and keep their clients", service=service, backends=",".join(sorted(now)))
            elif before and not now:
                info("no backend that is down keeps its clients", service=service)
        self._held_backends = dict(held)

    @property
    def unreachable(self) -> dict[BackendName, str]:
        """Why backends get no clients although they may have some."""
        return {name: problem.text for problem in self.problems for name in problem.backends}

    def _report_drains(self, drains: Iterable[Draining]) -> None:
        """Log when a drain begins, goes to other backends, or is over."""
        now = {drain.service: drain for drain in drains}
        for service in self._draining.keys() - now.keys():
            info("drain complete", service=service)
        for service, drain in now.items():
            if drain.ways != self._draining.get(service):
                ways = ",".join(f"back with {new}" if old == new else f"{old}->{new}" for old, new in drain.ways)
                info("draining", service=service, ways=ways, blocks=drain.blocks, left_s=round(drain.left_s))
        self._draining = {service: drain.ways for service, drain in now.items()}

    def _report_problems(self, problems: tuple[Problem, ...]) -> None:
        for problem in problems:
            if problem not in self.problems:
                warn("part of the bridge cannot be reconciled", reason=problem.text)
        for problem in self.problems:
            if problem not in problems:
                info("part of the bridge is reconciled again", reason=problem.text)
        self.problems = problems
