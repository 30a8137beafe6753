"""The weights in use: those of the config, those that operators set, and what a policy makes of both. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from fractions import Fraction

from xenoovs.agent.health.backend import Signal
from xenoovs.agent.snapshot import Override
from xenoovs.decision.desired import BackendName
from xenoovs.errors import CompileError
from xenoovs.model.balancer import Balancer
from xenoovs.model.service import Service

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
