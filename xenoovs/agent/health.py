"""The health of backends: checks, and the results of probes. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from ipaddress import IPv4Address
from zlib import crc32

from xenoovs.agent.agent_check import UNADVERTISED, Advertised, with_reply
from xenoovs.agent.probe.check import Check, ProbeResult
from xenoovs.dataclass import dataclass, field, replace
from xenoovs.decision.decision import BackendName
from xenoovs.decision.ejection import Ejected, Ejection, KnownShares, decide_ejections, may_be_ejected, will_be_held
from xenoovs.fleet.health import target_of
from xenoovs.model.address import Family, IPAddress
from xenoovs.model.balancer import (
    AgentCheck,
    Backend,
    Balancer,
    DrainMode,
    Health,
    Initial,
    ProbeKind,
    Service,
    probe_port,
)
from xenoovs.model.next_hop import mac_of
from xenoovs.model.packet import own_addresses
from xenoovs.show.snapshot import Override
from xenoovs.store.view import FleetView

# The health of one backend, from the results of its probes. Pure: the time is an argument.


@dataclass(frozen=True, slots=True)
class BackendHealth:
    """The health of one check, from its results. `failed_s`: when the last failed probes in a row were sent, at most
    `fall`. `contradictions`: results in a row against `is_up`. `is_known`: False if the next result decides alone."""

    is_up: bool
    is_known: bool
    since_s: float
    due_s: float
    contradictions: int = 0
    results: int = 0
    failed_s: tuple[float, ...] = ()
    transitions: int = 0
    last: ProbeResult | None = None

    def failing_s(self, fall: int) -> float | None:
        """Return when the first of the last `fall` probes was sent; None unless all of them failed."""
        return self.failed_s[0] if len(self.failed_s) >= fall else None


def initial_health(health: Health, *, remembered_up: bool | None, due_s: float, now_s: float) -> BackendHealth:
    """Return the health before any result. `remembered_up`: the state in the flows of the switch; None if the backend
    is new. A backend in the flows keeps its state, so that a restart of the agent ejects and returns no backend."""
    is_known = remembered_up is not None or health.initial is Initial.DOWN
    is_up = health.initial is not Initial.DOWN if remembered_up is None else remembered_up
    return BackendHealth(is_up, is_known, since_s=now_s, due_s=due_s)


def with_result(
    before: BackendHealth, check: Check, result: ProbeResult, *, sent_s: float, now_s: float
) -> BackendHealth:
    """Return the health after one more result. Only results in a row count: a success cancels all earlier failures."""
    health, is_up, contradictions = check.health, before.is_up, 0
    if not before.is_known:
        is_up = result.ok
    elif result.ok != before.is_up:
        contradictions = before.contradictions + 1
        if contradictions >= (health.rise if result.ok else health.fall):
            is_up, contradictions = result.ok, 0
    is_changed = is_up != before.is_up
    return BackendHealth(
        is_up,
        is_known=True,
        since_s=now_s if is_changed or not before.is_known else before.since_s,
        # After a jump of the clock, as by a suspend, missed probes must not be made up for.
        due_s=max(sent_s + _pause_s(check, before.results, is_contradicted=contradictions > 0), now_s),
        contradictions=contradictions,
        results=before.results + 1,
        failed_s=() if result.ok else (*before.failed_s, sent_s)[-health.fall :],
        transitions=before.transitions + is_changed,
        last=result,
    )


def _pause_s(check: Check, results: int, *, is_contradicted: bool) -> float:
    """Return the seconds from the start of a probe to the start of the next one. `results`: how many there were before.

    Jitter shortens the interval by a part that differs between results, and is the same in every run. After the first
    probe it may be any part, so that backends that were added together are probed at different times.
    """
    health = check.health
    interval_ms = health.fast_interval_ms if is_contradicted else health.interval_ms
    most = 1.0 if health.jitter and not results and not is_contradicted else float(health.jitter)
    chance = crc32(results.to_bytes(8, "big"), check.seed) / (1 << 32) if most else 0.0
    return interval_ms / 1000 * (1 - most * chance)


# Which backends are probed, and how. Services that have the same backend share its check. Pure.


@dataclass(frozen=True, slots=True)
class Checks:
    """The checks of a config, and the backends that depend on each."""

    backends: Mapping[Check, tuple[BackendName, ...]] = field(default_factory=dict)
    by_backend: Mapping[BackendName, Check] = field(default_factory=dict)
    agents: Mapping[Check, tuple[BackendName, ...]] = field(default_factory=dict)
    agent_of: Mapping[BackendName, Check] = field(default_factory=dict)


def checks_of(balancer: Balancer, overrides: Iterable[Override]) -> Checks:
    """Return the checks of all backends that have a weight, by config or operator, or that may still have clients.

    A drained backend is still probed, so that its health is known when the drain ends. A backend in maintenance is not.
    """
    overrides = tuple(overrides)
    by_operator, away = raised_by_operators(overrides), in_maintenance(overrides)
    by_backend, agent_of = dict[BackendName, Check](), dict[BackendName, Check]()
    for service in balancer.services:
        health = None if service.health is None else service.health.of_check
        vip = _resolved_vip(service, balancer)
        for backend in service.backends:
            name = (service.name, backend.name)
            if backend.name in away.get(service.name, ()):
                continue
            is_used = backend.weight or name in by_operator
            if health is not None and (is_used or service.drain.mode is DrainMode.PIN):
                by_backend[name] = check_of(service, backend, health, vip)
            if service.agent_check is not None and is_used and backend.address is not None:
                agent_of[name] = _agent(service.agent_check, backend.address)
    return Checks(by_check(by_backend), by_backend, by_check(agent_of), agent_of)


def by_check(checks: Mapping[BackendName, Check]) -> dict[Check, tuple[BackendName, ...]]:
    found = defaultdict[Check, list[BackendName]](list)
    for name, check in checks.items():
        found[check].append(name)
    return {check: tuple(names) for check, names in found.items()}


def _agent(asked: AgentCheck, address: IPAddress) -> Check:
    health = Health(
        ProbeKind.NONE,
        asked.port,
        asked.interface,
        asked.netns,
        send=asked.send,
        interval_ms=asked.interval_ms,
        fast_interval_ms=asked.interval_ms,
        timeout_ms=asked.timeout_ms,
        # One failure may be a lost reply. The first reply shows that the agent answers again.
        rise=1,
    )
    return Check(health, address, min_change=asked.min_change)


def raised_by_operators(overrides: Iterable[Override]) -> frozenset[BackendName]:
    """Return the backends to which operators gave a weight above 0. They are probed even if the config has weight 0."""
    return frozenset(override.name for override in overrides if override.weight)


def in_maintenance(overrides: Iterable[Override]) -> Ejected:
    """Return the backends, by service, that operators took out of service."""
    return _by_service(each.name for each in overrides if each.is_maintenance)


def _by_service(names: Iterable[BackendName]) -> Ejected:
    found = defaultdict[str, set[str]](set)
    for service, backend in names:
        found[service].add(backend)
    return {service: frozenset(backends) for service, backends in found.items()}


def _resolved_vip(service: Service, balancer: Balancer) -> IPAddress:
    """Return a VIP for ARP to resolve; 0.0.0.0 if there is none, or if the probe is not ARP."""
    is_arp = service.health is not None and service.health.probe is ProbeKind.ARP
    vips = own_addresses(service, Family.IPV4, balancer.services) if is_arp else ()
    return next(iter(vips), IPv4Address(0))


def check_of(service: Service, backend: Backend, health: Health, vip: IPAddress) -> Check:
    """Return the check of a backend. `vip`: used if the backend has no address."""
    health = replace(health, port=probe_port(service, backend))
    is_exec, is_arp = health.probe is ProbeKind.EXEC, health.probe is ProbeKind.ARP
    mac = mac_of(backend.next_hop) if is_arp else None
    return Check(health, backend.address or vip, mac, _environment(backend, health) if is_exec else ())


def _environment(backend: Backend, health: Health) -> tuple[tuple[str, str], ...]:
    mac = None if backend.follows else mac_of(backend.next_hop)
    known = {"XENOOVS_ADDRESS": backend.address, "XENOOVS_MAC": mac, "XENOOVS_PORT": health.port}
    return tuple((name, str(value)) for name, value in known.items() if value is not None)


# The health of all backends of a config, and which of them are ejected. Pure: the time is an argument.


_BATCH, _BATCH_S = 100, 0.1
"""New checks become due in batches of this size, at this interval, because a burst of probes would be answered late."""


@dataclass(frozen=True, slots=True)
class HealthChange:
    """Backends of one check came up or went down; `held` of them keep their clients. `was_held`: until now all did."""

    backends: tuple[BackendName, ...]
    is_up: bool
    reason: str
    held: tuple[BackendName, ...] = ()
    was_held: bool = False


@dataclass(frozen=True, slots=True)
class AdvertisedChange:
    """The agent of a server advertised a change, stopped replying (`problem`), or replies again."""

    backends: tuple[BackendName, ...]
    advertised: Advertised
    is_new: bool
    problem: str = ""


@dataclass(frozen=True, slots=True)
class HealthTracker:
    """The health of backends, from their probes. `ejections`: by service, only of those with backends that are down."""

    checks: Checks = field(default_factory=Checks)
    health: Mapping[Check, BackendHealth] = field(default_factory=dict)
    ejections: Mapping[str, Ejection] = field(default_factory=dict)
    advertised: Mapping[Check, Advertised] = field(default_factory=dict)

    @property
    def is_settled(self) -> bool:
        """Return whether every check has a result."""
        return all(health.results for health in self.health.values())

    @property
    def ejected(self) -> Ejected:
        """Return the backends that get no clients, by service, as last decided."""
        return {name: each.ejected for name, each in self.ejections.items() if each.ejected}

    def advertised_by(self, name: BackendName) -> Advertised | None:
        """Return what the agent of a backend's server advertised; None if nothing."""
        check = self.checks.agent_of.get(name)
        return None if check is None else self.advertised.get(check)

    @property
    def advertised_away(self) -> Ejected:
        """Return the backends, by service, whose servers advertise that they must have no clients."""
        away = (check for check, advertised in self.advertised.items() if advertised.is_away)
        return _by_service(name for check in away for name in self.checks.agents[check])

    def with_checks(self, checks: Checks, known: KnownShares, now_s: float) -> HealthTracker:
        """Return the tracker for the checks of another config. Checks in both keep their health."""
        health, new = dict[Check, BackendHealth](), 0
        for check, names in checks.backends.items():
            if (old := self.health.get(check)) is not None:
                health[check] = old
                continue
            parts, due_s = [known[name] for name in names if name in known], now_s + new // _BATCH * _BATCH_S
            is_up = all(parts) if parts else None
            health[check] = initial_health(check.health, remembered_up=is_up, due_s=due_s, now_s=now_s)
            new += 1
        for check in checks.agents:
            first = initial_health(check.health, remembered_up=None, due_s=now_s, now_s=now_s)
            health[check] = self.health.get(check, first)
        advertised = {check: each for check, each in self.advertised.items() if check in checks.agents}
        return HealthTracker(checks, health, self._ejections(checks, health), advertised)

    def with_result(
        self, check: Check, result: ProbeResult, services: Iterable[Service], *, sent_s: float, now_s: float
    ) -> tuple[HealthTracker, HealthChange | AdvertisedChange | None]:
        """Return the tracker after a result, and the change, if any. `services`: all, with the weights in use."""
        if check.min_change is not None:
            return self._with_reply(check, check.min_change, result, sent_s=sent_s, now_s=now_s)
        before, names = self.health[check], self.checks.backends[check]
        health = with_result(before, check, result, sent_s=sent_s, now_s=now_s)
        tracker = replace(self, health={**self.health, check: health})
        if health.is_up != before.is_up:
            tracker = replace(tracker, ejections=tracker._with_down(names, None if health.is_up else now_s))
            held = () if health.is_up else tuple(tracker._to_be_held(names, services))
            return tracker, HealthChange(names, health.is_up, result.reason, held)
        if health.is_up:
            return tracker, None
        tracker, late = tracker._eject_late(check, services, now_s)
        return tracker, HealthChange(late, is_up=False, reason=result.reason, was_held=True) if late else None

    def _with_reply(
        self, check: Check, min_change: Fraction, result: ProbeResult, *, sent_s: float, now_s: float
    ) -> tuple[HealthTracker, AdvertisedChange | None]:
        """Return the tracker after a request to a server's agent. Its health `is_up` if it replies."""
        advertised = before = self.advertised.get(check, UNADVERTISED)
        if result.ok:
            try:
                advertised = with_reply(before, result.reply, min_change=min_change)
            except ValueError as error:
                result = replace(result, ok=False, reason=f"the reply cannot be used: {error}")
        was, health = self.health[check], with_result(self.health[check], check, result, sent_s=sent_s, now_s=now_s)
        tracker = replace(
            self, health={**self.health, check: health}, advertised={**self.advertised, check: advertised}
        )
        is_new = (advertised.part, advertised.is_away) != (before.part, before.is_away)
        if not is_new and health.is_up == was.is_up:
            return tracker, None
        problem = "" if health.is_up else result.reason
        return tracker, AdvertisedChange(self.checks.agents[check], advertised, is_new, problem)

    def with_decisions(self, services: Iterable[Service], now_s: float) -> HealthTracker:
        """Return the tracker after a new decision about ejections."""
        if not self.ejections:
            return self
        named = {service.name: service for service in services if service.name in self.ejections}
        pairs = ((name, self._decide(named[name], now_s)) for name, each in self.ejections.items() if each.down)
        return replace(self, ejections=dict(pairs))

    def _decide(self, service: Service, now_s: float) -> Ejection:
        before = self.ejections[service.name]
        checks = ((name, self.checks.by_backend[service.name, name]) for name in before.held)
        times = ((name, self.health[check].failing_s(check.health.fall)) for name, check in checks)
        failing = {name: since_s for name, since_s in times if since_s is not None}
        return decide_ejections(before, service, failing, now_s=now_s)

    def _ejections(self, checks: Checks, health: Mapping[Check, BackendHealth]) -> Mapping[str, Ejection]:
        """Return the ejections for other checks. Earlier decisions stay for backends whose check is the same."""
        down = defaultdict[str, dict[str, float]](dict)
        for check, names in checks.backends.items():
            if not health[check].is_up:
                for service, backend in names:
                    down[service][backend] = health[check].since_s
        found = {}
        for service in down.keys() | self.ejections.keys():
            before = self.ejections.get(service, Ejection())
            decided = ((service, name) for name in before.ejected | before.held.keys())
            same = {n[1] for n in decided if checks.by_backend.get(n) == self.checks.by_backend.get(n)}
            held = {name: each for name, each in before.held.items() if name in same}
            found[service] = Ejection(down.get(service, {}), before.ejected & same, held)
        return found

    def _with_down(self, names: Iterable[BackendName], since_s: float | None) -> Mapping[str, Ejection]:
        """Return the ejections after `names` went down at `since_s`, or came up if that is None."""
        found = dict(self.ejections)
        for service, backend in names:
            before = found.get(service, Ejection())
            down = {name: time_s for name, time_s in before.down.items() if name != backend}
            found[service] = before.with_down(down if since_s is None else down | {backend: since_s})
        return found

    def _to_be_held(self, names: tuple[BackendName, ...], services: Iterable[Service]) -> Iterator[BackendName]:
        own = {service for service, _ in names}
        named = {service.name: service for service in services if service.name in own}
        return (each for each in names if will_be_held(self.ejections[each[0]], named[each[0]], each[1]))

    def _eject_late(
        self, check: Check, services: Iterable[Service], now_s: float
    ) -> tuple[HealthTracker, tuple[BackendName, ...]]:
        """Eject the held backends of a check that may be ejected now. Return the tracker and their names."""
        tracker, late = self, list[BackendName]()
        failing_s = self.health[check].failing_s(check.health.fall)
        for service, backend in () if failing_s is None else self.checks.backends[check]:
            if may_be_ejected(tracker.ejections[service], backend, failing_s):
                ejection = tracker._decide(next(one for one in services if one.name == service), now_s)
                tracker = replace(tracker, ejections={**tracker.ejections, service: ejection})
                if backend in ejection.ejected:
                    late.append((service, backend))
        return tracker, tuple(late)


