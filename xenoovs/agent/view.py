"""From what the parts of the agent know to the services and backends of a snapshot. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from xenoovs.agent.desired import Names, Ramps
from xenoovs.agent.sighting import Sighting
from xenoovs.agent.snapshot import BackendState, BackendView, Override, ServiceView
from xenoovs.agent.tally import Found, Installed
from xenoovs.compile.program import Outages
from xenoovs.model.backend import Backend
from xenoovs.model.balancer import Balancer
from xenoovs.model.next_hop import mac_and_port
from xenoovs.model.service import Service


@dataclass(frozen=True, slots=True)
class HealthView:
    """What the probes say of one backend. `since_s`: UTC, when `is_up` became what it is."""

    is_up: bool
    since_s: float | None
    reason: str = ""
    latency_s: float | None = None
    transitions: int = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """What a snapshot is made of. All by names of the config.

    config:  as the file says; desired: with the weights in use. installed: what the last round left.
    offload: the last look at the hardware, and `found` in it. moved: share of clients moved so far, by service.
    """

    config: Balancer
    desired: Balancer
    installed: Mapping[str, Installed] = field(default_factory=dict)
    out: Outages = field(default_factory=dict)
    health: Mapping[Names, HealthView] = field(default_factory=dict)
    overrides: tuple[Override, ...] = ()
    ramps: Ramps = field(default_factory=dict)
    offload: Sighting | None = None
    found: Found = field(default_factory=Found)
    moved: Mapping[str, float] = field(default_factory=dict)


def service_views(seen: Seen) -> tuple[ServiceView, ...]:
    """The services of the config, in its order."""
    overrides = {(override.service, override.backend): override for override in seen.overrides}
    return tuple(
        _service(seen, _Of(service, desired, seen.installed.get(service.name), overrides))
        for service, desired in zip(seen.config.services, seen.desired.services, strict=True)
    )


@dataclass(frozen=True, slots=True)
class _Of:
    """One service: as configured, as desired, and on the bridge; and the overrides of all."""

    configured: Service
    desired: Service
    installed: Installed | None
    overrides: Mapping[Names, Override]


def _service(seen: Seen, of: _Of) -> ServiceView:
    name, installed, weights = of.configured.name, of.installed, _weights(of.desired)
    return ServiceView(
        name=name,
        service_id=0 if installed is None else installed.service_id,
        vips=tuple(str(vip) for vip in of.configured.claim.vips),
        backends=tuple(
            _backend(seen, of, _InUse(backend, used, weights))
            for backend, used in zip(of.configured.backends, of.desired.backends, strict=True)
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

    def share(self, backend: Backend) -> float:
        """0..1, what a backend is to have now: in a slow start a part of its own, the rest of which others have."""
        if backend.ramp < 1 and self.settled:
            return float(backend.weight * backend.ramp) / self.all
        if self.settled:
            return float(backend.weight) / self.settled * (1 - self.eased)
        return float(backend.weight) / self.all if self.all else 0.0


def _weights(desired: Service) -> _Weights:
    whole = float(sum(desired.weights, Fraction(0)))
    slow = [backend for backend in desired.backends if backend.ramp < 1]
    eased = sum(float(backend.weight * backend.ramp) for backend in slow) / whole if whole else 0.0
    return _Weights(whole, whole - sum(float(backend.weight) for backend in slow), eased)


@dataclass(frozen=True, slots=True)
class _InUse:
    """One backend: as configured, as desired, and what its weight is compared with."""

    configured: Backend
    used: Backend
    weights: _Weights


def _backend(seen: Seen, of: _Of, backend: _InUse) -> BackendView:
    used, installed = backend.used, of.installed
    names = of.configured.name, used.name
    health, override, ramp = seen.health.get(names), of.overrides.get(names), seen.ramps.get(names)
    is_drained = override is not None and not override.weight
    weight = used.weight if used.ramp == 1 else used.weight * used.ramp
    known = None if installed is None else installed.macs.get(used.name)
    mac, port = mac_and_port(used.next_hop)
    return BackendView(
        name=used.name,
        mac=known or mac,
        egress=port,
        address=None if used.address is None else str(used.address),
        state=_state(health, is_drained=is_drained),
        is_out=used.name in seen.out.get(names[0], ()),
        weight=float(backend.configured.weight),
        weight_in_use=float(weight),
        share_wanted=backend.weights.share(used),
        share_installed=0.0 if installed is None else installed.shares.get(used.name, 0.0),
        flows=0 if installed is None else installed.flows.get(used.name, 0),
        blocks=seen.found.verdicts.get(names, {}),
        traffic=None if seen.offload is None else seen.offload.traffic.get(names),
        counted=None if seen.offload is None else seen.offload.counted.get(names),
        rate=None if seen.offload is None else seen.offload.rates.get(names),
        ramp=None if ramp is None else float(ramp),
        since_s=override.since_s if override is not None and is_drained else None if health is None else health.since_s,
        reason="" if health is None else health.reason,
        probe_latency_s=None if health is None else health.latency_s,
        transitions=0 if health is None else health.transitions,
    )


def _state(health: HealthView | None, *, is_drained: bool) -> BackendState:
    if is_drained:
        return BackendState.DRAINED
    if health is None:
        return BackendState.UNCHECKED
    return BackendState.UP if health.is_up else BackendState.DOWN
