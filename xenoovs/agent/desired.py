"""What the bridge shall be now: the config, what an operator set at run time, and slow starts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction

from xenoovs.agent.snapshot import Override
from xenoovs.errors import CompileError
from xenoovs.model.backend import Backend
from xenoovs.model.balancer import Balancer
from xenoovs.model.service import Service

Names = tuple[str, str]
"""Of a service, and of one of its backends."""

Ramps = Mapping[Names, Fraction]
"""How far a slow start has come, above 0 and at most 1; backends without one are left out."""


def effective(balancer: Balancer, overrides: Iterable[Override], ramps: Ramps) -> Balancer:
    """The balancer with the weights in use: an override goes before the config, and a ramp stands beside either.

    Overrides and ramps of backends that the config does not have do nothing. The same balancer comes back where
    nothing changes. Raises CompileError for a service whose last weight was taken away at run time.
    """
    weights = {(override.service, override.backend): override.weight for override in overrides}
    if not weights and not ramps:
        return balancer
    return replace(balancer, services=tuple(_service(service, weights, ramps) for service in balancer.services))


def _service(service: Service, weights: Mapping[Names, Fraction], ramps: Ramps) -> Service:
    backends = tuple(_backend(backend, (service.name, backend.name), weights, ramps) for backend in service.backends)
    if backends == service.backends:
        return service
    if any(service.weights) and not any(backend.weight for backend in backends):
        raise CompileError(
            service=service.name,
            reason="every backend with a weight is drained at run time; undrain one (`xenoovs undrain`) "
            "or give another one a weight",
        )
    return replace(service, backends=backends)


def _backend(backend: Backend, names: Names, weights: Mapping[Names, Fraction], ramps: Ramps) -> Backend:
    weight, ramp = weights.get(names, backend.weight), ramps.get(names, Fraction(1))
    return backend if (weight, ramp) == (backend.weight, backend.ramp) else replace(backend, weight=weight, ramp=ramp)
