"""Builds the snapshots of a running agent from its state, its program and the last offload sample."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Generic, TypeVar

from xenoovs.agent.bridge_watch import moved_by_switch
from xenoovs.agent.health import BackendHealth
from xenoovs.agent.report import BackendChanges, LastChange
from xenoovs.agent.state import AgentState, OffloadSample
from xenoovs.agent.state_store import StateStore
from xenoovs.compile.encoding import block_of, key_match
from xenoovs.compile.plan import hardware_entries
from xenoovs.compile.program import Program, ServiceProgram
from xenoovs.dataclass import dataclass, field, replace
from xenoovs.datapath.database import live_ports
from xenoovs.decision.decision import BackendName
from xenoovs.decision.ejection import Ramps
from xenoovs.engine.engine import Engine
from xenoovs.judge.findings import BlockOffload, OffloadFindings
from xenoovs.model.balancer import Backend, Service
from xenoovs.model.next_hop import mac_and_port
from xenoovs.show.column import build
from xenoovs.show.snapshot import (
    AgentView,
    BackendState,
    BlockView,
    LazySnapshot,
    Override,
    ServiceView,
    Snapshot,
    SwitchMove,
)

V = TypeVar("V")
R = TypeVar("R")


class Memo(Generic[V, R]):
    """Caches the result of a function for its last argument. Any thread may use it."""

    def __init__(self, make: Callable[[V], R]) -> None:
        self._make = make
        self._last: tuple[V, R] | None = None

    def of(self, value: V) -> R:
        """Return the result for a value, from the cache if it is the last one."""
        last = self._last
        if last is None or last[0] is not value:
            last = self._last = value, self._make(value)
        return last[1]


@dataclass(frozen=True, slots=True)
class Installed:
    """One service on the bridge. By name of the backend: `shares` of the key space, 0..1; `flows`: number of blocks.
    `megaflows`: their number if every block has traffic; None if the service is not on the bridge. `draining`: number
    of blocks that keep open connections."""

    service_id: int = 0
    shares: Mapping[str, float] = field(default_factory=dict)
    flows: Mapping[str, int] = field(default_factory=dict)
    macs: Mapping[str, str] = field(default_factory=dict)
    megaflows: int | None = None
    draining: int = 0


_NOT_INSTALLED = Installed()
Sampled = Mapping[BackendName, list[BlockOffload]]
"""The blocks of each backend in an offload sample."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The input of a snapshot, by names of the config. `utc_offset_s`: UTC minus the agent's clock."""

    state: AgentState
    ramps: Ramps = field(default_factory=dict)
    utc_offset_s: float = 0.0
    installed: Mapping[str, Installed] = field(default_factory=dict)
    blocks: Sampled = field(default_factory=dict)
    dead_ports: frozenset[str] = frozenset()
    changes: Mapping[BackendName, LastChange] = field(default_factory=dict)

    def dead_since_s(self, ports: Collection[str]) -> float | None:
        """Return when the last of these dead ports went down, UTC; None if that is not known."""
        died = [at for port in ports if (at := self.state.dead_since_s.get(port)) is not None]
        return max(died) + self.utc_offset_s if died and len(died) == len(ports) else None


class SnapshotBuilder:
    """Builds snapshots of one agent. It caches parts that depend only on the program, or only on an offload sample."""

    def __init__(self, store: StateStore, engine: Engine, changes: BackendChanges) -> None:
        self._store, self._engine, self._changes = store, engine, changes
        self._installed: Memo[Program, tuple[int, dict[str, Installed]]] = Memo(
            lambda program: (len(program.flows), installed_services(program))
        )
        self._sampled: Memo[OffloadFindings, Sampled] = Memo(sampled_blocks)

    def lazy_snapshot(self, agent: object) -> LazySnapshot:
        """Return the current state, of which any thread can make a snapshot. For the event loop of the agent."""
        state, now_s, utc_s = self._store.state, self._store.now_s(), time.time()
        moment = Moment(
            state,
            state.ramps(now_s),
            utc_s - now_s,
            dead_ports=state.dead_ports,
            changes=self._changes.last,
        )
        overrides = tuple(_with_utc(one, moment.utc_offset_s) for one in state.runtime.overrides)
        frame, program = build(Snapshot, agent, now_s=utc_s, services=(), overrides=overrides), self._engine.program

        def snapshot() -> Snapshot:
            flows, installed = (0, {}) if program is None else self._installed.of(program)
            services = service_views(replace(moment, installed=installed, blocks=self._blocks(state.offload)))
            moved = () if program is None else _moved(program, moment)
            return replace(frame, services=services, flows=flows, moved_by_switch=moved)

        return LazySnapshot(snapshot, lambda service: blocks_of(program, self._blocks(state.offload), service))

    def _blocks(self, sample: OffloadSample) -> Sampled:
        return {} if sample.findings is None else self._sampled.of(sample.findings)


