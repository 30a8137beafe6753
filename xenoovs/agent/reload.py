"""Another config while the agent runs: tried on the bridge first, then accepted; taken back if nobody confirms it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from fractions import Fraction

from xenoovs.agent.config_file import Candidate, ConfigFile
from xenoovs.agent.confirm import Before, roll_back, take_flows, touched
from xenoovs.agent.driver import Store
from xenoovs.agent.health.slow_start import Known
from xenoovs.agent.log import tell, warn
from xenoovs.agent.overrides import Ended, Merged, merge, merge_back, require_possible, with_weight
from xenoovs.agent.report import Report
from xenoovs.agent.runtime_file import show_weight
from xenoovs.agent.snapshot import Override
from xenoovs.agent.state import AgentState, ConfigFollowed, PortsChanged, RuntimeChanged, Tick, after, desired_state
from xenoovs.decision.desired import BackendName
from xenoovs.engine.change import Change
from xenoovs.engine.engine import Engine
from xenoovs.errors import ChangesHeld, NotConfirmed, StateUnusable, SwitchError, XenoovsError


@dataclass(frozen=True, slots=True)
class _Pending:
    """A change that waits to be confirmed, and what to go back to.

    services: whose flows it has changed. merged: what it left of `overrides`. by_s: on the clock that never goes back.
    """

    before: Before
    services: frozenset[int]
    good: Candidate
    overrides: tuple[Override, ...]
    merged: Merged
    by_s: float


class Reloader:
    """Looks after the config file. `reloads`: how many texts were accepted."""

    def __init__(
        self, config: ConfigFile, engine: Engine, store: Store, report: Report, *, confirm_s: float | None
    ) -> None:
        """`confirm_s`: how long a change waits to be confirmed before it is taken back; None: it need not be."""
        self.config, self.reloads = config, 0
        self._engine, self._store, self._report, self._confirm_s = engine, store, report, confirm_s
        self._pending: _Pending | None = None
        self._is_blind = False
        self._attempt: tuple[Candidate, Before] | None = None
        """The flows before a candidate was first tried: a try that raised may have changed some."""

    async def look(self, *, always: bool) -> bool:
        """Look at the file. Whether it has another text that may be good."""
        if not always and not self.config.is_touched:
            return False
        # A large one takes seconds, in which probes must go on.
        if not await asyncio.to_thread(self.config.poll, always=always):
            return False
        if self.config.problem is not None:
            self._tell_refused("the config cannot be used; the last good one stays", self.config.problem)
            return False
        return True

    async def try_candidate(self) -> Change | None:
        """Make the bridge as the newest text says, and accept that text if it can be so.

        None: there is none, it was refused, or its changes are held back. Raises XenoovsError where it may work later.
        """
        candidate = self.config.candidate
        if candidate is None:
            return None
        merged = merge(self._overrides, candidate.balancer, old=self.config.balancer)
        if candidate.balancer == self.config.balancer:
            self._accept(merged)
            return None
        try:
            return await self._try(candidate, merged)
        except XenoovsError as problem:
            if problem.retryable:
                raise
            if self.config.refuse(problem):
                self._tell_refused("the config cannot be applied; the last good one stays", problem)
            return None

    @property
    def is_due(self) -> bool:
        """Whether a change was not confirmed in time."""
        return self._pending is not None and time.monotonic() >= self._pending.by_s

    async def take_back_if_due(self) -> bool:
        """Go back to the last confirmed program when time is up. Raises XenoovsError where it must be tried again."""
        pending = self._pending
        if pending is None or not self.is_due:
            return False
        if not self._store.state.runtime.is_paused:
            switch = self._engine.switch
            await asyncio.to_thread(roll_back, switch, pending.before, services=pending.services)
        self._pending = None
        self._engine.forget()
        problem = NotConfirmed(after_s=self._confirm_s or 0.0)
        merged = await asyncio.to_thread(self._overrides_of_before, pending, self._store.state)
        self.config.go_back(pending.good, problem)
        await self.follow(merged)
        self._tell_refused("the config was taken back", problem)
        return True

    def _overrides_of_before(self, pending: _Pending, state: AgentState) -> Merged:
        """With what was set since, unless it cannot be had with the config of before."""
        before, merged = pending.overrides, self._merged_back(pending)
        try:
            require_possible(state.tracker, pending.good.balancer, merged.kept)
        except XenoovsError:
            since = (one for one in state.runtime.overrides if one not in before)
            return Merged(before, tuple(Ended(one, "it was taken back with the config") for one in since))
        return merged

    def _merged_back(self, pending: _Pending) -> Merged:
        configs = self.config.balancer, pending.good.balancer
        return merge_back(self._overrides, pending.merged, before=pending.overrides, configs=configs)

    def confirm(self) -> bool:
        """Keep the change that waits. Whether one did."""
        is_waiting = self._pending is not None
        self._pending = None
        if is_waiting:
            tell("the config is confirmed", config=self.config.digest)
        return is_waiting

    @property
    def confirm_by_s(self) -> float | None:
        """UTC, when the change that waits is taken back."""
        return None if self._pending is None else self._pending.by_s - time.monotonic() + time.time()

    @property
    def goes_back_to(self) -> str:
        """Digest of the config that comes back unless the change that waits is confirmed; empty: none waits."""
        return "" if self._pending is None else self._pending.good.digest

    async def begin(self, problem: StateUnusable | None) -> None:
        """Follow the config at the start. `problem`: why the overrides of an earlier agent are lost."""
        if problem is not None:
            warn("overrides are lost", reason=str(problem))
        merged = merge(self._overrides, self.config.balancer)
        for one in merged.kept:
            tell("override", service=one.service, backend=one.backend, weight=show_weight(one.weight))
        self._engine.is_held = self._store.state.runtime.is_paused
        if self._engine.is_held:
            warn("paused before the restart; nothing is changed until `xenoovs resume`")
        try:
            await self.follow(merged)
        except SwitchError as error:
            self._report.complain(str(error), bridge=self.config.balancer.uplinks.bridge)

    async def set_weight(self, name: BackendName, weight: Fraction | None) -> None:
        """Give a backend another weight than the config; None: that of the config.

        Raises:
            RequestRefused: The config has no such backend.
            CompileError, ToleranceUnreachable, BudgetUnreachable: No flows can do that.
        """
        state, balancer = self._store.state, self.config.balancer
        runtime = with_weight(state.runtime, balancer, name, weight, now_s=time.time())
        now, then = state.runtime.overrides, runtime.overrides
        await asyncio.to_thread(require_possible, state.tracker, balancer, then, instead_of=now)
        self._store.dispatch(RuntimeChanged(runtime))
        shown = "config" if weight is None else show_weight(weight)
        tell("weight set", service=name[0], backend=name[1], weight=shown)

    def pause(self, *, hold: bool) -> bool:
        """Leave the bridge as it is, or no longer; return whether it was otherwise before."""
        runtime = self._store.state.runtime
        if runtime.is_paused == hold:
            return False
        self._store.dispatch(RuntimeChanged(replace(runtime, is_paused=hold)))
        self._engine.is_held = hold
        tell("paused; nothing is changed until `xenoovs resume`" if hold else "resumed")
        return True

    async def follow(self, merged: Merged | None = None) -> None:
        """Follow the good config, with what is left of the overrides; None: all of them.

        Raises:
            SwitchError: The config is followed, but what the bridge remembers is not known.
        """
        if merged is not None:
            self._keep(merged)
        known: Known = {}
        self._is_blind = True
        try:
            known = await asyncio.to_thread(self._engine.known, self.config.balancer)
            self._is_blind = False
        finally:
            self._store.dispatch(ConfigFollowed(self.config.balancer, self._overrides, known))

    async def follow_if_blind(self) -> None:
        """As `follow`, where that failed: the switch is the memory of ejected backends and slow starts."""
        if self._is_blind:
            await self.follow()

    @property
    def _overrides(self) -> tuple[Override, ...]:
        return self._store.state.runtime.overrides

    async def _try(self, candidate: Candidate, merged: Merged) -> Change | None:
        known = await asyncio.to_thread(self._engine.known, candidate.balancer)
        bridge, now_s = candidate.balancer.uplinks.bridge, self._store.clock.now_s()
        followed, ports = ConfigFollowed(candidate.balancer, merged.kept, known), self._engine.ports_down()
        trial = after(self._store.state, followed, PortsChanged(ports), Tick(), now_s=now_s)
        desired = desired_state(trial, now_s)
        if self._confirm_s is not None and (self._attempt is None or self._attempt[0] != candidate):
            self._attempt = candidate, await asyncio.to_thread(take_flows, self._engine.switch, bridge)
        done: Change | None = None
        try:
            done = await asyncio.to_thread(self._engine.round, desired, now_s=now_s, strict=True)
            await self._wait_for_confirmation(merged)
        except ChangesHeld:
            # Nothing but a pause stands against it; but what has to be confirmed is accepted when it is on the bridge.
            if self._confirm_s is not None:
                raise
        self._attempt = None
        self._accept(merged)
        self._store.dispatch(followed)
        return done

    async def _wait_for_confirmation(self, merged: Merged) -> None:
        """From now on, if the attempt has changed any flow; also one that looked as if it had failed."""
        if self._attempt is None or self._confirm_s is None:
            return
        _, before = self._attempt
        now = await asyncio.to_thread(take_flows, self._engine.switch, before.bridge)
        services = touched(before, now)
        if not services:
            return
        by_s, earlier = time.monotonic() + self._confirm_s, self._pending
        if earlier is not None and earlier.before.bridge == before.bridge:
            services, overrides = earlier.services | services, self._merged_back(earlier).kept
            self._pending = replace(earlier, services=services, overrides=overrides, merged=merged, by_s=by_s)
        else:
            self._pending = _Pending(before, services, self.config.good, self._overrides, merged, by_s)
        warn("the change will be taken back unless it is confirmed: `xenoovs confirm`", within_s=self._confirm_s)

    def _accept(self, merged: Merged) -> None:
        self.config.accept()
        self._keep(merged)
        self.reloads += 1
        tell("config read", file=self.config.path, config=self.config.digest)

    def _keep(self, merged: Merged) -> None:
        for ended in merged.ended:
            one = ended.override
            weight = show_weight(one.weight)
            warn("an override has ended", service=one.service, backend=one.backend, weight=weight, reason=ended.reason)
        self._store.dispatch(RuntimeChanged(replace(self._store.state.runtime, overrides=merged.kept)))

    def _tell_refused(self, event: str, problem: XenoovsError) -> None:
        warn(event, reason=str(problem), newer=self.config.newer or "-", config=self.config.digest)