# The health checks of a DPU in a fleet: frequent for the targets whose witness it is, and rare for all others.


SELF_CHECK_MS = 10_000
"""Interval of the probes of a backend by a DPU that is no witness of it: 1,000 DPUs send 100 probes a second."""


@dataclass(frozen=True, slots=True)
class FleetWatches:
    """The targets in a view of the store: those `down` by votes, and those `witnessed` by this DPU."""

    generation: int
    down: frozenset[str] = frozenset()
    witnessed: frozenset[str] = frozenset()

    @classmethod
    def of(cls, view: FleetView, dpu: str) -> FleetWatches:
        watches = view.watches.values()
        return cls(
            view.generation,
            frozenset(watch.target for watch in watches if watch.is_down),
            frozenset(watch.target for watch in watches if dpu in watch.witnesses),
        )


def fleet_checks(balancer: Balancer, watches: FleetWatches, last: tuple[Balancer, Checks] | None = None) -> Checks:
    """Return the checks of all backends with a health check, with a long interval if the DPU is no witness. `last`: the
    config before, with the same witnesses, and its checks, which are reused for unchanged services."""
    before, known = ({service.name: service for service in last[0].services}, last[1]) if last else ({}, Checks())
    checks = dict[BackendName, Check]()
    for service in balancer.services:
        if before.get(service.name) is service:
            names = ((service.name, backend.name) for backend in service.backends)
            checks |= {name: known.by_backend[name] for name in names if name in known.by_backend}
        elif service.health is not None:
            often, vip = service.health.of_check, _resolved_vip(service, balancer)
            seldom = replace(often, interval_ms=SELF_CHECK_MS, fast_interval_ms=SELF_CHECK_MS)
            for backend in service.backends:
                if (target := target_of(service, backend)) is not None:
                    health = often if target in watches.witnessed else seldom
                    checks[service.name, backend.name] = check_of(service, backend, health, vip)
    return known if checks == known.by_backend else Checks(by_check(checks), checks)


def fleet_shares(balancer: Balancer, watches: FleetWatches) -> KnownShares:
    """Return the health by the fleet, the first state of new checks: a new witness changes no vote at once."""
    return {
        (service.name, backend.name): Fraction(target not in watches.down)
        for service in balancer.services
        for backend in service.backends
        if (target := target_of(service, backend)) is not None
    }