def _moved(program: Program, moment: Moment) -> tuple[SwitchMove, ...]:
    """Return the moves that groups of the switch make because ports are dead; empty if the ports are not known."""
    uplinks, state = program.balancer.uplinks, moment.state
    ports = state.ports.of(uplinks.bridge) if uplinks.buckets else None
    if ports is None:
        return ()
    return tuple(moved_by_switch(program, live_ports(ports.values()) - state.ports_down, moment.dead_since_s))


def _with_utc(override: Override, utc_offset_s: float) -> Override:
    return override if override.until_s is None else replace(override, until_s=override.until_s + utc_offset_s)


def installed_services(program: Program) -> dict[str, Installed]:
    """Return the services of a program, by name."""
    return {
        made.service.name: Installed(
            service_id=made.service_id,
            shares={each.name: float(share) for each, share in zip(made.service.backends, made.shares, strict=True)},
            flows=Counter(block.backend.name for block in made.blocks),
            macs={each.name: mac_and_port(each.next_hop)[0] for each in made.service.backends},
            megaflows=hardware_entries(made),
            draining=len(made.moves),
        )
        for made in program.services
    }


def sampled_blocks(findings: OffloadFindings) -> Sampled:
    found = defaultdict[BackendName, list[BlockOffload]](list)
    for each in findings.blocks:
        found[each.block.service, each.block.backend].append(each)
    return found


# Services and backends: the attributes that the columns of their views read.


def service_views(moment: Moment) -> tuple[ServiceView, ...]:
    """Return the services of the config, in its order."""
    state = moment.state
    overrides = {each.name: each for each in state.runtime.overrides}
    services = zip(state.balancer.services, state.in_use.services, strict=True)
    return tuple(build(ServiceView, ServiceMoment(moment, *each, overrides)) for each in services)


@dataclass(frozen=True, slots=True)
class ServiceMoment:
    """One service at one moment. `overrides`: what operators have set, of all services."""

    moment: Moment
    configured: Service
    in_use: Service
    overrides: Mapping[BackendName, Override]

    @property
    def installed(self) -> Installed:
        return self.moment.installed.get(self.configured.name, _NOT_INSTALLED)

    @property
    def backends(self) -> Iterator[BackendMoment]:
        targets, name = target_shares(self.in_use, self.moment.ramps), self.configured.name
        for used, target, one in zip(self.in_use.backends, targets, self.configured.backends, strict=True):
            override = self.overrides.get((name, used.name))
            yield BackendMoment(self.moment, self.installed, (name, used.name), one, used, target, override)

    @property
    def megaflows_seen(self) -> int | None:
        """Return the number of megaflows of its blocks in the last sample; None if the sample does not have them."""
        blocks, name = self.moment.blocks, self.configured.name
        found = [one.megaflows for backend in self.in_use.backends for one in blocks.get((name, backend.name), ())]
        return sum(found) if found else None


