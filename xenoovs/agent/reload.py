"""Changes of a running agent: a new config, overrides, a pause.

A config is applied to the bridge, then accepted. With `--confirm` it is rolled back unless it is confirmed in time.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Collection
from contextlib import suppress

from xenoovs.agent.checkpoint import Checkpoint, changed_services, roll_back, take_checkpoint
from xenoovs.agent.config_file import ConfigFile, ConfigVersion
from xenoovs.agent.overrides import (
    Merged,
    OverrideRequest,
    merge,
    merge_rollback,
    require_possible,
    with_requests,
)
from xenoovs.agent.runtime_file import RuntimeFile
from xenoovs.agent.state import (
    AgentState,
    ConfigFollowed,
    Runtime,
    Tick,
    after,
    desired_state,
    with_overrides,
)
from xenoovs.agent.state_store import StateStore
from xenoovs.dataclass import dataclass, replace
from xenoovs.decision.decision import BackendName
from xenoovs.decision.ejection import KnownShares
from xenoovs.engine.change import Change
from xenoovs.engine.engine import Appointment, Engine
from xenoovs.errors import (
    AppointmentCancelled,
    ChangesHeld,
    MacUnknown,
    NotConfirmed,
    RequestRefused,
    StateUnusable,
    XenoovsError,
    problem_of,
)
from xenoovs.log import info, warn
from xenoovs.show.snapshot import Override


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of an agent.

    Attributes:
        resync_s: Time between two rounds without another reason. They find external changes.
        confirm_s: How long a new config waits for `xenoovs confirm` before it is rolled back; None if it does not wait.
        runtime: The file by which overrides and a pause survive a restart; None if they do not.
        hold: Takes the locks of these bridges, and releases all others. Raises AgentRuns, ListenError.
        refusal: Returns why requests are refused, as another controller decides about the bridge; None if it does not.
        command_options: Returns the options that a command needs to reach this agent, after a space; empty if none.
        now_s: As for StateStore.
    """

    resync_s: float = 10.0
    confirm_s: float | None = None
    runtime: RuntimeFile | None = None
    max_probes: int = sys.maxsize
    hold: Callable[[Collection[str]], None] = lambda _bridges: None
    refusal: Callable[[], RequestRefused | None] = lambda: None
    command_options: Callable[[], str] = str
    now_s: Callable[[], float] = time.monotonic


@dataclass(frozen=True, slots=True)
class _PendingConfirmation:
    """A change that is rolled back unless confirmed: the state before it, and the ids of the changed services."""

    checkpoint: Checkpoint
    services: frozenset[int]
    good: ConfigVersion
    overrides: tuple[Override, ...]
    merged: Merged
    by_s: float


