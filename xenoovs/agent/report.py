"""Logs and counts the results of the rounds of an agent. A problem that stays the same is logged once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from xenoovs.agent.health import AdvertisedChange, HealthChange
from xenoovs.agent.state import AgentState, RoundFacts, Runtime
from xenoovs.agent.tasks import call_each
from xenoovs.compile.drain_progress import Draining
from xenoovs.compile.plan import ChangeKind
from xenoovs.dataclass import dataclass
from xenoovs.decision.decision import BackendName
from xenoovs.display import decimal
from xenoovs.engine.change import Change
from xenoovs.errors import RoundLate, XenoovsError
from xenoovs.log import info, warn
from xenoovs.model.balancer import Balancer
from xenoovs.show.snapshot import Override

_MAX_SERVICES = 20
"""How many changed services of a round are logged one by one: those with the most clients moved."""

_EVENTS = {ChangeKind.NEW: "service installed", ChangeKind.REMOVED: "service removed"}


class Report:
    """Logs the rounds of one agent."""

    def __init__(self) -> None:
        self._unchecked: tuple[str, ...] = ()
        self._unread_policies = self._drain_problem = ""
        self._draining: dict[str, tuple[tuple[str, str], ...]] = {}
        self._held_backends: dict[str, frozenset[str]] = {}

    def succeeded(self, before: RoundFacts, change: Change, *, bridge: str, config: str, now_s: float) -> RoundFacts:
        """Report a round that succeeded. Return the facts after it. `now_s`: UTC."""
        if before.error:
            info("reconcile succeeded again", bridge=bridge)
        if change.lost:
            warn("bridge was recreated; reinstalling flows", bridge=bridge)
        if change.foreign:
            warn("reverted external changes", flows=change.foreign, bridge=bridge)
        for problem in change.problems:
            if problem not in before.problems:
                warn("part of the bridge cannot be reconciled", reason=problem.text)
        for problem in before.problems:
            if problem not in change.problems:
                info("part of the bridge is reconciled again", reason=problem.text)
        facts = replace(
            before,
            problems=change.problems,
            without=change.target.without,
            error="",
            failing_since_s=None,
            held=0,
            last_s=now_s,
            foreign=before.foreign + change.foreign,
        )
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
            return facts
        services = [
            each for each in change.services() if each.moved or each.kind in (ChangeKind.NEW, ChangeKind.REMOVED)
        ]
        is_remote = {made.service.name: made.service.is_remote for made in change.program.services}
        # Moves of blocks between paths, and begin and end of a drain, have their own log events.
        is_of_paths = all(is_remote.get(each.name) and each.kind not in _EVENTS for each in services)
        is_logged = bool(change.foreign) or not (is_of_paths if services else was_draining)
        shares = {each.name: float(each.moved) for each in services} if is_logged else {}
        facts = replace(
            facts,
            rounds=before.rounds + 1,
            flow_mods=before.flow_mods + change.difference.flow_mods,
            moved={name: before.moved.get(name, 0.0) + shares.get(name, 0.0) for name in is_remote},
        )
        if not is_logged:
            return facts
        info("flows changed", bridge=bridge, flow_mods=change.difference.flow_mods, config=config)
        most_moved = sorted(services, key=lambda service: -service.moved)
        for service in most_moved[:_MAX_SERVICES]:
            moved, least = (f"{float(share):.4f}" for share in (service.moved, service.least_moved))
            ejected = ",".join(service.ejected) or "-"
            if (event := _EVENTS.get(service.kind)) is not None:
                # No client had a backend before, or none has one now, so that no share of them has moved.
                info(event, service=service.name, backends=len(service.backends), ejected=ejected)
                continue
            info(
                "service changed", service=service.name, clients_moved=moved, clients_moved_least=least, ejected=ejected
            )
        if left := most_moved[_MAX_SERVICES:]:
            info("more services changed", services=len(left), clients_moved_most=f"{float(left[0].moved):.4f}")
        return facts

    def failed(self, before: RoundFacts, problem: XenoovsError, *, bridge: str, now_s: float) -> RoundFacts:
        """Report a round that failed, or is late. Return the facts after it. `now_s`: on the agent's clock."""
        text, is_late, since_s = str(problem), isinstance(problem, RoundLate), before.failing_since_s
        if text != before.error:
            warn("reconcile failed; retrying", bridge=bridge, reason=text)
        # A late round may still succeed. If the switch does not answer, the round fails by itself.
        since_s = now_s if since_s is None and not is_late else since_s
        return replace(before, error=text, failing_since_s=since_s)

    def drains_measured(self, problem: str = "") -> None:
        """Report that the progress of drains was measured, or why not (`problem`). Until it is, they do not end."""
        if problem and problem != self._drain_problem:
            warn("drains wait for Open vSwitch", reason=problem)
        self._drain_problem = problem

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
        """Report what the agent of a server advertised, or that it does not reply."""
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

    def expired(self, one: Override) -> None:
        """Report an override whose time is over; one without an end stays."""
        names = {"service": one.service, "backend": one.backend, "state": one.state}
        if one.until_s is None:
            warn("an override stays beyond its time", **names, reason="without it no backend would have a weight")
        else:
            info("an override has ended", **names, reason="its time is over")

    def held_backends(self, held: Mapping[str, frozenset[str]]) -> None:
        """Report backends, by service, that are down and keep their clients, by max_down or because all are down."""
        for service in sorted(held.keys() | self._held_backends.keys()):
            now, before = held.get(service, frozenset()), self._held_backends.get(service, frozenset())
            if now and now != before:
                warn("backends are down and keep their clients", service=service, backends=",".join(sorted(now)))
            elif before and not now:
                info("no backend that is down keeps its clients", service=service)
        self._held_backends = dict(held)

    def _report_drains(self, drains: Iterable[Draining]) -> None:
        now = {drain.service: drain for drain in drains}
        for service in self._draining.keys() - now.keys():
            info("drain complete", service=service)
        for service, drain in now.items():
            if drain.ways != self._draining.get(service):
                ways = ",".join(f"back with {new}" if old == new else f"{old}->{new}" for old, new in drain.ways)
                info("draining", service=service, ways=ways, blocks=drain.blocks, left_s=round(drain.left_s))
        self._draining = {service: drain.ways for service, drain in now.items()}


