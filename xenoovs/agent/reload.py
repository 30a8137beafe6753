"""Another config while the agent runs: tried on the bridge first, then accepted; taken back if nobody confirms it."""

from __future__ import annotations

import asyncio
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from stat import S_ISREG

from xenoovs.agent.driver import Store
from xenoovs.agent.health import HealthChange, Known
from xenoovs.agent.log import tell, warn
from xenoovs.agent.overrides import Ended, Merged, merge, merge_back, require_possible, with_weight
from xenoovs.agent.rollback import Before, roll_back, take_flows, touched
from xenoovs.agent.snapshot import Override
from xenoovs.agent.state import AgentState, ConfigFollowed, PortsChanged, RuntimeChanged, Tick, after, desired_state
from xenoovs.compile.drains import Draining
from xenoovs.compile.plan import ChangeKind
from xenoovs.config.load import MAX_SIZE_BYTES, parse_config
from xenoovs.decision.decision import BackendName
from xenoovs.display import decimal
from xenoovs.engine.change import Change, Problem
from xenoovs.engine.engine import Engine
from xenoovs.errors import ChangesHeld, ConfigUnreadable, NotConfirmed, StateUnusable, SwitchError, XenoovsError
from xenoovs.model.balancer import Balancer

# The config file as something that may change at any time, to something useless too: the last good one is kept.
#
# A config is good when the bridge has taken it. Until then it is a candidate: it reads well, but its ports may be
# missing or its weights impossible.


