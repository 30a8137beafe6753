"""What people ask of the agent while it runs: drain, undrain, weight, pause, resume."""

from __future__ import annotations

import time
from collections.abc import Iterable
from difflib import get_close_matches
from fractions import Fraction

from xenoovs.agent.aim import without
from xenoovs.agent.log import tell, warn
from xenoovs.agent.merge import Merged, merge
from xenoovs.agent.overrides import Runtime, RuntimeFile, show_weight
from xenoovs.agent.snapshot import Override
from xenoovs.errors import RequestRefused, StateUnusable
from xenoovs.model.backend import Backend
from xenoovs.model.balancer import Balancer
from xenoovs.model.service import Service

_MAX_SHOWN = 8


class Operator:
    """Keeps the run-time state, in memory and in its file."""

    def __init__(self, file: RuntimeFile | None = None) -> None:
        """`file`: where it outlives a restart; None: nowhere."""
        self._file = file
        self._problem: StateUnusable | None = None
        self.runtime = self._load()

    @property
    def overrides(self) -> tuple[Override, ...]:
        return self.runtime.overrides

    def begin(self, balancer: Balancer) -> None:
        """At the start: end what the config has changed since the last run."""
        if self._problem is not None:
            warn("overrides are lost", reason=str(self._problem))
        self.merged(merge(self.overrides, balancer))
        for override in self.overrides:
            tell("override", service=override.service, backend=override.backend, weight=show_weight(override.weight))
        if self.runtime.is_paused:
            warn("paused before the restart; nothing is changed until `xenoovs resume`")

    def with_weight(self, balancer: Balancer, names: tuple[str, str], weight: Fraction | None) -> Runtime:
        """The state in which a backend has this weight; None: that of the config. Raises RequestRefused."""
        backend = find_backend(balancer, names)
        overrides = without(self.overrides, names)
        if weight is not None and weight != backend.weight:
            before = next((o for o in self.overrides if (o.service, o.backend) == names), None)
            is_same = before is not None and before.weight == weight
            since_s = before.since_s if before is not None and is_same else time.time()
            overrides = (*overrides, Override(*names, weight, since_s, backend.weight))
        return Runtime(tuple(sorted(overrides, key=lambda o: (o.service, o.backend))), self.runtime.is_paused)

    def take(self, runtime: Runtime) -> None:
        """Let this be the state from now on. A file that cannot be written is told; the state holds all the same."""
        self.runtime = runtime
        try:
            if self._file is not None:
                self._file.save(runtime)
        except OSError as error:
            warn("overrides cannot be saved; a restart of the agent will lose them", reason=error.strerror or error)

    def merged(self, merged: Merged) -> None:
        """Go on under another config."""
        for ended in merged.ended:
            warn(
                "an override has ended",
                service=ended.override.service,
                backend=ended.override.backend,
                weight=show_weight(ended.override.weight),
                reason=ended.reason,
            )
        if merged.kept != self.overrides:
            self.take(Runtime(merged.kept, self.runtime.is_paused))

    def pause(self, *, hold: bool) -> bool:
        """Leave the bridge as it is, or no longer. Whether it was otherwise before."""
        if self.runtime.is_paused == hold:
            return False
        self.take(Runtime(self.overrides, hold))
        tell("paused; nothing is changed until `xenoovs resume`" if hold else "resumed")
        return True

    def _load(self) -> Runtime:
        try:
            return Runtime() if self._file is None else self._file.load()
        except StateUnusable as problem:
            self._problem = problem
            return Runtime()


def find_service(balancer: Balancer, name: str) -> Service:
    """A service of the config by its name. Raises RequestRefused that tells the nearest."""
    service = next((one for one in balancer.services if one.name == name), None)
    if service is None:
        raise _unknown("service", name, (one.name for one in balancer.services), "the config")
    return service


def find_backend(balancer: Balancer, names: tuple[str, str]) -> Backend:
    """A backend of the config by the names of service and backend. Raises RequestRefused that tells the nearest."""
    service = find_service(balancer, names[0])
    backend = next((one for one in service.backends if one.name == names[1]), None)
    if backend is None:
        raise _unknown("backend", names[1], (one.name for one in service.backends), f"service {service.name}")
    return backend


def _unknown(kind: str, name: str, known: Iterable[str], where: str) -> RequestRefused:
    there = list(known)
    near = get_close_matches(name, there, n=3, cutoff=0.5)
    more = f" and {len(there) - _MAX_SHOWN} more" if len(there) > _MAX_SHOWN else ""
    hint = f"did you mean {' or '.join(near)}?" if near else f"there is {', '.join(there[:_MAX_SHOWN])}{more}"
    return RequestRefused(f"{where} has no {kind} {name[:63]}; {hint}", status=404, code=f"unknown_{kind}")
