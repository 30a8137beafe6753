"""The agent: asks backends, watches the config and the bridge, and makes rounds until it is told to stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass

from xenoovs.agent.check import Check, Probe
from xenoovs.agent.clock import Clock
from xenoovs.agent.config_file import ConfigFile
from xenoovs.agent.log import tell, warn
from xenoovs.agent.notify import notify
from xenoovs.agent.reconcile import Reconciler, Round
from xenoovs.agent.watch import Watch
from xenoovs.errors import SwitchError, XenoovsError
from xenoovs.model.balancer import Balancer

_LOOK_S = 0.2
"""Between two looks at the config file and the bridge's socket, each one stat(2)."""
_RETRY_S = 0.5
"""After a round that failed. Flows are back within a second after Open vSwitch is."""
_SETTLE_S = 0.02


@dataclass(frozen=True, slots=True)
class Pace:
    """`resync_s`: between two rounds for which nothing but time gives a reason; they find foreign changes."""

    resync_s: float = 10.0


class Agent:
    """`rounds`, `foreign`: rounds that changed something, and flows of others' making that were put right."""

    def __init__(
        self, config: ConfigFile, reconciler: Reconciler, *, probe: Probe, clock: Clock, pace: Pace | None = None
    ) -> None:
        self._config, self._reconciler, self._probe, self._clock = config, reconciler, probe, clock
        self._pace = pace or Pace()
        self._watch = Watch()
        self._wake = asyncio.Event()
        self._stopping = False
        self._reload = False
        self._wanted = True
        self._tasks: set[asyncio.Task[None]] = set()
        self._mistake: BaseException | None = None
        self._complaint = ""
        self._drain_s: float | None = None
        self.rounds = self.foreign = 0

    async def run(self, *, once: bool = False) -> None:
        """Work until `stop` or, with `once`, until every backend was asked once and the bridge is right.

        With `once` raises what kept the bridge from being right. A mistake of ours in a probe ends it: systemd starts
        an agent anew, and none may go on without its eyes.
        """
        await self._follow()
        self._start(self._probe_forever())
        try:
            while not self._watch.is_settled and not self._stopping:
                await self._pause(_LOOK_S)
            if once:
                self._report(await self._round())
                return
            await self._rounds_forever()
        finally:
            notify("STOPPING=1")
            for task in tuple(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._mistake is not None:
            raise self._mistake

    def stop(self) -> None:
        """End after the round that is under way. The flows stay."""
        self._stopping = True
        self._wake.set()

    def reload(self) -> None:
        """Read the config file now."""
        self._reload = True
        self._wake.set()

    def want_round(self) -> None:
        """Make a round soon."""
        self._wanted = True
        self._wake.set()

    def handle_signals(self, loop: asyncio.AbstractEventLoop) -> None:
        """SIGTERM and SIGINT stop, SIGHUP reloads."""
        loop.add_signal_handler(signal.SIGTERM, self.stop)
        loop.add_signal_handler(signal.SIGINT, self.stop)
        loop.add_signal_handler(signal.SIGHUP, self.reload)

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (mistake := task.exception()) is not None:
            self._mistake = mistake
            self.stop()

    async def _rounds_forever(self) -> None:
        next_round_s, is_ready = self._clock.now_s(), False
        while not self._stopping:
            await self._look_at_config()
            if self._wanted or self._is_lost() or self._clock.now_s() >= next_round_s:
                self._wanted = False
                self._drain_s = None
                is_good = await self._try_round()
                pause_s = min(self._pace.resync_s, self._drain_s or self._pace.resync_s) if is_good else _RETRY_S
                next_round_s = self._clock.now_s() + pause_s
                if is_good and not is_ready:
                    is_ready = True
                    notify("READY=1")
            notify("WATCHDOG=1")
            await self._pause(_LOOK_S)
        tell("stopping; the flows stay", rounds=self.rounds, foreign=self.foreign)

    async def _try_round(self) -> bool:
        try:
            self._report(await self._round())
        except XenoovsError as problem:
            self._complain(str(problem))
            return False
        self._complain("")
        return True

    async def _round(self) -> Round:
        out = self._watch.outages()
        now_s = self._clock.now_s()
        done = await asyncio.to_thread(self._reconciler.round, self._config.balancer, out, now_s=now_s)
        self._drain_s = done.next_s
        return done

    def _report(self, done: Round) -> None:
        if done.lost:
            warn("the bridge had been made anew", bridge=self._bridge)
        if done.foreign:
            self.foreign += done.foreign
            warn("flows that somebody else had changed are put right", flows=done.foreign, bridge=self._bridge)
        if done.difference.is_empty:
            return
        self.rounds += 1
        for drain in done.drains:
            old, new = ",".join(drain.old), ",".join(drain.new)
            left_s = round(drain.left_s)
            tell("connections are kept", service=drain.service, old=old, new=new, blocks=drain.blocks, left_s=left_s)
        tell("flows changed", bridge=self._bridge, flow_mods=done.difference.flow_mods, config=self._config.digest)
        for change in done.services:
            moved, least = (f"{float(share):.4f}" for share in (change.moved, change.least_moved))
            out = ",".join(change.out) or "-"
            tell("service changed", service=change.name, clients_moved=moved, clients_moved_least=least, out=out)

    def _complain(self, problem: str) -> None:
        """Once for one problem, and once when it is over."""
        if problem and problem != self._complaint:
            warn("the bridge cannot be made right; trying again", reason=problem)
        if self._complaint and not problem:
            tell("the bridge is right again", bridge=self._bridge)
        self._complaint = problem

    def _is_lost(self) -> bool:
        # While something is wrong anyway, the retry will find out.
        return not self._complaint and self._reconciler.is_lost(self._bridge)

    @property
    def _bridge(self) -> str:
        return self._config.balancer.uplinks.bridge

    async def _look_at_config(self) -> None:
        changed = self._config.poll(always=self._reload)
        self._reload = False
        if not changed:
            return
        if self._config.problem is not None:
            warn(
                "the config cannot be used; the last good one stays",
                reason=str(self._config.problem),
                config=self._config.digest,
            )
            return
        tell("config read", file=self._config.path, config=self._config.digest)
        await self._follow()
        self._wanted = True

    async def _follow(self) -> None:
        balancer: Balancer = self._config.balancer
        try:
            known = await asyncio.to_thread(self._reconciler.known, balancer)
        except SwitchError as problem:
            self._complain(str(problem))
            known = {}
        self._watch.follow(balancer, known, now_s=self._clock.now_s())

    async def _probe_forever(self) -> None:
        while True:
            for check in self._watch.take_due(self._clock.now_s()):
                self._start(self._ask(check))
            due_s = self._watch.next_due_s()
            pause_s = _LOOK_S if due_s is None else min(_LOOK_S, max(0.0, due_s - self._clock.now_s()))
            await asyncio.sleep(max(pause_s, 0.001))

    async def _ask(self, check: Check) -> None:
        asked_s = self._clock.now_s()
        result = await self._probe(check.target, timeout_s=check.health.timeout_ms / 1000)
        changed = self._watch.record(check, ok=result.ok, asked_s=asked_s, now_s=self._clock.now_s())
        if changed is not None:
            say = tell if changed.is_up else warn
            state = "up" if changed.is_up else "down"
            say(f"backend {state}", backends=",".join(changed.names), reason=result.reason)
            self._wanted = True
            self._wake.set()

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), seconds)
            # Backends that fall together, as those of one rack do, are moved in one round.
            await asyncio.sleep(_SETTLE_S)
        self._wake.clear()
