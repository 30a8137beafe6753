"""Which probes a config asks for: one for one backend, however many services use it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from xenoovs.agent.probe.target import Target
from xenoovs.model.backend import Backend
from xenoovs.model.balancer import Balancer
from xenoovs.model.health import AllDown, Health
from xenoovs.model.service import Service


@dataclass(frozen=True, slots=True)
class Check:
    """One backend that is asked, and how its results are judged. `health`: without what concerns several backends."""

    target: Target
    health: Health


@dataclass(frozen=True, slots=True)
class Use:
    """A check, and one backend of one service that depends on it."""

    service: Service
    backend: Backend
    check: Check


def uses_of(balancer: Balancer) -> Iterator[Use]:
    """Every backend with a weight whose service has a health check, in the order of the config."""
    for service in balancer.services:
        if service.health is not None:
            for backend in service.backends:
                if backend.weight:
                    yield Use(service, backend, _check(service, backend, service.health))


def _check(service: Service, backend: Backend, health: Health) -> Check:
    address = backend.address or next(vip for vip in service.claim.vips if vip.version == 4)
    target = Target(
        kind=health.probe,
        mac=backend.mac,
        address=address,
        port=health.port,
        path=health.path,
        query=health.query,
        send=health.send,
        expect=health.expect,
    )
    return Check(target, replace(health, max_down=Fraction(1), on_all_down=AllDown.KEEP))
