"""The agent's state: one frozen value, and one function that returns the next value. Pure.

`step` takes an event and returns effects, which modules with a clock, threads and sockets carry out. A trial of another
config calls `step` and drops the effects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING

from xenoovs.agent.health import (
    AdvertisedChange,
    FleetWatches,
    HealthChange,
    HealthTracker,
    checks_of,
    fleet_checks,
    fleet_shares,
    in_maintenance,
    raised_by_operators,
)
from xenoovs.agent.probe.check import Check, ProbeResult
from xenoovs.dataclass import dataclass, field, replace
from xenoovs.datapath.database import PortState, live_ports
from xenoovs.decision.decide import require_decidable
from xenoovs.decision.decision import BackendName, Blocks, DesiredState, Stored, with_weights
from xenoovs.decision.ejection import (
    Ejected,
    KnownShares,
    Ramps,
    SlowStarts,
    held_backends,
    names_behind,
    ramps,
    update_slow_starts,
    with_away,
    with_dead_ports,
)
from xenoovs.errors import BudgetUnreachable, CompileError, ToleranceUnreachable, assert_never
from xenoovs.model.balancer import Balancer, Service
from xenoovs.show.snapshot import AnnouncementView, Counted, FleetMembership, Insertion, Override, Rate, Traffic

if TYPE_CHECKING:
    from xenoovs.compile.program import Program
    from xenoovs.engine.change import Problem
    from xenoovs.judge.findings import OffloadFindings

IMPOSSIBLE = CompileError, ToleranceUnreachable, BudgetUnreachable
"""The exceptions that are raised if no flows can have the weights."""


def with_overrides(balancer: Balancer, overrides: Iterable[Override]) -> Balancer:
    """Return the balancer with the weights that operators set. Overrides of unknown backends are ignored."""
    return with_weights(balancer, {each.name: each.weight for each in overrides})


def require_weights(configured: Balancer, in_use: Balancer) -> None:
    """Raise CompileError if a service with weights in the config has none in use."""
    for service, used in zip(configured.services, in_use.services, strict=True):
        if used is not service and any(service.weights) and not any(used.weights):
            raise CompileError(
                service=service.name,
                reason="every backend with a weight is drained at run time; end a drain (`xenoovs reset`) "
                "or give another one a weight",
            )


@dataclass(frozen=True, slots=True)
class Runtime:
    """What operators set at run time: at most one override for each backend. `pins`: the paths on which all blocks of a
    remote (`rack7/b`) stay, whatever their state is, by remote."""

    overrides: tuple[Override, ...] = ()
    is_paused: bool = False
    is_withdrawn: bool = False
    pins: Mapping[str, str] = field(default_factory=dict)
    are_moves_paused: bool = False

    @property
    def by_name(self) -> dict[BackendName, Override]:
        return {each.name: each for each in self.overrides}


# Facts that tasks observe in parallel to the rounds. Each type of fact has one attribute of the state.


@dataclass(frozen=True, slots=True)
class BridgePorts:
    """The ports of bridges, by name of bridge and port; None if never known. `problem`: why they are unknown now."""

    bridges: Mapping[str, Mapping[str, PortState]] | None = None
    problem: str = ""

    def of(self, bridge: str) -> Mapping[str, PortState] | None:
        """Return the ports of a bridge by their names; None if they are not known now."""
        return None if self.bridges is None or self.problem else self.bridges.get(bridge, {})


@dataclass(frozen=True, slots=True)
class OffloadSample:
    """The result of one sample of hardware offload, and totals since the first sample.

    Attributes:
        findings: Verdicts and megaflows, with packets and bytes since the sample before. None if megaflows cannot be
            read, so that the counters of flows were read instead.
        sampled_s: When the sample began, UTC; None if there was no sample yet.
        traffic: Totals by megaflows.
        rates: Since the sample before; empty at the first sample.
        counted: Totals by flows.
    """

    findings: OffloadFindings | None = None
    sampled_s: float | None = None
    traffic: Mapping[BackendName, Traffic] = field(default_factory=dict)
    rates: Mapping[BackendName, Rate] = field(default_factory=dict)
    counted: Mapping[BackendName, Counted] = field(default_factory=dict)
    insertion: Insertion | None = None


@dataclass(frozen=True, slots=True)
class Announcements:
    """The VIPs that the config announces, in its order, and the state of each announcement."""

    views: tuple[AnnouncementView, ...] = ()


@dataclass(frozen=True, slots=True)
class RoundFacts:
    """The results of the rounds so far, also of one that failed or is late.

    Attributes:
        program: What the last successful round left on the bridge; None if there was none yet.
        problems: Parts of the bridge that cannot be reconciled now; all others are.
        without: Ports that flows of the last successful round cannot name.
        error: Why the last round failed, or is late; empty after one that succeeded.
        failing_since_s: Since when rounds fail; None if the last one succeeded, or is only late.
        held: Flow-mods that a pause holds back.
        last_s: When a round last succeeded, UTC.
        rounds: Number of rounds that changed the bridge, since the start of the agent.
        foreign: Number of flows of external changes that were reverted.
        moved: Share of clients moved, summed over all changes, by service of the bridge.
    """

    program: Program | None = None
    desired: DesiredState | None = None
    problems: tuple[Problem, ...] = ()
    without: frozenset[str] = frozenset()
    error: str = ""
    failing_since_s: float | None = None
    held: int = 0
    last_s: float | None = None
    rounds: int = 0
    flow_mods: int = 0
    foreign: int = 0
    moved: Mapping[str, float] = field(default_factory=dict)

    @property
    def unreachable(self) -> dict[BackendName, str]:
        """Return briefly why backends get no clients although they may have some. `problems` has the whole texts."""
        return {name: problem.brief for problem in self.problems for name in problem.backends}

    @property
    def is_known(self) -> bool:
        """Return whether the agent has read the flows of the bridge since its start."""
        return self.program is not None and (self.last_s is not None or bool(self.held))

    @property
    def is_right(self) -> bool:
        """Return whether the last round left the bridge as desired."""
        return not (self.error or self.problems or self.held) and self.last_s is not None


_PART = {
    BridgePorts: "ports",
    OffloadSample: "offload",
    FleetMembership: "fleet",
    Announcements: "vips",
    RoundFacts: "round",
}
"""The attribute of the state for each type of fact. A new fact is an event."""


@dataclass(frozen=True, slots=True)
class AgentState:
    """All inputs of the desired state of the bridge, and all facts that tasks have observed.

    Attributes:
        in_use: The config with the weights in use.
        known: State stored on the bridge when the agent began to follow the config.
        ejected: The backends that get no clients, by health and ports, as of the last `Tick`.
        slow_starts: The slow starts as of the last `Tick`.
        dead_since_s: When ports went down, by name, without those that were down when ports were first known.
        live_since_s: When ports that had been down came up again, by name.
        refused: Why the advertised weights of a service cannot be installed and are ignored, by service.
        placed: The paths of the blocks of each remote that adaptive routing has moved, by the name of its service.
        without_maintenance: The services of `in_use`, without the weights of backends in maintenance; empty if no
            backend is in maintenance.
        watches: The health of backends by the votes of the fleet; None if the agent belongs to no fleet.
        fleet: None if the agent belongs to no fleet.
    """

    balancer: Balancer
    in_use: Balancer
    runtime: Runtime = field(default_factory=Runtime)
    known: KnownShares = field(default_factory=dict)
    tracker: HealthTracker = field(default_factory=HealthTracker)
    ports_down: frozenset[str] = frozenset()
    dead_since_s: Mapping[str, float] = field(default_factory=dict)
    live_since_s: Mapping[str, float] = field(default_factory=dict)
    ejected: Ejected = field(default_factory=dict)
    slow_starts: SlowStarts = field(default_factory=SlowStarts)
    refused: Mapping[str, str] = field(default_factory=dict)
    without_maintenance: tuple[Service, ...] = ()
    placed: Mapping[str, Blocks] = field(default_factory=dict)
    stored: Stored = field(default_factory=dict)
    watches: FleetWatches | None = None
    ports: BridgePorts = field(default_factory=BridgePorts)
    round: RoundFacts = field(default_factory=RoundFacts)
    offload: OffloadSample = field(default_factory=OffloadSample)
    fleet: FleetMembership | None = None
    vips: Announcements = field(default_factory=Announcements)

    @property
    def is_settled(self) -> bool:
        """Return whether enough is known for the first round. In a fleet the store decides, without probes."""
        return self.watches is not None or self.tracker.is_settled

    @property
    def judged(self) -> tuple[Service, ...]:
        """The services that `max_down` and dead ports are judged by: without the weights of backends in maintenance."""
        return self.without_maintenance or self.in_use.services

    @property
    def known_ports(self) -> Mapping[str, PortState]:
        """The ports of the bridge as last known; empty if they never were, or if the bridge does not exist."""
        return (self.ports.bridges or {}).get(self.balancer.uplinks.bridge, {})

    @property
    def dead_ports(self) -> frozenset[str]:
        """The ports that carry nothing: without link, or with BFD down. With failover in the switch, the ports that its
        groups have left, by the links in its database."""
        known, balancer = self.known_ports, self.balancer
        if balancer.uplinks.buckets and known:
            return self.ports_down | ({*balancer.egress_ports} - live_ports(known.values()))
        silent = (name for name, port in known.items() if port.is_silent)
        return self.ports_down | (balancer.bfd_ports.intersection(silent) if balancer.switch_tunnels else frozenset())

    def why_dead(self, port: str) -> str:
        """Return why a port is in `dead_ports`."""
        found = self.known_ports.get(port)
        if port in self.ports_down or (found is not None and found.link_up is False):
            return f"port {port} has no link"
        if found is None or found.ofport is None:
            return f"port {port} is not on the bridge"
        return f"BFD of port {port} is down"

    @property
    def held(self) -> Ejected:
        """The backends, by service, that are down and keep their clients."""
        return held_backends(self.tracker.ejections, self.ejected)

    def is_due(self, now_s: float) -> bool:
        """Return whether an override ends now."""
        return any(_is_over(each, now_s) for each in self.runtime.overrides)

    def ramps(self, now_s: float) -> Ramps:
        """Return the progress of slow starts."""
        return ramps(self.slow_starts, self.in_use, now_s=now_s)


@dataclass(frozen=True, slots=True)
class ConfigFollowed:
    """The agent follows a config from now on, with these overrides. `known`: state stored on the bridge."""

    balancer: Balancer
    overrides: tuple[Override, ...] = ()
    known: KnownShares = field(default_factory=dict)
    stored: Stored = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Probed:
    """The result of a probe that was sent at `sent_s`. It is ignored if the config no longer has the check."""

    check: Check
    result: ProbeResult
    sent_s: float


@dataclass(frozen=True, slots=True)
class AdvertisedRefused:
    """The weights that agents of servers advertise cannot be installed. `reasons`: by service."""

    reasons: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class BlocksPlaced:
    """The blocks of a remote belong to these paths from now on. `blocks`: None if they stay where they are."""

    service: str
    blocks: Blocks | None


@dataclass(frozen=True, slots=True)
class Tick:
    """A round begins. Backends that went down since the last one are ejected together. `ports_down`: the ports of the
    bridge that have no link now."""

    ports_down: frozenset[str] = frozenset()


Event = (
    ConfigFollowed
    | FleetWatches
    | Runtime
    | Probed
    | AdvertisedRefused
    | BlocksPlaced
    | Tick
    | BridgePorts
    | OffloadSample
    | FleetMembership
    | Announcements
    | RoundFacts
)


@dataclass(frozen=True, slots=True)
class SamplesAsked:
    """A client shows samples of hardware offload: take them more often for some seconds. No event of the state."""


Effect = Check | HealthChange | AdvertisedChange | Override
"""A check has another time at which its next probe is due; the state has it. The time of an override is over; one
without an end stays, because its service would have no weight without it."""


def step(state: AgentState, event: Event, now_s: float) -> tuple[AgentState, tuple[Effect, ...]]:
    """Return the state after an event, and the effects to carry out."""
    match event:
        case Probed():
            return _probed(state, event, now_s)
        case BridgePorts() | OffloadSample() | FleetMembership() | Announcements() | RoundFacts():
            seen = replace(state, **{_PART[type(event)]: event})  # type: ignore[arg-type]  # by type
            return (_dated(state, seen, now_s) if isinstance(event, BridgePorts) else seen), ()
        case Tick(ports_down):
            expired, effects = _expired(_dated(state, replace(state, ports_down=ports_down), now_s), now_s)
            return _ticked(expired, now_s), effects
        case AdvertisedRefused(reasons):
            return _weighted(replace(state, refused=reasons)), ()
        case BlocksPlaced(service, blocks):
            others = {name: placed for name, placed in state.placed.items() if name != service}
            return replace(state, placed=others if blocks is None else others | {service: blocks}), ()
        case FleetWatches():
            if state.watches is not None and state.watches.witnessed == event.witnessed:
                return replace(state, watches=event), ()
            return _probing(replace(state, watches=event), {}, now_s, before=state)
        case Runtime():
            return _runtime_changed(state, event, now_s)
        case ConfigFollowed(balancer, overrides, known, stored):
            followed = replace(state, balancer=balancer, known=known, stored=stored)
            used = _with_runtime(followed, replace(state.runtime, overrides=overrides))
            return _probing(used, known, now_s, before=state)
        case _:
            assert_never(event)


def after(state: AgentState, *events: Event, now_s: float) -> AgentState:
    """Return the state after some events, as a trial: their effects are not carried out."""
    for event in events:
        state, _ = step(state, event, now_s)
    return state


def desired_state(state: AgentState, now_s: float) -> DesiredState:
    """Return the desired state of the bridge, as of the last `Tick`. Raises CompileError if a service has no weight."""
    if state.in_use is not state.balancer:
        require_weights(state.balancer, state.in_use)
    return DesiredState(state.in_use, state.ejected, state.ramps(now_s), state.placed, state.stored, state.held)


def _dated(before: AgentState, state: AgentState, now_s: float) -> AgentState:
    """Return the state with the times at which ports went down and came up."""
    dead, known = state.dead_ports, before.dead_since_s
    if dead == before.dead_ports:
        return state
    died = dict.fromkeys(dead - before.dead_ports, now_s) if before.known_ports else {}
    revived = {**before.live_since_s, **dict.fromkeys(before.dead_ports - dead, now_s)}
    used = {*state.balancer.egress_ports}
    return replace(
        state,
        dead_since_s={port: at for port, at in (died | {**known}).items() if port in dead},
        live_since_s={port: at for port, at in revived.items() if port in used},
    )


def _probed(state: AgentState, event: Probed, now_s: float) -> tuple[AgentState, tuple[Effect, ...]]:
    if event.check not in state.tracker.health:
        return state, ()
    late = [port for port, at_s in state.live_since_s.items() if event.sent_s < at_s and not event.result.ok]
    names = state.tracker.checks.backends.get(event.check, ()) if late else ()
    if names and names_behind(state.balancer.services, late).issuperset(names):
        # The port was dead after the probe was sent, so the result shows nothing about the server.
        again = replace(state.tracker.health[event.check], due_s=now_s)
        health = {**state.tracker.health, event.check: again}
        return replace(state, tracker=replace(state.tracker, health=health)), (event.check,)
    tracker, change = state.tracker.with_result(
        event.check, event.result, state.judged, sent_s=event.sent_s, now_s=now_s
    )
    state = replace(state, tracker=tracker)
    if change is None:
        return state, (event.check,)
    if isinstance(change, AdvertisedChange) and change.is_new:
        services = {service for service, _ in change.backends}
        refused = {name: reason for name, reason in state.refused.items() if name not in services}
        state = _weighted(replace(state, refused=refused))
    return state, (event.check, change)


def _ticked(state: AgentState, now_s: float) -> AgentState:
    tracker = state.tracker.with_decisions(state.judged, now_s)
    if state.watches is not None:
        # A backend that only this DPU cannot reach keeps its clients.
        stored = {name: each.ejected for name, each in state.stored.items() if each.ejected}
        return replace(state, tracker=tracker, ejected=stored)
    ejected = with_dead_ports(tracker.ejected, state.judged, state.dead_ports)
    ejected = dict(with_away(ejected, state.judged, tracker.advertised_away))
    for service, names in in_maintenance(state.runtime.overrides).items():
        ejected[service] = ejected.get(service, frozenset()) | names
    starts = update_slow_starts(state.slow_starts, state.in_use, ejected, known=state.known, now_s=now_s)
    return replace(state, tracker=tracker, ejected=ejected, slow_starts=starts)


def _runtime_changed(state: AgentState, runtime: Runtime, now_s: float) -> tuple[AgentState, tuple[Effect, ...]]:
    before, used = state.runtime.overrides, _with_runtime(state, runtime)
    changes = ((kind(before), kind(runtime.overrides)) for kind in (raised_by_operators, in_maintenance))
    is_same = all(old == new for old, new in changes)
    return (used, ()) if is_same else _probing(used, {}, now_s, before=state)


def _expired(state: AgentState, now_s: float) -> tuple[AgentState, tuple[Effect, ...]]:
    """End the overrides whose time is over. If a service would have no weight left, they stay without an end."""
    if not state.is_due(now_s):
        return state, ()
    overrides, expired = state.runtime.overrides, list[Override]()
    for service in {each.service for each in overrides if _is_over(each, now_s)}:
        due = [each for each in overrides if each.service == service and _is_over(each, now_s)]
        remaining = tuple(each for each in overrides if each not in due)
        try:
            require_weights(state.balancer, with_overrides(state.balancer, remaining))
        except CompileError:
            remaining = tuple(replace(each, until_s=None) if each in due else each for each in overrides)
            due = [replace(each, until_s=None) for each in due]
        expired += due
        overrides = remaining
    ended, effects = _runtime_changed(state, replace(state.runtime, overrides=overrides), now_s)
    return ended, (*expired, *effects)


def _is_over(override: Override, now_s: float) -> bool:
    return override.until_s is not None and override.until_s <= now_s


def impossible_advertised(state: AgentState) -> dict[str, str]:
    """Return the services with advertised weights for which no flows can have the weights in use, with the reason."""
    reasons = dict[str, str]()
    for service in state.in_use.services:
        if service.agent_check is not None and service.name not in state.refused:
            try:
                require_decidable(replace(state.in_use, services=(service,)))
            except IMPOSSIBLE as problem:
                reasons[service.name] = str(problem)
    return reasons


def _with_runtime(state: AgentState, runtime: Runtime) -> AgentState:
    return _weighted(replace(state, runtime=runtime, refused={}))


def _probing(
    state: AgentState, known: KnownShares, now_s: float, *, before: AgentState
) -> tuple[AgentState, tuple[Check, ...]]:
    """Begin to probe the backends of config and overrides. `known`: state of new backends, stored on the bridge."""
    if state.watches is None:
        checks = checks_of(state.balancer, state.runtime.overrides)
    else:
        is_same_witness = before.watches is not None and before.watches.witnessed == state.watches.witnessed
        last = (before.balancer, before.tracker.checks) if is_same_witness else None
        checks = fleet_checks(state.balancer, state.watches, last)
        if checks is state.tracker.checks:
            return state, ()
        known = fleet_shares(state.balancer, state.watches)
    tracker = state.tracker.with_checks(checks, known, now_s)
    new = (check for check in (*checks.backends, *checks.agents) if check not in before.tracker.health)
    return replace(state, tracker=tracker), tuple(new)


def _weighted(state: AgentState) -> AgentState:
    """Return the state with the weights of config, operators and servers in use; the same objects if none changed."""
    in_use = with_overrides(state.balancer, state.runtime.overrides)
    if state.tracker.advertised:
        chosen = dict[BackendName, Fraction]()
        for service in in_use.services:
            if service.agent_check is not None and service.name not in state.refused:
                chosen |= _advertised_weights(service, state.tracker)
        in_use = with_weights(in_use, chosen)
    state = state if in_use == state.in_use else replace(state, in_use=in_use)
    away = [each.name for each in state.runtime.overrides if each.is_maintenance]
    others = with_weights(state.in_use, dict.fromkeys(away, Fraction(0))).services if away else ()
    return state if others == state.without_maintenance else replace(state, without_maintenance=others)


def _advertised_weights(service: Service, tracker: HealthTracker) -> dict[BackendName, Fraction]:
    """Return the weights of a service's backends, each multiplied by what the agent of its server advertises. Empty if
    no weight would be left: then the agents are ignored, because they are more likely at fault."""
    weights = dict[BackendName, Fraction]()
    for backend in service.backends:
        advertised = tracker.advertised_by(name := (service.name, backend.name))
        weights[name] = backend.weight * (1 if advertised is None else advertised.part)
    return weights if any(weights.values()) else {}