_DIGITS = 12
_Stamp = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A text that reads well, and that no round has tried with success."""

    balancer: Balancer
    digest: str


class ConfigFile:
    """`balancer`, `digest` (the start of the text's SHA-256): of the last good text.

    candidate: a newer text that may be good; problem: why the newest text is not in use, or None.
    """

    def __init__(self, path: Path) -> None:
        """Raises ConfigError, ConfigUnreadable: without any good config there is nothing to keep."""
        self.path = path
        self._stamp = self._look()
        data = _read(path)
        self.balancer: Balancer = parse_config(data, file=str(path))
        self.digest = self._newest = _digest(data)
        self.candidate: Candidate | None = None
        self.problem: XenoovsError | None = None

    @property
    def is_touched(self) -> bool:
        """Whether the file looks otherwise than at the last `poll`. Costs one stat(2)."""
        return self._look() != self._stamp

    def poll(self, *, always: bool = False) -> bool:
        """Whether the file has another text than at the last look; it is a candidate then, or `problem` says why not.

        Reading may take seconds. `always` reads an untouched file too, and tries a text anew that was refused.
        """
        stamp = self._look()
        if stamp == self._stamp and not always:
            return False
        self._stamp = stamp
        try:
            data = _read(self.path)
        except ConfigUnreadable as problem:
            is_news = always or self._newest != "" or str(problem) != str(self.problem)
            self._newest, self.candidate, self.problem = "", None, problem
            return is_news
        if _digest(data) == self._newest and not (always and self.problem is not None):
            return False
        self._newest = _digest(data)
        try:
            balancer = parse_config(data, file=str(self.path))
        except XenoovsError as problem:
            self.candidate, self.problem = None, problem
            return True
        self.candidate, self.problem = Candidate(balancer, self._newest), None
        return True

    def accept(self) -> None:
        """The candidate is good."""
        if self.candidate is not None:
            self.balancer, self.digest = self.candidate.balancer, self.candidate.digest
            self.candidate = self.problem = None

    def refuse(self, problem: XenoovsError) -> bool:
        """The candidate cannot be had now; it may be tried again. Whether that is news."""
        is_news = str(problem) != str(self.problem or "")
        self.problem = problem
        return is_news

    def go_back(self, good: Candidate, problem: XenoovsError) -> None:
        """An earlier text is the good one after all; `problem`: why the one that was accepted is not."""
        self.balancer, self.digest = good.balancer, good.digest
        self.candidate, self.problem = None, problem

    @property
    def newer(self) -> str:
        """Digest of a newer text that is not in use, empty where there is none or it cannot be read."""
        return self._newest if self.problem is not None or self.candidate is not None else ""

    @property
    def balancers(self) -> tuple[Balancer, ...]:
        """The one in use, and the one that waits to be tried."""
        return (self.balancer,) if self.candidate is None else (self.balancer, self.candidate.balancer)

    @property
    def good(self) -> Candidate:
        """The last good text."""
        return Candidate(self.balancer, self.digest)

    def _look(self) -> _Stamp | None:
        try:
            seen = self.path.stat()
        except OSError:
            return None
        return seen.st_ino, seen.st_mtime_ns, seen.st_size


def _read(path: Path) -> bytes:
    """The bytes of a regular file. Raises ConfigUnreadable; never waits for the writer of a pipe."""
    try:
        with open(path, "rb", opener=_open_at_once) as stream:
            if not S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise ConfigUnreadable(file=str(path), reason="it is a pipe or a device, and the agent reads it anew")
            return stream.read(MAX_SIZE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ConfigUnreadable(file=str(path), reason=reason) from None


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()[:_DIGITS]


# What rounds came to: told once for one problem, and counted.


_MOST_SERVICES = 20
"""Of those that one round changed are told one by one, those with the most clients that moved."""


class Report:
    """Counts from the start of the agent.

    rounds:    that changed something; flow_mods: in them; foreign: flows of others' making that were put right.
    moved:     share of clients moved, summed over all changes, by service.
    held:      flow-mods that a pause holds back now.
    problems:   what cannot be made right now, while all else is.
    last_error: why the bridge is not right now; empty while it is.
    last_round_s: UTC, when the bridge was last found or made right.
    """

    def __init__(self) -> None:
        self.rounds = self.flow_mods = self.foreign = self.held = 0
        self.moved = defaultdict[str, float](float)
        self.last_error = ""
        self.last_round_s: float | None = None
        self.problems: tuple[Problem, ...] = ()
        self._draining: dict[str, tuple[tuple[str, str], ...]] = {}
        self._kept: dict[str, frozenset[str]] = {}

    def done(self, done: Change, *, bridge: str, config: str, now_s: float) -> None:
        """A round that left the bridge right."""
        self.last_round_s, self.held = now_s, 0
        if done.lost:
            warn("the bridge had been made anew", bridge=bridge)
        if done.foreign:
            self.foreign += done.foreign
            warn("flows that somebody else had changed are put right", flows=done.foreign, bridge=bridge)
        self._tell_problems(done.problems)
        was_draining = bool(self._draining)
        self._tell_drains(done.drains)
        if done.difference.is_empty:
            return
        self.rounds += 1
        self.flow_mods += done.difference.flow_mods
        changes = [
            change for change in done.services() if change.moved or change.kind in (ChangeKind.NEW, ChangeKind.REMOVED)
        ]
        if not changes and not done.foreign and was_draining:
            # The next step of a drain, which is told when it begins and ends.
            return
        tell("flows changed", bridge=bridge, flow_mods=done.difference.flow_mods, config=config)
        for change in changes:
            self.moved[change.name] += float(change.moved)
        most_moved = sorted(changes, key=lambda change: -change.moved)
        for change in most_moved[:_MOST_SERVICES]:
            moved, least = (f"{float(share):.4f}" for share in (change.moved, change.least_moved))
            out = ",".join(change.ejected) or "-"
            tell("service changed", service=change.name, clients_moved=moved, clients_moved_least=least, out=out)
        if left := most_moved[_MOST_SERVICES:]:
            tell("more services changed", services=len(left), clients_moved_most=f"{float(left[0].moved):.4f}")

    def health(self, change: HealthChange) -> None:
        """Backends came up or went down."""
        names, held = (",".join(map("/".join, some)) for some in (change.backends, change.held))
        if change.is_up:
            tell("backend up", backends=names, reason=change.reason)
        elif change.is_late:
            warn("backend still down, and others may have its clients now", backends=names, reason=change.reason)
        else:
            warn("backend down", backends=names, **({"kept": held} if held else {}), reason=change.reason)

    def keep(self, kept: Mapping[str, frozenset[str]]) -> None:
        """Backends, by service, that are down and have their clients all the same. Told when it changes."""
        for service in sorted(kept.keys() | self._kept.keys()):
            now, before = kept.get(service, frozenset()), self._kept.get(service, frozenset())
            if now and now != before:
                warn("backends that are down keep their clients", service=service, backends=",".join(sorted(now)))
            elif before and not now:
                tell("no backend that is down keeps clients", service=service)
        self._kept = dict(kept)

    def _tell_drains(self, drains: Iterable[Draining]) -> None:
        """Once when one begins or takes another way, and once when it is over."""
        now = {drain.service: drain for drain in drains}
        for service in self._draining.keys() - now.keys():
            tell("all clients have moved", service=service)
        for service, drain in now.items():
            if drain.ways != self._draining.get(service):
                ways = ",".join(f"{old}->{new}" for old, new in drain.ways)
                tell(
                    "connections are kept", service=service, ways=ways, blocks=drain.blocks, left_s=round(drain.left_s)
                )
        self._draining = {service: drain.ways for service, drain in now.items()}

    @property
    def unreachable(self) -> dict[BackendName, str]:
        """Why backends get no clients that could have some."""
        return {name: problem.text for problem in self.problems for name in problem.backends}

    def _tell_problems(self, problems: tuple[Problem, ...]) -> None:
        """Log what cannot be made right, once, and that it can be again."""
        for problem in problems:
            if problem not in self.problems:
                warn("a part of the bridge cannot be made right", reason=problem.text)
        for problem in self.problems:
            if problem not in problems:
                tell("a part of the bridge can be made right again", reason=problem.text)
        self.problems = problems

    def hold(self, flow_mods: int) -> None:
        """A round that a pause kept from changing anything."""
        if flow_mods != self.held:
            warn("paused; the bridge is not as it should be", flow_mods=flow_mods)
        self.held = flow_mods

    def complain(self, problem: str, *, bridge: str) -> None:
        """A round that failed, or, with an empty `problem`, one that did not. Says so only when it is news."""
        if problem and problem != self.last_error:
            warn("the bridge cannot be made right; trying again", bridge=bridge, reason=problem)
        if self.last_error and not problem:
            tell("the bridge is right again", bridge=bridge)
        self.last_error = problem


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
            tell("override", service=one.service, backend=one.backend, weight=decimal(one.weight))
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
        shown = "config" if weight is None else decimal(weight)
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
            weight = decimal(one.weight)
            warn("an override has ended", service=one.service, backend=one.backend, weight=weight, reason=ended.reason)
        self._store.dispatch(RuntimeChanged(replace(self._store.state.runtime, overrides=merged.kept)))

    def _tell_refused(self, event: str, problem: XenoovsError) -> None:
        warn(event, reason=str(problem), newer=self.config.newer or "-", config=self.config.digest)
