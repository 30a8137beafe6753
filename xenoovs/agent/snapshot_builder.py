"""Builds the snapshots of a running agent from its state, its program and the last offload sample."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from xenoovs.agent.changes import LastChange
from xenoovs.agent.health import BackendHealth
from xenoovs.agent.offload import OffloadSample
from xenoovs.agent.state import AgentState
from xenoovs.compile.encoding import block_of, key_match
from xenoovs.compile.plan import hardware_entries
from xenoovs.compile.program import BlockFlow, Program, ServiceProgram
from xenoovs.datapath.megaflow import Verdict
from xenoovs.decision.decision import BackendName
from xenoovs.decision.slow_start import Ramps
from xenoovs.model.balancer import Backend, Service
from xenoovs.model.next_hop import mac_and_port
from xenoovs.show.agent import (
    AgentView,
    BackendState,
    BackendView,
    BlockView,
    LazySnapshot,
    Override,
    ServiceView,
    Snapshot,
)
from xenoovs.show.column import build
from xenoovs.verify.findings import BlockOffload, OffloadFindings

if TYPE_CHECKING:
    from xenoovs.agent.daemon import Agent

V = TypeVar("V")
R = TypeVar("R")


class Memo(Generic[V, R]):
    """Caches the result of a function for the last value it was called with; from any thread."""

    def __init__(self, make: Callable[[V], R]) -> None:
        self._make = make
        self._last: tuple[V, R] | None = None

    def of(self, value: V) -> R:
        """Return the result for the value, computed now or before."""
        last = self._last
        if last is None or last[0] is not value:
            last = self._last = value, self._make(value)
        return last[1]


@dataclass(frozen=True, slots=True)
class Installed:
    """One service on the bridge, with values by name of the backend.

    Attributes:
        shares: Shares of the key space, 0..1.
        flows: Numbers of blocks.
        macs: Destination MACs.
        megaflows: Number of megaflows once every block has had traffic; None: the service is not on the bridge.
        draining: Number of blocks that keep open connections.
    """

    service_id: int = 0
    shares: Mapping[str, float] = field(default_factory=dict)
    flows: Mapping[str, int] = field(default_factory=dict)
    macs: Mapping[str, str] = field(default_factory=dict)
    megaflows: int | None = None
    draining: int = 0


@dataclass(frozen=True, slots=True)
class SampleCounts:
    """Counts over an offload sample.

    Attributes:
        verdicts: Numbers of blocks of a backend, by verdict.
        megaflows: Numbers of megaflows, by service.
    """

    verdicts: Mapping[BackendName, Mapping[Verdict, int]] = field(default_factory=dict)
    megaflows: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Moment:
    """What a snapshot is built from, by names of the config.

    Attributes:
        utc_offset_s: UTC less the agent's clock.
        installed: What the last round left on the bridge, by service.
        unreachable: Why backends are without clients that could have some, by name.
        moved: Share of clients moved so far, by service.
    """

    state: AgentState
    ramps: Ramps = field(default_factory=dict)
    utc_offset_s: float = 0.0
    installed: Mapping[str, Installed] = field(default_factory=dict)
    sample: OffloadSample = field(default_factory=OffloadSample)
    counts: SampleCounts = field(default_factory=SampleCounts)
    unreachable: Mapping[BackendName, str] = field(default_factory=dict)
    moved: Mapping[str, float] = field(default_factory=dict)
    changes: Mapping[BackendName, LastChange] = field(default_factory=dict)


class SnapshotBuilder:
    """Builds snapshots of one agent. What depends on its program or on a sample alone is computed once for each."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._flows: Memo[Program, int] = Memo(lambda program: len(program.flows))
        self._installed: Memo[Program, dict[str, Installed]] = Memo(installed_services)
        self._counts: Memo[OffloadFindings, SampleCounts] = Memo(sample_counts)
        self._by_service: Memo[OffloadFindings, Mapping[str, list[BlockOffload]]] = Memo(_by_service)

    def lazy_snapshot(self) -> LazySnapshot:
        """Return this moment of the agent, within its event loop; the snapshot of it is made in any thread."""
        agent, now_s = self._agent, self._agent.clock.now_s()
        moment = Moment(
            agent.state,
            agent.state.ramps(now_s),
            time.time() - now_s,
            sample=agent.offload or OffloadSample(),
            unreachable=agent.report.unreachable,
            moved=dict(agent.report.moved),
            changes=agent.changes.last,
        )
        frame, program = _without_services(agent), agent.engine.program
        return LazySnapshot(
            partial(self._snapshot, frame, moment, program), partial(self._blocks, moment.sample, program)
        )

    def _snapshot(self, frame: Snapshot, moment: Moment, program: Program | None) -> Snapshot:
        if program is not None:
            moment = replace(moment, installed=self._installed.of(program))
        if moment.sample.findings is not None:
            moment = replace(moment, counts=self._counts.of(moment.sample.findings))
        flows = 0 if program is None else self._flows.of(program)
        return replace(frame, services=service_views(moment), flows=flows)

    def _blocks(self, sample: OffloadSample, program: Program | None, service: str) -> tuple[BlockView, ...]:
        services = () if program is None else program.services
        made = next((made for made in services if made.service.name == service), None)
        if made is None:
            return ()
        found = () if sample.findings is None else self._by_service.of(sample.findings).get(service, ())
        return block_views(made, found)