def target_shares(service: Service, ramps: Ramps) -> tuple[float, ...]:
    """Return the share of the clients that each backend should have now. Backends in a slow start have a part of their
    share, and the others have the rest."""
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
    """One backend at one moment. `installed`: its service on the bridge. `used`: the backend with the weight in use.
    `target`: the share of the clients that it should have, 0..1."""

    moment: Moment
    installed: Installed
    name: BackendName
    configured: Backend
    used: Backend
    target: float
    override: Override | None

    @property
    def health(self) -> BackendHealth | None:
        """Return the health by probes; None before the first result."""
        tracker = self.moment.state.tracker
        check = tracker.checks.by_backend.get(self.name)
        health = None if check is None else tracker.health[check]
        return None if health is None or health.last is None else health

    @property
    def dead_port(self) -> str | None:
        """Return the port of the backend if it is dead, else None."""
        return port if (port := self.used.next_hop.port) in self.moment.dead_ports else None

    @property
    def state(self) -> BackendState:
        """Return the state by probes and port, or by the override of an operator."""
        override, health = self.override, self.health
        if override is not None and override.is_maintenance:
            return BackendState.MAINTENANCE
        if override is not None and not override.weight:
            return BackendState.DRAINED
        if self.dead_port is not None:
            return BackendState.DOWN
        if health is None:
            return BackendState.UNCHECKED
        return BackendState.UP if health.is_up else BackendState.DOWN

    @property
    def since_s(self) -> float | None:
        """Return when `state` last changed, UTC; None if that is not known."""
        if self.override is not None and (self.override.is_maintenance or not self.override.weight):
            return self.override.since_s
        if self.dead_port is not None:
            return self.moment.dead_since_s([self.dead_port])
        health = self.health
        return None if health is None else health.since_s + self.moment.utc_offset_s

    @property
    def reason(self) -> str:
        """Return why the backend gets no clients although it may have some; otherwise the result of its last probe."""
        health = self.health
        last = "" if health is None or health.last is None else health.last.reason
        last = last if self.dead_port is None else self.moment.state.why_dead(self.dead_port)
        return self.moment.state.round.unreachable.get(self.name, last)

    @property
    def is_ejected(self) -> bool:
        ejected = self.moment.state.ejected.get(self.name[0], ())
        return self.used.name in ejected or self.name in self.moment.state.round.unreachable

    @property
    def ramp(self) -> Fraction | None:
        return self.moment.ramps.get(self.name)

    @property
    def agent(self) -> AgentView | None:
        """Return what the agent of its server advertises."""
        tracker = self.moment.state.tracker
        advertised = tracker.advertised_by(self.name)
        if advertised is None:
            return None
        health = tracker.health[tracker.checks.agent_of[self.name]]
        problem = "" if health.is_up or health.last is None else health.last.reason
        return AgentView(advertised.state, float(advertised.part), advertised.is_away, advertised.reply, problem)


# Blocks.


def blocks_of(program: Program | None, sampled: Sampled, service: str) -> tuple[BlockView, ...]:
    """Return the blocks of a service, by its name, with their verdicts; empty if the bridge does not have it."""
    made = (one for one in (() if program is None else program.services) if one.service.name == service)
    found = (one for names, some in sampled.items() if names[0] == service for one in some)
    return next((block_views(one, found) for one in made), ())


def block_views(program: ServiceProgram, found: Iterable[BlockOffload]) -> tuple[BlockView, ...]:
    """Return the blocks of a service in the order of the key space, with the verdicts of an offload sample."""
    service = program.service
    # A block has a verdict for each entry of its service; the worst comes last.
    by_badness = sorted(found, key=lambda each: each.verdict.badness)
    worst = {(each.block.key.value, each.block.key.mask): each.verdict for each in by_badness}
    width = max((block.rule.depth for block in program.blocks), default=0)
    views = []
    for block in {block.rule: block for block in program.blocks}.values():
        part = block_of(block.rule.value, block.rule.mask, service.key)
        start, size = (in_parts / (1 << width) for in_parts in (part.start(width), part.size(width)))
        own = key_match(service.key.field, service.claim.served_families[0], block.rule.value, block.rule.mask)
        verdict, name = worst.get((own.value, own.mask)), own.field.ovs_name
        views.append(BlockView(own.value, own.mask, start, size, block.backend.name, name, verdict))
    return tuple(sorted(views, key=lambda view: view.start))