# The last change of each backend, and how many there were since the agent started.


@dataclass(frozen=True, slots=True)
class LastChange:
    """The last change of a backend. `time_s`: UTC. `reason`: as in `down: connection refused`. `number`: from 1."""

    time_s: float
    reason: str
    number: int


class BackendChanges:
    """The last change of each backend, by health checks, agents of servers, operators, the config or ports."""

    def __init__(self) -> None:
        self.last: Mapping[BackendName, LastChange] = {}
        self.listeners: list[Callable[[BackendName, LastChange], None]] = []

    def health(self, change: HealthChange) -> None:
        """Record backends that came up or went down."""
        state = "up" if change.is_up else "ejected" if change.was_held else "down"
        self._record((name, f"{state}: {change.reason}") for name in change.backends)

    def advertised(self, change: AdvertisedChange) -> None:
        """Record what the agent of a server advertised."""
        if change.is_new:
            self._record((name, f"{change.advertised.state} advertised by its agent") for name in change.backends)

    def observe(self, before: AgentState, after: AgentState, now_s: float) -> None:
        """Record changes by operators, the config and ports."""
        if before.runtime.overrides is not after.runtime.overrides:
            self._record(_by_operators(before.runtime, after.runtime, now_s))
        if before.balancer is not after.balancer:
            self._record(_by_config(before.balancer, after.balancer))
        if before.ports_down != after.ports_down or before.ports is not after.ports:
            self._record(_by_ports(before, after))

    def _record(self, changes: Iterable[tuple[BackendName, str]]) -> None:
        last = dict(self.last)
        for name, reason in changes:
            number = last[name].number if name in last else 0
            last[name] = LastChange(time.time(), reason, number + 1)
            call_each(self.listeners, name, last[name])
        self.last = last


def _by_operators(before: Runtime, after: Runtime, now_s: float) -> Iterator[tuple[BackendName, str]]:
    old, new = before.by_name, after.by_name
    for name in old.keys() | new.keys():
        was, now = old.get(name), new.get(name)
        if now is not None and (was is None or was.state != now.state):
            yield name, f"{now.state} by an operator"
        elif was is not None and now is None:
            is_over = was.until_s is not None and was.until_s <= now_s
            yield name, f"{was.state} ended{': its time is over' if is_over else ''}"


def _by_config(before: Balancer, after: Balancer) -> Iterator[tuple[BackendName, str]]:
    old = {service.name: service for service in before.services}
    for service in after.services:
        was = old.get(service.name)
        # Usually one of a thousand services differs.
        if was is None or was is service:
            continue
        weights = {backend.name: backend.weight for backend in was.backends}
        for backend in service.backends:
            weight = weights.get(backend.name, backend.weight)
            if weight != backend.weight:
                reason = f"weight {decimal(backend.weight)} in the config, {decimal(weight)} before"
                yield (service.name, backend.name), reason


def _by_ports(before: AgentState, after: AgentState) -> Iterator[tuple[BackendName, str]]:
    dead = after.dead_ports
    reasons = {port: after.why_dead(port) for port in dead - before.dead_ports}
    for port in before.dead_ports - dead:
        reasons[port] = f"port {port} is live again"
    for service in after.balancer.services if reasons else ():
        for backend in service.backends:
            if reason := reasons.get(backend.next_hop.port):
                yield (service.name, backend.name), reason