def _without_services(agent: Agent) -> Snapshot:
    offset_s = time.time() - agent.clock.now_s()
    overrides = tuple(_with_utc(one, offset_s) for one in agent.state.runtime.overrides)
    return build(Snapshot, agent, now_s=time.time(), services=(), overrides=overrides)


def _with_utc(override: Override, utc_offset_s: float) -> Override:
    return override if override.until_s is None else replace(override, until_s=override.until_s + utc_offset_s)


# What depends on the program alone, or on a sample alone.


def installed_services(program: Program) -> dict[str, Installed]:
    return {made.service.name: _installed(made) for made in program.services}


def _installed(made: ServiceProgram) -> Installed:
    backends = made.service.backends
    return Installed(
        service_id=made.service_id,
        shares={backend.name: float(share) for backend, share in zip(backends, made.shares, strict=True)},
        flows=Counter(block.backend.name for block in made.blocks),
        macs={backend.name: mac_and_port(backend.next_hop)[0] for backend in backends},
        megaflows=hardware_entries(made),
        draining=len(made.moves),
    )


def sample_counts(findings: OffloadFindings) -> SampleCounts:
    verdicts, megaflows = defaultdict[BackendName, Counter[Verdict]](Counter), Counter[str]()
    for each in findings.blocks:
        verdicts[each.block.service, each.block.backend][each.verdict] += 1
        megaflows[each.block.service] += each.megaflows
    return SampleCounts({names: dict(counts) for names, counts in verdicts.items()}, dict(megaflows))


def _by_service(findings: OffloadFindings) -> Mapping[str, list[BlockOffload]]:
    found = defaultdict[str, list["BlockOffload"]](list)
    for each in findings.blocks:
        found[each.block.service].append(each)
    return found


# Services and backends.


def service_views(moment: Moment) -> tuple[ServiceView, ...]:
    """Return the services of the config, in its order."""
    state = moment.state
    overrides = {(each.service, each.backend): each for each in state.runtime.overrides}
    return tuple(
        _service(moment, service, in_use, overrides)
        for service, in_use in zip(state.balancer.services, state.in_use.services, strict=True)
    )


@dataclass(frozen=True, slots=True)
class ServiceMoment:
    """One service at one moment: what the columns of `ServiceView` read."""

    moment: Moment
    configured: Service
    in_use: Service

    @property
    def installed(self) -> Installed:
        return self.moment.installed.get(self.configured.name, _NOT_INSTALLED)


_NOT_INSTALLED = Installed()


def _service(
    moment: Moment, configured: Service, in_use: Service, overrides: Mapping[BackendName, Override]
) -> ServiceView:
    service = ServiceMoment(moment, configured, in_use)
    targets, name, installed = target_shares(in_use, moment.ramps), configured.name, service.installed
    backends = (
        BackendMoment(moment, (name, used.name), one, used, installed, target, overrides.get((name, used.name)))
        for used, target, one in zip(in_use.backends, targets, configured.backends, strict=True)
    )
    return build(ServiceView, service, backends=tuple(build(BackendView, each) for each in backends))


