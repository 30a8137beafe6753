"""Builds the snapshots of a running agent from its state, its program and the last offload sample."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Generic, TypeVar

from xenoovs.agent.bridge_watch import moved_by_switch
from xenoovs.agent.health import HealthTracker
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
from xenoovs.model.next_hop import l4_port_of, mac_and_port
from xenoovs.show.snapshot import (
    AgentView,
    BackendState,
    BackendView,
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
    """The input of the views of services, by names of the config. `utc_offset_s`: UTC minus the agent's clock."""

    state: AgentState
    ramps: Ramps = field(default_factory=dict)
    utc_offset_s: float = 0.0
    installed: Mapping[str, Installed] = field(default_factory=dict)
    blocks: Sampled = field(default_factory=dict)
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

    def lazy_snapshot(self, frame: Snapshot, command_options: str) -> LazySnapshot:
        """Return the current state, of which any thread can make a snapshot. `frame`: a snapshot of now without what is
        made from the program and the state of backends. For the event loop of the agent."""
        state, now_s, program, changes = (
            self._store.state,
            self._store.now_s(),
            self._engine.program,
            self._changes.last,
        )
        utc_offset_s = frame.now_s - now_s

        def snapshot() -> Snapshot:
            flows, installed = (0, {}) if program is None else self._installed.of(program)
            blocks = self._blocks(state.offload)
            moment = Moment(state, state.ramps(now_s), utc_offset_s, installed, blocks, changes)
            return replace(
                frame,
                services=service_views(moment),
                flows=flows,
                moved_by_switch=() if program is None else _moved(program, moment),
                overrides=tuple(_with_utc(one, utc_offset_s) for one in state.runtime.overrides),
            )

        return LazySnapshot(
            snapshot, lambda service: blocks_of(program, self._blocks(state.offload), service), command_options
        )

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


# Services and backends.


def service_views(moment: Moment) -> tuple[ServiceView, ...]:
    """Return the services of the config, in its order."""
    state, views = moment.state, []
    overrides, dead_ports = {each.name: each for each in state.runtime.overrides}, state.dead_ports
    unreachable = state.round.unreachable
    for configured, in_use in zip(state.balancer.services, state.in_use.services, strict=True):
        name, installed = configured.name, moment.installed.get(configured.name, _NOT_INSTALLED)
        targets = target_shares(in_use, moment.ramps)
        seen = [one.megaflows for used in in_use.backends for one in moment.blocks.get((name, used.name), ())]
        backends = (
            _backend(
                moment,
                installed,
                (name, used.name),
                used,
                float(one.weight),
                target,
                overrides.get((name, used.name)),
                unreachable.get((name, used.name)),
                is_dead=used.next_hop.port in dead_ports,
            )
            for used, target, one in zip(in_use.backends, targets, configured.backends, strict=True)
        )
        views.append(
            ServiceView(
                name=name,
                service_id=installed.service_id,
                vips=tuple(map(str, configured.claim.vips)),
                backends=tuple(backends),
                megaflows_predicted=installed.megaflows,
                megaflows_seen=sum(seen) if seen else None,
                clients_moved=state.round.moved.get(name, 0.0),
                draining=installed.draining,
                agents_refused=state.refused.get(name, ""),
            )
        )
    return tuple(views)


def _backend(
    moment: Moment,
    installed: Installed,
    name: BackendName,
    used: Backend,
    configured_weight: float,
    target: float,
    override: Override | None,
    unreachable: str | None,
    *,
    is_dead: bool,
) -> BackendView:
    """Return a backend. `installed`: its service on the bridge. `used`: the backend with the weight in use. `target`:
    the share of the clients that it should have. `unreachable`: why it gets no clients although it may have some.
    `is_dead`: whether its port is."""
    state, (service, own) = moment.state, name
    (mac, egress), port = mac_and_port(used.next_hop), used.next_hop.port
    check = state.tracker.checks.by_backend.get(name)
    health = None if check is None else state.tracker.health[check]
    probe = None if health is None else health.last
    if override is not None and (override.is_maintenance or not override.weight):
        shown = BackendState.MAINTENANCE if override.is_maintenance else BackendState.DRAINED
        since_s: float | None = override.since_s
    elif is_dead:
        shown, since_s = BackendState.DOWN, moment.dead_since_s([port])
    elif health is None or probe is None:
        shown, since_s = BackendState.UNCHECKED, None
    else:
        shown = BackendState.UP if health.is_up else BackendState.DOWN
        since_s = health.since_s + moment.utc_offset_s
    reason = state.why_dead(port) if is_dead else "" if probe is None else probe.reason
    ramp, change = moment.ramps.get(name), moment.changes.get(name)
    return BackendView(
        name=own,
        mac=installed.macs.get(own) or mac,
        egress=egress,
        address=None if used.address is None else str(used.address),
        state=shown,
        is_ejected=unreachable is not None or own in state.ejected.get(service, ()),
        weight=configured_weight,
        weight_in_use=float(used.weight if ramp is None else used.weight * ramp),
        target_share=target,
        share=installed.shares.get(own, 0.0),
        flows=installed.flows.get(own, 0),
        blocks=Counter(each.verdict for each in moment.blocks.get(name, ())),
        traffic=state.offload.traffic.get(name),
        rate=state.offload.rates.get(name),
        ramp=None if ramp is None else float(ramp),
        since_s=since_s,
        reason=reason if unreachable is None else unreachable,
        probe_latency_s=None if probe is None else probe.latency_s,
        transitions=0 if health is None or probe is None else health.transitions,
        counted=state.offload.counted.get(name),
        is_backup=used.is_backup,
        changes=0 if change is None else change.number,
        last_change="" if change is None else change.reason,
        last_change_s=None if change is None else change.time_s,
        agent=_advertised(state.tracker, name),
        l4_port=l4_port_of(used.next_hop),
    )


def _advertised(tracker: HealthTracker, name: BackendName) -> AgentView | None:
    """Return what the agent of a backend's server advertises."""
    advertised = tracker.advertised_by(name)
    if advertised is None:
        return None
    health = tracker.health[tracker.checks.agent_of[name]]
    problem = "" if health.is_up or health.last is None else health.last.reason
    return AgentView(advertised.state, float(advertised.part), advertised.is_away, advertised.reply, problem)


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
