"""From what the parts of the agent know to the services and backends of a snapshot. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from xenoovs.agent.health.backend import BackendHealth
from xenoovs.agent.health.slow_start import Ramps
from xenoovs.agent.health.tracker import HealthTracker
from xenoovs.agent.sighting import Sighting
from xenoovs.agent.snapshot import BackendState, BackendView, Override, ServiceView
from xenoovs.agent.state import AgentState
from xenoovs.agent.tally import Found, Installed
from xenoovs.decision.desired import BackendName
from xenoovs.model.backend import Backend
from xenoovs.model.next_hop import mac_and_port
from xenoovs.model.service import Service


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
