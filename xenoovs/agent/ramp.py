"""Slow start: a backend that comes, or comes back, gets its clients in steps. Pure: the time is an argument."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from xenoovs.agent.watch import Known
from xenoovs.compile.program import Outages
from xenoovs.model.balancer import Balancer
from xenoovs.model.service import Service
from xenoovs.partition.ease import STEPS

Names = tuple[str, str]
"""Of a service, and of one of its backends."""


@dataclass(frozen=True, slots=True)
class SlowStarts:
    """What is known of the backends of all services.

    seen:   that were there at the last look; None: there was none yet.
    absent: that had no clients then.
    begun:  when those that start slowly began, in seconds.
    """

    seen: frozenset[Names] | None = None
    absent: frozenset[Names] = frozenset()
    begun: tuple[tuple[Names, float], ...] = ()


def observe(slow: SlowStarts, balancer: Balancer, out: Outages, *, known: Known, now_s: float) -> SlowStarts:
    """After a look at who may have clients. `known`: backends that are on the bridge, asked for at the first look.

    Starts begin for backends that were absent or are new, and go on at the first look for those that had begun before
    a restart. Where no backend is settled nobody starts slowly: there is nobody to have their clients meanwhile.
    """
    pairs = [(service, backend) for service in balancer.services for backend in service.backends]
    everybody = {(s.name, b.name) for s, b in pairs}
    present = {(s.name, b.name): s for s, b in pairs if b.weight and b.name not in out.get(s.name, ())}
    seen = frozenset(known) if slow.seen is None else slow.seen
    before = dict(slow.begun) if slow.seen is not None else _begun_before(present, known, now_s)
    begun = {
        names: before.get(names, now_s)
        for names in present
        if names in before or names in slow.absent or names not in seen
    }
    running = {names: since for names, since in begun.items() if _part(present[names], now_s - since) < 1}
    settled = {service for service, backend in present if (service, backend) not in running}
    kept = ((names, since) for names, since in sorted(running.items()) if names[0] in settled)
    return SlowStarts(frozenset(everybody), frozenset(everybody - present.keys()), tuple(kept))


def _begun_before(present: Mapping[Names, Service], known: Known, now_s: float) -> dict[Names, float]:
    """When starts began that the bridge shows in the middle: as if half of the time of their step were over.

    Those that it shows out, and that answer by now, begin.
    """
    midway = {names: part for names, part in known.items() if part < 1 and names in present}
    return {
        names: now_s - max(0.0, float(part) * STEPS - 0.5) / (STEPS - 1) * _ramp_s(present[names])
        for names, part in midway.items()
    }


def parts(slow: SlowStarts, balancer: Balancer, *, now_s: float) -> dict[Names, Fraction]:
    """How far each start has come, above 0 and below 1, in steps of one part of `STEPS`; finished ones are left out."""
    found = {names: _part(service, now_s - since) for names, service, since in _running(slow, balancer)}
    return {names: part for names, part in found.items() if part < 1}


def _running(slow: SlowStarts, balancer: Balancer) -> Iterator[tuple[Names, Service, float]]:
    if not slow.begun:
        return
    services: Mapping[str, Service] = {service.name: service for service in balancer.services}
    for names, since in slow.begun:
        if names[0] in services:
            yield names, services[names[0]], since


def _part(service: Service, elapsed_s: float) -> Fraction:
    """The first step is made at once and the last one when the time is over."""
    ramp_s = _ramp_s(service)
    if elapsed_s >= ramp_s:
        return Fraction(1)
    return Fraction(1 + int(max(0.0, elapsed_s) * (STEPS - 1) / ramp_s), STEPS)


def _ramp_s(service: Service) -> float:
    return (service.health.ramp_ms or 0) / 1000 if service.health is not None else 0.0
