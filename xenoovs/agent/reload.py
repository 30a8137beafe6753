"""Another config while the agent runs: tried on the bridge first, then accepted; taken back if nobody confirms it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace

from xenoovs.agent.aim import Aim
from xenoovs.agent.config_file import Candidate, ConfigFile
from xenoovs.agent.confirm import Before, roll_back, take_flows, touched
from xenoovs.agent.log import tell, warn
from xenoovs.agent.merge import Ended, Merged, merge, merge_back
from xenoovs.agent.operate import Operator
from xenoovs.agent.reconcile import Reconciler, Round
from xenoovs.agent.snapshot import Override
from xenoovs.errors import ChangesHeld, NotConfirmed, SwitchError, XenoovsError


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
        self, config: ConfigFile, reconciler: Reconciler, *, aim: Aim, operator: Operator, confirm_s: float | None
    ) -> None:
        """`confirm_s`: how long a change waits to be confirmed before it is taken back; None: it need not be."""
        self.config, self.reloads = config, 0
        self._reconciler, self._aim, self._operator, self._confirm_s = reconciler, aim, operator, confirm_s
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

    async def try_candidate(self) -> Round | None:
        """Make the bridge as the newest text says, and accept that text if it can be so.

        None: there is none, it was refused, or its changes are held back. Raises XenoovsError where it may work later.
        """
        candidate = self.config.candidate
        if candidate is None:
            return None
        merged = merge(self._operator.overrides, candidate.balancer, old=self.config.balancer)
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
        if not self._reconciler.is_held:
            switch = self._reconciler.switch
            await asyncio.to_thread(roll_back, switch, pending.before, services=pending.services)
        self._pending = None
        self._reconciler.forget()
        problem = NotConfirmed(after_s=self._confirm_s or 0.0)
        merged = await asyncio.to_thread(self._overrides_of_before, pending)
        self.config.go_back(pending.good, problem)
        self._operator.merged(merged)
        await self.follow()
        self._tell_refused("the config was taken back", problem)
        return True

    def _overrides_of_before(self, pending: _Pending) -> Merged:
        """With what was set since, unless it cannot be had with the config of before."""
        before, merged = pending.overrides, self._merged_back(pending)
        try:
            self._aim.check(pending.good.balancer, merged.kept)
        except XenoovsError:
            since = (one for one in self._operator.overrides if one not in before)
            return Merged(before, tuple(Ended(one, "it was taken back with the config") for one in since))
        return merged

    def _merged_back(self, pending: _Pending) -> Merged:
        configs = self.config.balancer, pending.good.balancer
        return merge_back(self._operator.overrides, pending.merged, before=pending.overrides, configs=configs)

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

    async def follow(self) -> None:
        """Ask the backends of the good config. Raises SwitchError: nothing is known of who has clients, for now."""
        try:
            await self._look_and_follow()
        except SwitchError:
            self._is_blind = True
            self._aim.follow(self.config.balancer, self._operator.overrides, {})
            raise

    async def follow_if_blind(self) -> None:
        """As `follow`, where that failed: the switch is the memory of who was out, and how far slow starts had come."""
        if self._is_blind:
            await self._look_and_follow()

    async def _look_and_follow(self) -> None:
        known = await asyncio.to_thread(self._reconciler.known, self.config.balancer)
        self._is_blind = False
        self._aim.follow(self.config.balancer, self._operator.overrides, known)

    async def _try(self, candidate: Candidate, merged: Merged) -> Round | None:
        known = await asyncio.to_thread(self._reconciler.known, candidate.balancer)
        desired = self._aim.trial(candidate.balancer, merged.kept, known)
        if self._confirm_s is not None and (self._attempt is None or self._attempt[0] != candidate):
            bridge = candidate.balancer.uplinks.bridge
            self._attempt = candidate, await asyncio.to_thread(take_flows, self._reconciler.switch, bridge)
        done: Round | None = None
        now_s = self._aim.clock.now_s()
        try:
            done = await asyncio.to_thread(self._reconciler.round, desired.balancer, desired.out, now_s=now_s)
            await self._wait_for_confirmation(merged)
        except ChangesHeld:
            # Nothing but a pause stands against it; but what has to be confirmed is accepted when it is on the bridge.
            if self._confirm_s is not None:
                raise
        self._attempt = None
        self._accept(merged)
        self._aim.follow(candidate.balancer, merged.kept, known)
        return done

    async def _wait_for_confirmation(self, merged: Merged) -> None:
        """From now on, if the attempt has changed any flow; also one that looked as if it had failed."""
        if self._attempt is None or self._confirm_s is None:
            return
        _, before = self._attempt
        now = await asyncio.to_thread(take_flows, self._reconciler.switch, before.bridge)
        services = touched(before, now)
        if not services:
            return
        by_s, earlier = time.monotonic() + self._confirm_s, self._pending
        if earlier is not None and earlier.before.bridge == before.bridge:
            services, overrides = earlier.services | services, self._merged_back(earlier).kept
            self._pending = replace(earlier, services=services, overrides=overrides, merged=merged, by_s=by_s)
        else:
            self._pending = _Pending(before, services, self.config.good, self._operator.overrides, merged, by_s)
        warn("the change will be taken back unless it is confirmed: `xenoovs confirm`", within_s=self._confirm_s)

    def _accept(self, merged: Merged) -> None:
        self.config.accept()
        self._operator.merged(merged)
        self.reloads += 1
        tell("config read", file=self.config.path, config=self.config.digest)

    def _tell_refused(self, event: str, problem: XenoovsError) -> None:
        warn(event, reason=str(problem), newer=self.config.newer or "-", config=self.config.digest)
