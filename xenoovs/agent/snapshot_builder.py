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
from xenoovs.agent.health import BackendHealth, HealthTracker
from xenoovs.agent.offload import OffloadSample
from xenoovs.agent.snapshot import (
    AgentView,
    BackendState,
    BackendView,
    BlockView,
    LazySnapshot,
    Override,
    ServiceView,
    Snapshot,
)
from xenoovs.agent.state import AgentState
from xenoovs.compile.encoding import block_of, key_match
from xenoovs.compile.plan import hardware_entries
from xenoovs.compile.program import BlockFlow, Program, ServiceProgram
from xenoovs.datapath.megaflow import Verdict
from xenoovs.decision.decision import BackendName
from xenoovs.decision.slow_start import Ramps
from xenoovs.model.balancer import Backend, Service
from xenoovs.model.next_hop import l4_port_of, mac_and_port
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
        service_id: Its id in the flows.
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
        state: The state of the agent.
        ramps: Progress of slow starts.
        utc_offset_s: UTC less the agent's clock.
        installed: What the last round left on the bridge, by service.
        sample: The last offload sample.
        counts: Counts over it.
        unreachable: Why backends are without clients that could have some, by name.
        moved: Share of clients moved so far, by service.
        changes: The last changes of backends.
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
    config, report, reloader = agent.config, agent.report, agent.reloader
    return Snapshot(
        bridge=config.balancer.uplinks.label,
        config_path=str(config.path),
        config_digest=config.digest,
        started_s=agent.started_s,
        now_s=time.time(),
        services=(),
        is_paused=agent.state.runtime.is_paused,
        config_problem=str(config.problem or ""),
        last_error=report.last_error,
        problems=tuple(problem.text for problem in report.problems),
        rounds=report.rounds,
        flow_mods=report.flow_mods,
        reverted=report.foreign,
        reloads=reloader.reloads,
        last_round_s=report.last_round_s,
        confirm_by_s=reloader.confirm_by_s,
        sampled_s=None if agent.offload is None else agent.offload.sampled_s,
        overrides=tuple(_with_utc(one, time.time() - agent.clock.now_s()) for one in agent.state.runtime.overrides),
        events=agent.events.since(0),
        pending_flow_mods=report.held,
        ports=agent.ports(),
        ports_problem=agent.ports_problem(),
        candidate=config.newer,
        rolls_back_to=reloader.goes_back_to,
        probes_late_s=agent.scheduler.late_s,
        announcements=agent.announcements(),
        remotes=agent.remotes(),
        are_moves_paused=agent.state.runtime.are_moves_paused,
        fleet=agent.fleet(),
        not_ready=agent.ready.reason(),
    )


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


def _service(
    moment: Moment, configured: Service, in_use: Service, overrides: Mapping[BackendName, Override]
) -> ServiceView:
    name, installed = configured.name, moment.installed.get(configured.name, Installed())
    targets = target_shares(in_use, moment.ramps)
    return ServiceView(
        name=name,
        service_id=installed.service_id,
        vips=tuple(str(vip) for vip in configured.claim.vips),
        backends=tuple(
            _backend(moment, (name, used.name), used, installed, target, overrides.get((name, used.name)), one.weight)
            for used, target, one in zip(in_use.backends, targets, configured.backends, strict=True)
        ),
        megaflows_predicted=installed.megaflows,
        megaflows_seen=moment.counts.megaflows.get(name),
        clients_moved=moment.moved.get(name, 0.0),
        draining=installed.draining,
        agents_refused=moment.state.refused.get(name, ""),
    )


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


def _backend(
    moment: Moment,
    name: BackendName,
    used: Backend,
    installed: Installed,
    target: float,
    override: Override | None,
    configured_weight: Fraction,
) -> BackendView:
    health, sample, ramp = _health(moment.state.tracker, name), moment.sample, moment.ramps.get(name)
    last = None if health is None else health.last
    since_s = None if health is None else health.since_s + moment.utc_offset_s
    if override is not None and (override.is_maintenance or not override.weight):
        since_s = override.since_s
    mac, port = mac_and_port(used.next_hop)
    changed = moment.changes.get(name, LastChange(0.0, "", 0))
    return BackendView(
        name=used.name,
        mac=installed.macs.get(used.name) or mac,
        egress=port,
        address=None if used.address is None else str(used.address),
        l4_port=l4_port_of(used.next_hop),
        state=_state(health, override),
        is_backup=used.is_backup,
        is_ejected=used.name in moment.state.ejected.get(name[0], ()) or name in moment.unreachable,
        weight=float(configured_weight),
        weight_in_use=float(used.weight if ramp is None else used.weight * ramp),
        target_share=target,
        share=installed.shares.get(used.name, 0.0),
        flows=installed.flows.get(used.name, 0),
        blocks=moment.counts.verdicts.get(name, {}),
        traffic=sample.traffic.get(name),
        counted=sample.counted.get(name),
        rate=sample.rates.get(name),
        ramp=None if ramp is None else float(ramp),
        since_s=since_s,
        reason=moment.unreachable.get(name, "" if last is None else last.reason),
        probe_latency_s=None if last is None else last.latency_s,
        transitions=0 if health is None else health.transitions,
        changes=changed.number,
        last_change=changed.reason,
        last_change_s=changed.time_s or None,
        agent=_agent(moment.state.tracker, name),
    )


def _agent(tracker: HealthTracker, name: BackendName) -> AgentView | None:
    advertised = tracker.advertised_by(name)
    if advertised is None:
        return None
    health = tracker.health[tracker.checks.agent_of[name]]
    problem = "" if health.is_up or health.last is None else health.last.reason
    return AgentView(advertised.state, float(advertised.part), advertised.is_away, advertised.reply, problem)


def _health(tracker: HealthTracker, name: BackendName) -> BackendHealth | None:
    """Return the health of a backend from its probes; None before their first result."""
    check = tracker.checks.by_backend.get(name)
    health = None if check is None else tracker.health[check]
    return None if health is None or health.last is None else health


def _state(health: BackendHealth | None, override: Override | None) -> BackendState:
    if override is not None and override.is_maintenance:
        return BackendState.MAINTENANCE
    if override is not None and not override.weight:
        return BackendState.DRAINED
    if health is None:
        return BackendState.UNCHECKED
    return BackendState.UP if health.is_up else BackendState.DOWN


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
