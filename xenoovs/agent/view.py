"""Makes snapshots of a running agent: services, backends and blocks from what its parts know."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from xenoovs.agent.health import BackendHealth, HealthTracker, Ramps
from xenoovs.agent.snapshot import (
    BackendState,
    BackendView,
    BlockView,
    Counted,
    Glance,
    Override,
    Rate,
    ServiceView,
    Snapshot,
    Traffic,
)
from xenoovs.agent.state import AgentState
from xenoovs.compile.encoding import block_of, key_match
from xenoovs.compile.plan import hardware_entries
from xenoovs.compile.program import BlockFlow, Program, ServiceProgram
from xenoovs.datapath.megaflow import Verdict
from xenoovs.decision.decision import BackendName
from xenoovs.model.balancer import Backend, Service
from xenoovs.model.next_hop import mac_and_port
from xenoovs.verify.findings import BlockOffload, OffloadFindings

if TYPE_CHECKING:
    from xenoovs.agent.daemon import Agent


# What one look at the hardware found, and how much has passed since the first one.


@dataclass(frozen=True, slots=True)
class Sighting:
    """One look.

    findings: verdicts and megaflows as they are; packets and bytes in it are those since the look before. None: the
              datapath is elsewhere, and only the counters of flows were read.
    traffic:  since the first look, although megaflows come and go. counted: likewise, by flows.
    rates:    since the look before; empty at the first one.
    seen_s:   when, UTC.
    """

    findings: OffloadFindings | None
    seen_s: float
    traffic: Mapping[BackendName, Traffic] = field(default_factory=dict)
    rates: Mapping[BackendName, Rate] = field(default_factory=dict)
    counted: Mapping[BackendName, Counted] = field(default_factory=dict)


# Counts of what is on the bridge, made once for a program, and of what a look found, made once for a look. Pure.


V = TypeVar("V")
R = TypeVar("R")


class Kept(Generic[V, R]):
    """What was made of a value last, for as long as it is asked for that very value; from any thread."""

    def __init__(self, make: Callable[[V], R]) -> None:
        self._make = make
        self._last: tuple[V, R] | None = None

    def of(self, value: V) -> R:
        """Made now, or before."""
        last = self._last
        if last is None or last[0] is not value:
            last = self._last = value, self._make(value)
        return last[1]


@dataclass(frozen=True, slots=True)
class Installed:
    """One service on the bridge. By name of the backend: `shares` of the address space, 0..1; `flows`: its blocks.

    megaflows: as many as it takes once all blocks have had traffic. draining: blocks that keep open connections.
    """

    service_id: int
    shares: Mapping[str, float]
    flows: Mapping[str, int]
    macs: Mapping[str, str]
    megaflows: int
    draining: int


@dataclass(frozen=True, slots=True)
class Found:
    """What a look found. verdicts: how many blocks of a backend have which; megaflows: by service."""

    verdicts: Mapping[BackendName, Mapping[Verdict, int]] = field(default_factory=dict)
    megaflows: Mapping[str, int] = field(default_factory=dict)


def installed_of(program: Program) -> dict[str, Installed]:
    """By name of the service."""
    return {made.service.name: _installed(made) for made in program.services}


def found_of(findings: OffloadFindings) -> Found:
    verdicts, megaflows = defaultdict[BackendName, Counter[Verdict]](Counter), Counter[str]()
    for seen in findings.blocks:
        verdicts[seen.block.service, seen.block.backend][seen.verdict] += 1
        megaflows[seen.block.service] += seen.megaflows
    return Found({names: dict(counts) for names, counts in verdicts.items()}, dict(megaflows))


def _installed(made: ServiceProgram) -> Installed:
    backends = made.service.backends
    return Installed(
        service_id=made.service_id,
        shares={one.name: float(share) for one, share in zip(backends, made.shares, strict=True)},
        flows=Counter(block.backend.name for block in made.blocks),
        macs={backend.name: mac_and_port(backend.next_hop)[0] for backend in backends},
        megaflows=hardware_entries(made),
        draining=len(made.moves),
    )


# The blocks of one service, with where they lie and what the last look found of them. Pure.


def block_views(program: ServiceProgram, found: Iterable[BlockOffload]) -> tuple[BlockView, ...]:
    """In the order of the key space. `found`: of this service, empty while nobody has looked."""
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
    """Start and size in the smallest parts of the key space that there are."""
    found, width = block_of(block.rule.value, block.rule.mask, program.service.key), parts.bit_length() - 1
    return found.start(width), found.size(width)


def _worst(found: Iterable[BlockOffload]) -> dict[tuple[int, int], Verdict]:
    """By value and mask: where a service has several entries, a block has one verdict for each."""
    worst: dict[tuple[int, int], Verdict] = {}
    for seen in found:
        place = seen.block.key.value, seen.block.key.mask
        if place not in worst or seen.verdict.badness > worst[place].badness:
            worst[place] = seen.verdict
    return worst


@dataclass(frozen=True, slots=True)
class Seen:
    """What a snapshot is made of, by names of the config.

    Attributes:
        state: The state of the agent.
        ramps: How far slow starts have come.
        ahead_s: What the time of day is ahead of the agent's clock.
        installed: What the last round left on the bridge.
        offload: The last look at the hardware.
        found: What it found.
        unreachable: Why backends get no clients that could have some, by name.
        moved: Share of clients moved so far, by service.
    """

    state: AgentState
    ramps: Ramps = field(default_factory=dict)
    ahead_s: float = 0.0
    installed: Mapping[str, Installed] = field(default_factory=dict)
    offload: Sighting | None = None
    found: Found = field(default_factory=Found)
    unreachable: Mapping[BackendName, str] = field(default_factory=dict)
    moved: Mapping[str, float] = field(default_factory=dict)


def service_views(seen: Seen) -> tuple[ServiceView, ...]:
    """The services of the config, in its order."""
    state = seen.state
    overrides = {(override.service, override.backend): override for override in state.runtime.overrides}
    return tuple(
        _service(seen, _Of(service, in_use, seen.installed.get(service.name), overrides))
        for service, in_use in zip(state.balancer.services, state.in_use.services, strict=True)
    )


@dataclass(frozen=True, slots=True)
class _Of:
    """One service: as configured, with the weights in use, and on the bridge; and the overrides of all."""

    configured: Service
    in_use: Service
    installed: Installed | None
    overrides: Mapping[BackendName, Override]


def _service(seen: Seen, of: _Of) -> ServiceView:
    name, installed, weights = of.configured.name, of.installed, _weights(of.in_use, seen.ramps)
    return ServiceView(
        name=name,
        service_id=0 if installed is None else installed.service_id,
        vips=tuple(str(vip) for vip in of.configured.claim.vips),
        backends=tuple(
            _backend(seen, of, _InUse(backend, used, weights))
            for backend, used in zip(of.configured.backends, of.in_use.backends, strict=True)
        ),
        megaflows_predicted=None if installed is None else installed.megaflows,
        megaflows_seen=seen.found.megaflows.get(name),
        clients_moved=seen.moved.get(name, 0.0),
        draining=0 if installed is None else installed.draining,
    )


@dataclass(frozen=True, slots=True)
class _Weights:
    """What the weight of a backend is compared with.

    all: of all backends with the weights in use; settled: of those that are in no slow start. eased: share, 0..1, that
    those in one have by now.
    """

    all: float
    settled: float
    eased: float

    def share(self, backend: Backend, ramp: Fraction | None) -> float:
        """0..1, what a backend is to have now: in a slow start a part of its own, the rest of which others have."""
        if ramp is not None and self.settled:
            return float(backend.weight * ramp) / self.all
        if self.settled:
            return float(backend.weight) / self.settled * (1 - self.eased)
        return float(backend.weight) / self.all if self.all else 0.0


def _weights(service: Service, ramps: Ramps) -> _Weights:
    whole = float(sum(service.weights, Fraction(0)))
    slow = [(b.weight, part) for b in service.backends if (part := ramps.get((service.name, b.name))) is not None]
    eased = sum(float(weight * part) for weight, part in slow) / whole if whole else 0.0
    return _Weights(whole, whole - sum(float(weight) for weight, _ in slow), eased)


@dataclass(frozen=True, slots=True)
class _InUse:
    """One backend: as configured, with the weight in use, and what that is compared with."""

    configured: Backend
    used: Backend
    weights: _Weights


def _backend(seen: Seen, of: _Of, backend: _InUse) -> BackendView:
    used, installed = backend.used, of.installed
    names = of.configured.name, used.name
    health, override, ramp = _health(seen.state.tracker, names), of.overrides.get(names), seen.ramps.get(names)
    last, since_s = None if health is None else health.last, None if health is None else health.since_s + seen.ahead_s
    if is_drained := override is not None and not override.weight:
        since_s = override.since_s
    weight = used.weight if ramp is None else used.weight * ramp
    known = None if installed is None else installed.macs.get(used.name)
    mac, port = mac_and_port(used.next_hop)
    return BackendView(
        name=used.name,
        mac=known or mac,
        egress=port,
        address=None if used.address is None else str(used.address),
        state=_state(health, is_drained=is_drained),
        is_out=used.name in seen.state.ejected.get(names[0], ()) or names in seen.unreachable,
        weight=float(backend.configured.weight),
        weight_in_use=float(weight),
        share_wanted=backend.weights.share(used, ramp),
        share_installed=0.0 if installed is None else installed.shares.get(used.name, 0.0),
        flows=0 if installed is None else installed.flows.get(used.name, 0),
        blocks=seen.found.verdicts.get(names, {}),
        traffic=None if seen.offload is None else seen.offload.traffic.get(names),
        counted=None if seen.offload is None else seen.offload.counted.get(names),
        rate=None if seen.offload is None else seen.offload.rates.get(names),
        ramp=None if ramp is None else float(ramp),
        since_s=since_s,
        reason=seen.unreachable.get(names, "" if last is None else last.reason),
        probe_latency_s=None if last is None else last.latency_s,
        transitions=0 if health is None else health.transitions,
    )


def _health(tracker: HealthTracker, name: BackendName) -> BackendHealth | None:
    """Return what the probes say of a backend; None before their first result."""
    check = tracker.checks.by_backend.get(name)
    health = None if check is None else tracker.health[check]
    return None if health is None or health.last is None else health


def _state(health: BackendHealth | None, *, is_drained: bool) -> BackendState:
    if is_drained:
        return BackendState.DRAINED
    if health is None:
        return BackendState.UNCHECKED
    return BackendState.UP if health.is_up else BackendState.DOWN


# A look at a running agent: what its parts know, put together.


class Looker:
    """Looks at one agent. What depends only on its config, program or last look is made once for each of these."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._flows: Kept[Program, int] = Kept(lambda program: len(program.flows))
        self._installed: Kept[Program, dict[str, Installed]] = Kept(installed_of)
        self._found: Kept[OffloadFindings, Found] = Kept(found_of)
        self._by_service: Kept[OffloadFindings, Mapping[str, list[BlockOffload]]] = Kept(_by_service)

    def glance(self) -> Glance:
        """Within the event loop of the agent, for which thousands of backends would take too long."""
        agent, now_s = self._agent, self._agent.clock.now_s()
        ramps, moved = agent.state.ramps(now_s), dict(agent.report.moved)
        seen = Seen(
            agent.state,
            ramps,
            ahead_s=time.time() - now_s,
            offload=agent.offload,
            moved=moved,
            unreachable=agent.report.unreachable,
        )
        facts, program = _facts(agent), agent.engine.program
        return Glance(partial(self._snapshot, facts, seen, program), partial(self._blocks, seen, program))

    def _snapshot(self, facts: Snapshot, seen: Seen, program: Program | None) -> Snapshot:
        findings = _findings(seen)
        seen = replace(
            seen,
            installed={} if program is None else self._installed.of(program),
            found=Found() if findings is None else self._found.of(findings),
        )
        flows = 0 if program is None else self._flows.of(program)
        return replace(facts, services=service_views(seen), flows=flows)

    def _blocks(self, seen: Seen, program: Program | None, service: str) -> tuple[BlockView, ...]:
        findings, services = _findings(seen), () if program is None else program.services
        made = next((made for made in services if made.service.name == service), None)
        if made is None:
            return ()
        return block_views(made, () if findings is None else self._by_service.of(findings).get(service, ()))


def _findings(seen: Seen) -> OffloadFindings | None:
    return None if seen.offload is None else seen.offload.findings


def _facts(agent: Agent) -> Snapshot:
    config, report = agent.config, agent.report
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
        foreign=report.foreign,
        reloads=agent.reloader.reloads,
        last_round_s=report.last_round_s,
        confirm_by_s=agent.reloader.confirm_by_s,
        verified_s=None if agent.offload is None else agent.offload.seen_s,
        overrides=agent.state.runtime.overrides,
        events=agent.events.since(0),
        held=report.held,
        ports=agent.ports(),
        ports_problem=agent.ports_problem(),
        probes_late_s=agent.scheduler.late_s,
        candidate=config.newer,
        goes_back_to=agent.reloader.goes_back_to,
    )


def _by_service(findings: OffloadFindings) -> Mapping[str, list[BlockOffload]]:
    found = defaultdict[str, list["BlockOffload"]](list)
    for seen in findings.blocks:
        found[seen.block.service].append(seen)
    return found