class Reloader:
    """Follows the config file, and changes overrides and the pause. Its coroutines must not run in parallel."""

    def __init__(self, config: ConfigFile, engine: Engine, store: StateStore, settings: Settings) -> None:
        self.config, self.reloads = config, 0
        self.appointment: Appointment | None = None
        self._engine, self._store, self._settings = engine, store, settings
        self._saved = store.state.runtime
        self._pending: _PendingConfirmation | None = None
        self._is_bridge_unknown = False
        self._attempt: tuple[ConfigVersion, Checkpoint] | None = None
        """A candidate, and the flows before its first attempt: one that raised an error may have changed some."""

    @property
    def must_try_again(self) -> bool:
        """Return whether a candidate with a time waits for another attempt."""
        candidate = self.config.candidate
        return candidate is not None and candidate.commit_at_s is not None and self.config.problem is None

    async def poll(self, *, always: bool) -> bool:
        """Read the config file if it was touched. Return whether there is a new candidate."""
        # A large file takes seconds, and probes must not wait for it.
        if not (always or self.config.is_touched) or not await asyncio.to_thread(self.config.poll, always=always):
            return False
        if self.config.problem is not None:
            self._warn_refused("the config is invalid; the last good one stays", self.config.problem)
            return False
        return True

    async def try_candidate(self) -> Change | None:
        """Apply the candidate to the bridge, and accept it if that succeeds. Return None if there is no candidate, or
        if it was refused, or if a pause holds its changes back. Raises XenoovsError if a later attempt may succeed."""
        candidate = self.config.candidate
        if candidate is None:
            return None
        if self.accept_unchanged():
            return None
        merged = merge(self._overrides, candidate.balancer, old=self.config.balancer)
        try:
            self._settings.hold({*self._bridges, candidate.balancer.uplinks.bridge})
            change = await self._try(candidate, merged)
            self._settings.hold(self._bridges)
            return change
        except Exception as error:
            problem = problem_of(error)
            if problem.retryable:
                raise
            self._settings.hold(self._bridges)
            if self.config.refuse(problem):
                self._warn_refused("the config cannot be applied; the last good one stays", problem)
            return None

    def accept_unchanged(self) -> bool:
        """Accept the candidate if it has the services and blocks of the config in use. Return whether it has."""
        candidate, good = self.config.candidate, self.config.good
        if candidate is None or (candidate.balancer, candidate.stored) != (good.balancer, good.stored):
            return False
        self._accept(merge(self._overrides, candidate.balancer, old=good.balancer))
        return True

    @property
    def _bridges(self) -> frozenset[str]:
        """Return the bridges whose flows this agent may change: two if a rollback would return to another bridge."""
        good = self.config.good if self._pending is None else self._pending.good
        return frozenset((self.config.balancer.uplinks.bridge, good.balancer.uplinks.bridge))

    @property
    def is_due(self) -> bool:
        """Return whether a change was not confirmed in time."""
        return self._pending is not None and time.monotonic() >= self._pending.by_s

    async def roll_back_if_due(self) -> None:
        """Roll back to the last confirmed config if time is up. Raises XenoovsError if a later attempt may succeed."""
        pending = self._pending
        if pending is None or not self.is_due:
            return
        if not self._store.state.runtime.is_paused:
            switch = self._engine.switch
            await asyncio.to_thread(roll_back, switch, pending.checkpoint, services=pending.services)
        self._engine.forget()
        problem = NotConfirmed(after_s=self._settings.confirm_s or 0.0)
        merged = await asyncio.to_thread(self._overrides_after_rollback, pending, self._store.state)
        self._pending = self._attempt = None
        self.config.roll_back(pending.good, problem)
        self._settings.hold(self._bridges)
        await self.follow(merged)
        self._warn_refused("the config was rolled back", problem)

    def _overrides_after_rollback(self, pending: _PendingConfirmation, state: AgentState) -> Merged:
        """Return the earlier overrides, with those set since then unless these are impossible."""
        before, merged = pending.overrides, self._merged_rollback(pending)
        try:
            require_possible(state.tracker, pending.good.balancer, merged.remaining)
        except XenoovsError:
            since = (override for override in state.runtime.overrides if override not in before)
            return Merged(before, tuple((one, "it was rolled back with the config") for one in since))
        return merged

    def _merged_rollback(self, pending: _PendingConfirmation) -> Merged:
        configs = self.config.balancer, pending.good.balancer
        return merge_rollback(self._overrides, pending.merged, before=pending.overrides, configs=configs)

    def confirm(self) -> bool:
        """Confirm the pending change. Return whether there was one, and its time was not over."""
        if self._pending is None or self.is_due:
            return False
        self._pending = None
        self._settings.hold(self._bridges)
        info("the config is confirmed", config=self.config.digest)
        return True

    @property
    def confirm_by_s(self) -> float | None:
        """Return when the pending change is rolled back, UTC; None if no change is pending."""
        return None if self._pending is None else self._pending.by_s - time.monotonic() + time.time()

    @property
    def goes_back_to(self) -> str:
        """Return the digest of the config to which a rollback returns; empty if no change is pending."""
        return "" if self._pending is None else self._pending.good.digest

    async def begin(self, problem: StateUnusable | None) -> None:
        """Follow the config at the start. `problem`: why the overrides of an earlier agent cannot be read."""
        if problem is not None:
            warn("overrides are lost", reason=str(problem))
        merged = merge(self._overrides, self.config.balancer)
        for one in merged.remaining:
            info("override", service=one.service, backend=one.backend, state=one.state)
        self._engine.hold(is_held=self._store.state.runtime.is_paused)
        if self._engine.is_held:
            warn("paused before the restart; nothing is changed until `xenoovs pause --end`")
        # The first round tries it again, and reports why it fails.
        with suppress(Exception):
            await self.follow(merged)

    async def override(self, *requests: OverrideRequest) -> tuple[BackendName, ...]:
        """Set or end overrides, for all requests or for none. Return their backends. Raises RequestRefused if the
        config has no such backend, if the store of a fleet decides, or if it could not be saved. Raises CompileError,
        ToleranceUnreachable, BudgetUnreachable if no flows can have these weights."""
        state, balancer = self._store.state, self.config.balancer
        if state.fleet is not None:
            raise RequestRefused(
                f"this is DPU {state.fleet.dpu} of a fleet, whose store decides about weights; for all DPUs: "
                "`xenoovs fleet drain SERVICE BACKEND`, `weight` or `reset`",
                status=409,
                code="in_fleet",
            )
        resolved = balancer
        with suppress(MacUnknown):
            resolved = await asyncio.to_thread(self._engine.resolve, balancer)
        utc_s, now_s = max(0.0, time.time()), self._store.now_s()
        runtime, names = with_requests(state.runtime, balancer, requests, resolved=resolved, utc_s=utc_s, now_s=now_s)
        now, then = state.runtime.overrides, runtime.overrides
        await asyncio.to_thread(require_possible, state.tracker, balancer, then, instead_of=now)
        await self._set(runtime)
        overrides = runtime.by_name
        for name in names:
            one = overrides.get(name)
            until = {} if one is None or one.until_s is None else {"for_s": round(one.until_s - now_s)}
            shown = "config" if one is None else one.state
            info("override set", service=name[0], backend=name[1], state=shown, **until)
        return names

    async def set_paused(self, *, paused: bool, withdraw: bool = False) -> bool:
        """Pause or resume changes of the bridge. Return False if nothing changes. Raises RequestRefused.

        `paused`: False to resume, and to announce VIPs again. `withdraw`: withdraw all VIPs during the pause. A pause
        without it does not end a withdrawal.
        """
        before = self._store.state.runtime
        if withdraw and self.config.balancer.announce is None:
            raise RequestRefused(
                "the config announces no VIP, so there is nothing to withdraw; add `announce: {bgp: frr}`, or pause "
                "without --withdraw",
                status=409,
                code="not_announced",
            )
        is_withdrawn = paused and (withdraw or before.is_withdrawn)
        if not await self._set(replace(before, is_paused=paused, is_withdrawn=is_withdrawn)):
            return False
        self._engine.hold(is_held=paused)
        withdrawn = {"vips": "withdrawn"} if is_withdrawn else {}
        info("paused; nothing is changed until `xenoovs pause --end`" if paused else "resumed", **withdrawn)
        return True

    async def pin(self, remote: str, path: str | None) -> None:
        """Keep all blocks of a remote on one path; None to end that. Raises RequestRefused."""
        before = self._store.state.runtime
        others = {name: pinned for name, pinned in before.pins.items() if name != remote}
        pins = others if path is None else {**others, remote: path}
        if await self._set(replace(before, pins=pins)):
            info("pin ended" if path is None else "pinned", remote=remote, **({} if path is None else {"path": path}))

    async def set_moves_paused(self, *, paused: bool) -> bool:
        """Pause or resume moves of blocks between paths. Return False if nothing changes. Raises RequestRefused."""
        if not await self._set(replace(self._store.state.runtime, are_moves_paused=paused)):
            return False
        info("moves of blocks paused until `xenoovs pause --paths --end`" if paused else "moves of blocks resumed")
        return True

    async def _set(self, runtime: Runtime) -> bool:
        """Save the runtime of a request, then set it, so that a restart can neither lose it nor revive an earlier one.
        Return False if nothing changes. Raises RequestRefused."""
        if runtime == self._store.state.runtime:
            return False
        try:
            await self._save(runtime)
        except OSError as error:
            path = "" if self._settings.runtime is None else self._settings.runtime.path
            warn("request cannot be saved", path=path, reason=error.strerror or error)
            raise RequestRefused(
                f"cannot save the request in {path}: {error.strerror or error}; nothing was changed, because a restart "
                "of the agent would undo it",
                status=507,
                code="not_saved",
            ) from None
        self._store.dispatch(runtime)
        return True

    def adopt(self, runtime: Runtime) -> None:
        """Adopt the overrides and the pause set at another controller."""
        before = self._store.state.runtime
        self._engine.hold(is_held=runtime.is_paused)
        self._store.dispatch(replace(runtime, overrides=before.overrides))
        self._set_overrides(merge(runtime.overrides, self.config.balancer))
        if self._store.state.runtime != before:
            count = len(self._store.state.runtime.overrides)
            info("adopted the overrides of another controller", overrides=count, paused=runtime.is_paused)

    @property
    def is_saved(self) -> bool:
        """Return whether the current overrides and pause are saved."""
        return self._settings.runtime is None or self._store.state.runtime == self._saved

    async def save(self) -> bool:
        """Save the current overrides and pause. Return whether that succeeded; a failure is logged."""
        try:
            await self._save(self._store.state.runtime)
        except OSError as error:
            reason = error.strerror or error
            warn("overrides cannot be saved; a restart would revive old ones", reason=reason)
            return False
        return True

    async def _save(self, runtime: Runtime) -> None:
        if self._settings.runtime is not None and runtime != self._saved:
            # The disk may be slow, and probes must not wait for it.
            try:
                await asyncio.to_thread(self._settings.runtime.save, runtime)
            except OSError:
                # The file may have it nevertheless, if only its directory could not be written.
                with suppress(OSError):
                    await asyncio.to_thread(self._settings.runtime.save, self._saved)
                raise
            self._saved = runtime

    async def follow(self, merged: Merged | None = None) -> None:
        """Follow the good config. `merged`: the overrides that are left; None for all. Raises SwitchError if the state
        stored on the bridge cannot be read; the config is followed nevertheless."""
        self._is_bridge_unknown = True
        if merged is not None:
            self._set_overrides(merged)
        known: KnownShares = {}
        try:
            known = await asyncio.to_thread(self._engine.known, with_overrides(self.config.balancer, self._overrides))
        finally:
            good = self.config.good
            self._store.dispatch(ConfigFollowed(good.balancer, self._overrides, known, good.stored))
        self._is_bridge_unknown = False

    async def follow_if_unknown(self) -> None:
        """Follow again if `follow` failed, as to read the bridge, which stores ejected backends and slow starts."""
        if self._is_bridge_unknown:
            await self.follow()

    @property
    def _overrides(self) -> tuple[Override, ...]:
        return self._store.state.runtime.overrides

    async def _try(self, candidate: ConfigVersion, merged: Merged) -> Change | None:
        used = with_overrides(candidate.balancer, merged.remaining)
        # In a fleet the store knows which backend has which clients. Reading thousands of flows takes half a second.
        known = {} if candidate.stored else await asyncio.to_thread(self._engine.known, used)
        bridge, now_s = candidate.balancer.uplinks.bridge, self._store.now_s()
        followed = ConfigFollowed(candidate.balancer, merged.remaining, known, candidate.stored)
        trial = after(self._store.state, followed, Tick(self._engine.ports_down()), now_s=now_s)
        desired = desired_state(trial, now_s)
        if self._settings.confirm_s is not None and (self._attempt is None or self._attempt[0] != candidate):
            self._attempt = candidate, await asyncio.to_thread(take_checkpoint, self._engine.switch, bridge)
        change: Change | None = None
        appointment = self.appointment = None if candidate.commit_at_s is None else Appointment(candidate.commit_at_s)
        try:
            change = await asyncio.to_thread(
                self._engine.round, desired, now_s=now_s, strict=True, appointment=appointment
            )
            await self._await_confirmation(merged)
        except AppointmentCancelled:
            # The config stays a candidate, and the next round prepares it again.
            return None
        except ChangesHeld:
            # Only a pause holds it back. A config to be confirmed is accepted only when the bridge has it.
            if self._settings.confirm_s is not None:
                raise
        finally:
            self.appointment = None
        self._accept(merged)
        self._store.dispatch(followed)
        return change

    async def _await_confirmation(self, merged: Merged) -> None:
        """Start the time for confirmation if this attempt, or an earlier one that failed, has changed any flow."""
        if self._attempt is None or self._settings.confirm_s is None:
            return
        _, checkpoint = self._attempt
        now = await asyncio.to_thread(take_checkpoint, self._engine.switch, checkpoint.bridge)
        services = changed_services(checkpoint, now)
        if not services:
            return
        by_s, earlier = time.monotonic() + self._settings.confirm_s, self._pending
        if earlier is not None and earlier.checkpoint.bridge == checkpoint.bridge:
            services, overrides = earlier.services | services, self._merged_rollback(earlier).remaining
            self._pending = replace(earlier, services=services, overrides=overrides, merged=merged, by_s=by_s)
        else:
            self._pending = _PendingConfirmation(checkpoint, services, self.config.good, self._overrides, merged, by_s)
        warn("the change is rolled back unless it is confirmed: `xenoovs confirm`", within_s=self._settings.confirm_s)

    def _accept(self, merged: Merged) -> None:
        self.config.accept()
        # A later attempt at the same text needs the flows before it, not those of an earlier time.
        self._attempt = None
        self._set_overrides(merged)
        self.reloads += 1
        info("config read", file=self.config.path, config=self.config.digest)

    def _set_overrides(self, merged: Merged) -> None:
        for one, reason in merged.ended:
            warn("an override has ended", service=one.service, backend=one.backend, state=one.state, reason=reason)
        self._store.dispatch(replace(self._store.state.runtime, overrides=merged.remaining))

    def _warn_refused(self, event: str, problem: XenoovsError) -> None:
        warn(event, reason=str(problem), newer=self.config.newer or "-", config=self.config.digest)