def target_shares(service: Service, ramps: Ramps) -> tuple[float, ...]:
    """Return the share of the clients that each backend should have now.

    A backend in a slow start should have a part of its share. The backends that are in no slow start should have the
    rest.
    """
    weights, whole = service.weights, float(sum(service.weights))
    parts = [ramps.get((service.name, backend.name)) for backend in service.backends]
    slow = [(float(weight), float(part)) for weight, part in zip(weights, parts, strict=True) if part is not None]
    settled = whole - sum(weight for weight, _ in slow)
    if not settled or not whole:
        return tuple(float(weight) / whole if whole else 0.0 for weight in weights)
    rest = 1 - sum(weight * part for weight, part in slow) / whole
    return tuple(
        float(weight) / settled * rest if part is None else float(weight * part) / whole
        for weight, part in zip(weights, parts, strict=True)
    )


@dataclass(frozen=True, slots=True)
class BackendMoment:
    """One backend at one moment: what the columns of `BackendView` read.

    Attributes:
        name: Names of its service and its own.
        used: With the weight in use.
        installed: Its service on the bridge.
        target: Share of the clients that it should have, 0..1.
        override: What an operator has set for it.
    """

    moment: Moment
    name: BackendName
    configured: Backend
    used: Backend
    installed: Installed
    target: float
    override: Override | None

    @property
    def health(self) -> BackendHealth | None:
        """Its health by its probes; None before their first result."""
        tracker = self.moment.state.tracker
        check = tracker.checks.by_backend.get(self.name)
        health = None if check is None else tracker.health[check]
        return None if health is None or health.last is None else health

    @property
    def state(self) -> BackendState:
        """Its health, or what an operator has set."""
        override, health = self.override, self.health
        if override is not None and override.is_maintenance:
            return BackendState.MAINTENANCE
        if override is not None and not override.weight:
            return BackendState.DRAINED
        if health is None:
            return BackendState.UNCHECKED
        return BackendState.UP if health.is_up else BackendState.DOWN

    @property
    def since_s(self) -> float | None:
        """When `state` last changed, UTC."""
        if self.override is not None and (self.override.is_maintenance or not self.override.weight):
            return self.override.since_s
        health = self.health
        return None if health is None else health.since_s + self.moment.utc_offset_s

    @property
    def reason(self) -> str:
        """Why it is without clients that could have some; otherwise the result of its last probe."""
        health = self.health
        last = "" if health is None or health.last is None else health.last.reason
        return self.moment.unreachable.get(self.name, last)

    @property
    def is_ejected(self) -> bool:
        ejected = self.moment.state.ejected.get(self.name[0], ())
        return self.used.name in ejected or self.name in self.moment.unreachable

    @property
    def ramp(self) -> Fraction | None:
        return self.moment.ramps.get(self.name)

    @property
    def changed(self) -> LastChange | None:
        return self.moment.changes.get(self.name)

    @property
    def agent(self) -> AgentView | None:
        """What the agent of its server advertises."""
        tracker = self.moment.state.tracker
        advertised = tracker.advertised_by(self.name)
        if advertised is None:
            return None
        health = tracker.health[tracker.checks.agent_of[self.name]]
        problem = "" if health.is_up or health.last is None else health.last.reason
        return AgentView(advertised.state, float(advertised.part), advertised.is_away, advertised.reply, problem)


# Blocks.


def block_views(program: ServiceProgram, found: Iterable[BlockOffload]) -> tuple[BlockView, ...]:
    """Return the blocks of a service in the order of the key space, with the verdicts of an offload sample."""
    worst, service = _worst(found), program.service
    parts = 1 << max((block.rule.depth for block in program.blocks), default=0)
    views = []
    for block in {block.rule: block for block in program.blocks}.values():
        start, size = _interval(block, program, parts)
        own = key_match(service.key.field, service.claim.served_families[0], block.rule.value, block.rule.mask)
        verdict, name = worst.get((own.value, own.mask)), own.field.ovs_name
        views.append(BlockView(own.value, own.mask, start / parts, size / parts, block.backend.name, name, verdict))
    return tuple(sorted(views, key=lambda view: view.start))


def _interval(block: BlockFlow, program: ServiceProgram, parts: int) -> tuple[int, int]:
    """Return start and size, in the smallest parts of the key space that there are."""
    found, width = block_of(block.rule.value, block.rule.mask, program.service.key), parts.bit_length() - 1
    return found.start(width), found.size(width)


def _worst(found: Iterable[BlockOffload]) -> dict[tuple[int, int], Verdict]:
    """Return the worst verdict by value and mask: a block has one verdict for each entry of its service."""
    worst: dict[tuple[int, int], Verdict] = {}
    for each in found:
        key = each.block.key.value, each.block.key.mask
        if key not in worst or each.verdict.badness > worst[key].badness:
            worst[key] = each.verdict
    return worst
