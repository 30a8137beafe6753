"""The state of an agent and its queue of probes, without an event loop: the test turns the clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from xenoovs.agent.health import HealthChange
from xenoovs.agent.probe.check import Check, ProbeResult
from xenoovs.agent.scheduler import ProbeQueue
from xenoovs.agent.state import AgentState, ConfigFollowed, Probed, Tick, desired_state
from xenoovs.agent.state_store import StateStore
from xenoovs.decision.decision import DesiredState
from xenoovs.decision.ejection import KnownShares
from xenoovs.model.balancer import Balancer
from xenoovs.show.snapshot import Override


class DrivenAgent:
    """Takes events and probes as an agent does."""

    def __init__(self, balancer: Balancer, now_s: Callable[[], float]) -> None:
        self.store, self.queue = StateStore(AgentState(balancer, balancer), now_s), ProbeQueue()
        self._change: HealthChange | None = None
        self.store.subscribe(Check, lambda check: self.queue.push(check, self.state.tracker.health[check].due_s))
        self.store.subscribe(HealthChange, self._changed)

    @property
    def state(self) -> AgentState:
        return self.store.state

    def follow(self, balancer: Balancer, overrides: Iterable[Override] = (), known: KnownShares | None = None) -> None:
        self.store.dispatch(ConfigFollowed(balancer, tuple(overrides), known or {}))

    def take_due(self) -> list[Check]:
        """The checks to be probed now."""
        return self.queue.take_due(self.state, self.store.now_s())

    def record(self, check: Check, *, ok: bool, sent_s: float, reply: str = "") -> HealthChange | None:
        """A result, and what it changed."""
        self._change = None
        result = ProbeResult(ok=ok, latency_s=0.0, reason="answered" if ok else "no answer", reply=reply)
        self.store.dispatch(Probed(check, result, sent_s))
        return self._change

    def desired(self, ports_down: Iterable[str] = ()) -> DesiredState:
        """What a round that begins now makes of the bridge. Raises CompileError."""
        self.store.dispatch(Tick(frozenset(ports_down)))
        return desired_state(self.state, self.store.now_s())

    def down(self, service: str) -> frozenset[str]:
        ejection = self.state.tracker.ejections.get(service)
        return frozenset() if ejection is None else frozenset(ejection.down)

    def _changed(self, change: HealthChange) -> None:
        self._change = change
