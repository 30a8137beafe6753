"""What the bridge shall be now: config, run-time overrides, health and slow starts taken together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from xenoovs.agent.clock import Clock
from xenoovs.agent.desired import Ramps, effective
from xenoovs.agent.links import PortsDown, no_ports, with_links
from xenoovs.agent.ramp import SlowStarts, observe, parts
from xenoovs.agent.snapshot import Override
from xenoovs.agent.watch import Known, Watch
from xenoovs.compile.program import Outages, compile_program
from xenoovs.errors import CompileError
from xenoovs.model.balancer import Balancer
from xenoovs.model.service import Service


@dataclass(frozen=True, slots=True)
class Desired:
    """What a round aims at. `balancer`: with the weights in use; `config`: as the file says."""

    config: Balancer
    balancer: Balancer
    out: Outages
    ramps: Ramps


def watched(balancer: Balancer, overrides: Iterable[Override]) -> Balancer:
    """The balancer whose backends are asked: those with a weight in the config or at run time.

    A drained backend goes on being asked, so that it is known whether it may come back.
    """
    raised = tuple(override for override in overrides if override.weight)
    return effective(balancer, raised, {})


class Aim:
    """Knows whom to ask and what follows from the answers. `ports_down`: by the name of a bridge; answers at once."""

    def __init__(self, watch: Watch, clock: Clock, ports_down: PortsDown = no_ports) -> None:
        self.watch = watch
        self.clock, self._ports_down = clock, ports_down
        self._slow = SlowStarts()
        self._used: Balancer | None = None
        self._out: Outages = {}
        self._followed: Balancer | None = None
        self._known: Known = {}

    def follow(self, balancer: Balancer, overrides: Iterable[Override], known: Known) -> None:
        """Ask the backends of this config from now on. `known`: which of them have clients on the bridge."""
        self._known, self._followed = known, watched(balancer, overrides)
        self.watch.follow(self._followed, known, now_s=self.clock.now_s())

    def is_following(self, balancer: Balancer, overrides: Iterable[Override]) -> bool:
        """Whether the backends that `follow` would ask are being asked."""
        return watched(balancer, overrides) == self._followed

    def check(
        self, balancer: Balancer, overrides: tuple[Override, ...], *, instead_of: tuple[Override, ...] = ()
    ) -> None:
        """Whether any flows can do that, and somebody who answers is left. `instead_of`: the overrides until now.

        Raises CompileError, ToleranceUnreachable, BudgetUnreachable.
        """
        used, before = effective(balancer, overrides, {}), effective(balancer, instead_of, {})
        for old, new in zip(before.services, used.services, strict=True):
            down = self.watch.down_of(new.name)
            if old != new and _answering(old, down) and not _answering(new, down):
                raise CompileError(
                    service=new.name,
                    reason="no other backend with a weight answers, so all of its clients would go to one that is "
                    "down (`xenoovs status` shows why it is)",
                )
        pairs = zip(used.services, balancer.services, strict=True)
        changed = tuple(service for service, configured in pairs if service is not configured)
        if changed:
            compile_program(replace(used, services=changed))

    def trial(self, balancer: Balancer, overrides: tuple[Override, ...], known: Known) -> Desired:
        """What would be desired with this config, without following it. Raises CompileError."""
        aim = Aim(self.watch.copy(), self.clock, self._ports_down)
        aim._slow = self._slow
        aim.follow(balancer, overrides, known)
        return aim.desired(balancer, overrides)

    def desired(self, balancer: Balancer, overrides: tuple[Override, ...]) -> Desired:
        """Of a config that is followed. Raises CompileError where a service was left without any weight."""
        used = effective(balancer, overrides, {})
        out = with_links(used, self.watch.outages(used), self._ports_down(used.uplinks.bridge))
        # Where nothing has changed since, it would find the same, after going through all backends.
        if self._slow.begun or (used, out) != (self._used, self._out):
            self._slow = observe(self._slow, used, out, known=self._known, now_s=self.clock.now_s())
        self._used, self._out = used, out
        ramps = self.ramps()
        return Desired(balancer, effective(used, (), ramps), out, ramps)

    def kept(self, desired: Desired) -> dict[str, frozenset[str]]:
        """Backends, by service, that are down and keep their clients, by `max_down` or `on_all_down`."""
        down = ((service.name, self.watch.down_of(service.name)) for service in desired.balancer.services)
        left = ((name, of - desired.out.get(name, frozenset())) for name, of in down if of)
        return {name: kept for name, kept in left if kept}

    def ramps(self) -> Ramps:
        """How far slow starts have come now. The loop makes a round when this changes."""
        return {} if self._used is None else parts(self._slow, self._used, now_s=self.clock.now_s())


def _answering(service: Service, down: frozenset[str]) -> bool:
    return any(backend.weight and backend.name not in down for backend in service.backends)


def without(overrides: Iterable[Override], names: tuple[str, str]) -> tuple[Override, ...]:
    """All overrides but that of one backend."""
    return tuple(override for override in overrides if (override.service, override.backend) != names)
