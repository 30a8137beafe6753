"""The agent's state: one frozen value, and one function that makes the next one. Pure.

Events go into `step`, and effects come out, for modules with a clock, threads and sockets. A trial of another config is
`step` on the same value, whose result is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from xenoovs.agent.health import (
    Check,
    Ejected,
    HealthChange,
    HealthTracker,
    KnownShares,
    Ramps,
    Signal,
    SlowStarts,
    checks_of,
    raised_by_operators,
    ramps,
    update_slow_starts,
    with_dead_ports,
)
from xenoovs.agent.probe.target import ProbeResult
from xenoovs.agent.snapshot import Override, Runtime
from xenoovs.decision.decision import BackendName, DesiredState
from xenoovs.errors import CompileError, assert_never
from xenoovs.model.balancer import Balancer, Service

WeightPolicy = Callable[[Service, Mapping[str, Signal]], Mapping[str, Fraction]]
"""Gives the weights of a service's backends, by their names, from the service with the weights of config and operators,
and from the signals of those backends that answered a probe. Must depend on nothing else, and leave one weight."""


def configured_weights(service: Service, _signals: Mapping[str, Signal]) -> Mapping[str, Fraction]:
    """The default policy: the weights of config and operators."""
    return {backend.name: backend.weight for backend in service.backends}


def with_overrides(balancer: Balancer, overrides: Iterable[Override]) -> Balancer:
    """Return the balancer with the weights that operators set. Overrides of unknown backends do nothing."""
    return with_weights(balancer, {(each.service, each.backend): each.weight for each in overrides})


def with_weights(balancer: Balancer, weights: Mapping[BackendName, Fraction]) -> Balancer:
    """Return the balancer with these weights; the very same services where no weight changes."""
    if not weights:
        return balancer
    return replace(balancer, services=tuple(_with_weights(service, weights) for service in balancer.services))


def require_weights(configured: Balancer, in_use: Balancer) -> None:
    """Raise CompileError if a service with weights in the config has none in use."""
    for service, used in zip(configured.services, in_use.services, strict=True):
        if used is not service and any(service.weights) and not any(used.weights):
            raise CompileError(
                service=service.name,
                reason="every backend with a weight is drained at run time; undrain one (`xenoovs undrain`) "
                "or give another one a weight",
            )


def _with_weights(service: Service, weights: Mapping[BackendName, Fraction]) -> Service:
    named = ((backend, weights.get((service.name, backend.name), backend.weight)) for backend in service.backends)
    backends = tuple(b if weight == b.weight else replace(b, weight=weight) for b, weight in named)
    return service if backends == service.backends else replace(service, backends=backends)


@dataclass(frozen=True, slots=True)
class AgentState:
    """All that decides what the bridge should be.

    Attributes:
        balancer: The config in use.
        in_use: The config with the weights in use.
        runtime: What operators set at run time.
        known: What the bridge remembered when the config was followed.
        tracker: The health of backends.
        ports_down: The ports of the bridge without link.
        ejected: The backends that get no clients, by health and ports, as of the last `Tick`.
        slow_starts: The slow starts as of the last `Tick`.
        policy: Makes the weights in use.
    """

    balancer: Balancer
    in_use: Balancer
    runtime: Runtime = field(default_factory=Runtime)
    known: KnownShares = field(default_factory=dict)
    tracker: HealthTracker = field(default_factory=HealthTracker)
    ports_down: frozenset[str] = frozenset()
    ejected: Ejected = field(default_factory=dict)
    slow_starts: SlowStarts = field(default_factory=SlowStarts)
    policy: WeightPolicy = configured_weights

    @property
    def held(self) -> dict[str, frozenset[str]]:
        """The backends, by service, that are down and keep their clients, by `max_down` or `on_all_down`."""
        down = ((name, frozenset(ejection.down)) for name, ejection in self.tracker.ejections.items())
        held = ((name, names - self.ejected.get(name, frozenset())) for name, names in down)
        return {name: names for name, names in held if names}

    def ramps(self, now_s: float) -> Ramps:
        """Return how far slow starts have come."""
        return ramps(self.slow_starts, self.in_use, now_s=now_s)


@dataclass(frozen=True, slots=True)
class ConfigFollowed:
    """The agent follows a config, with these overrides. `known`: what the bridge remembers."""

    balancer: Balancer
    overrides: tuple[Override, ...] = ()
    known: KnownShares = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RuntimeChanged:
    """An operator set a weight, paused or resumed."""

    runtime: Runtime


@dataclass(frozen=True, slots=True)
class PortsChanged:
    """These ports of the bridge have no link now."""

    down: frozenset[str]


@dataclass(frozen=True, slots=True)
class Probed:
    """A probe that was sent at `sent_s` came to a result. It is ignored if the config no longer has the check."""

    check: Check
    result: ProbeResult
    sent_s: float


@dataclass(frozen=True, slots=True)
class Tick:
    """A round begins. Backends that went down since the last one are ejected together."""


Event = ConfigFollowed | RuntimeChanged | PortsChanged | Probed | Tick


@dataclass(frozen=True, slots=True)
class ProbeAt:
    """The next probe of a check is due at this time."""

    check: Check
    due_s: float


@dataclass(frozen=True, slots=True)
class SaveRuntime:
    """Overrides or the pause have changed, and have to survive a restart."""

    runtime: Runtime


Effect = ProbeAt | HealthChange | SaveRuntime


def step(state: AgentState, event: Event, now_s: float) -> tuple[AgentState, tuple[Effect, ...]]:
    """Return the state after an event, and the effects to carry out."""
    match event:
        case Probed():
            return _probed(state, event, now_s)
        case Tick():
            return _ticked(state, now_s), ()
        case PortsChanged(down):
            return replace(state, ports_down=down), ()
        case RuntimeChanged(runtime):
            used, saves = _with_runtime(state, runtime)
            is_same = raised_by_operators(runtime.overrides) == raised_by_operators(state.runtime.overrides)
            probed, probes = (used, ()) if is_same else _probing(used, {}, now_s)
            return probed, (*probes, *saves)
        case ConfigFollowed(balancer, overrides, known):
            followed = replace(state, balancer=balancer, known=known)
            used, saves = _with_runtime(followed, replace(state.runtime, overrides=overrides))
            probed, probes = _probing(used, known, now_s)
            return probed, (*probes, *saves)
        case _:
            assert_never(event)


def after(state: AgentState, *events: Event, now_s: float) -> AgentState:
    """Return the state after some events, as a trial: their effects are not carried out."""
    for event in events:
        state, _ = step(state, event, now_s)
    return state


def desired_state(state: AgentState, now_s: float) -> DesiredState:
    """Return what the bridge should be, as of the last `Tick`.

    Raises:
        CompileError: A service has no weight in use.
    """
    if state.in_use is not state.balancer:
        require_weights(state.balancer, state.in_use)
    return DesiredState(state.in_use, state.ejected, state.ramps(now_s))


def _probed(state: AgentState, event: Probed, now_s: float) -> tuple[AgentState, tuple[Effect, ...]]:
    if event.check not in state.tracker.health:
        return state, ()
    tracker, change = state.tracker.with_result(
        event.check, event.result, state.in_use.services, sent_s=event.sent_s, now_s=now_s
    )
    probe = ProbeAt(event.check, tracker.health[event.check].due_s)
    return replace(state, tracker=tracker), (probe,) if change is None else (probe, change)


def _ticked(state: AgentState, now_s: float) -> AgentState:
    # Weights of config and operators change by their own events alone. Any other policy may have other signals now. For
    # 16,000 backends it takes some 20 ms.
    state = state if state.policy is configured_weights else _weighted(state)
    tracker = state.tracker.with_decisions(state.in_use.services, now_s)
    ejected = with_dead_ports(tracker.ejected, state.in_use, state.ports_down)
    starts = update_slow_starts(state.slow_starts, state.in_use, ejected, known=state.known, now_s=now_s)
    return replace(state, tracker=tracker, ejected=ejected, slow_starts=starts)


def _with_runtime(state: AgentState, runtime: Runtime) -> tuple[AgentState, tuple[SaveRuntime, ...]]:
    saves = () if runtime == state.runtime else (SaveRuntime(runtime),)
    return _weighted(replace(state, runtime=runtime)), saves


def _probing(state: AgentState, known: KnownShares, now_s: float) -> tuple[AgentState, tuple[ProbeAt, ...]]:
    """Begin to probe the backends of config and overrides. `known`: what the bridge remembers of new ones."""
    before, checks = state.tracker.health, checks_of(state.balancer, state.runtime.overrides)
    tracker = state.tracker.with_checks(checks, known, now_s)
    new = (check for check in checks.backends if check not in before)
    return replace(state, tracker=tracker), tuple(ProbeAt(check, tracker.health[check].due_s) for check in new)


def _weighted(state: AgentState) -> AgentState:
    """Return the state with the weights of config, operators and policy in use; the very same ones if none changes."""
    in_use = with_overrides(state.balancer, state.runtime.overrides)
    if state.policy is not configured_weights:
        chosen = {
            (service.name, backend): weight
            for service in in_use.services
            for backend, weight in state.policy(service, state.tracker.signals(service)).items()
        }
        in_use = with_weights(in_use, chosen)
    return state if in_use == state.in_use else replace(state, in_use=in_use)
