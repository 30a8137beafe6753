"""The agent: one loop of observe -> desired -> plan -> apply -> verify -> report, until it is told to stop.

This is the wiring. What is desired is decided in `aim`; what differs from the bridge and how it is made so in
`reconcile` (plan, apply, verify); what rounds came to is told by `report`. Beside the loop: `asking` sends the probes,
`reload` looks after the config file, `operate` after what people ask for, and `look` puts all of it into a snapshot.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from random import uniform

from xenoovs import __version__
from xenoovs.agent.aim import Aim, Desired
from xenoovs.agent.asking import Asker
from xenoovs.agent.bridge_watch import BridgeWatch
from xenoovs.agent.check import Probe
from xenoovs.agent.clock import Clock
from xenoovs.agent.config_file import ConfigFile
from xenoovs.agent.events import Events
from xenoovs.agent.log import tell
from xenoovs.agent.look import Looker
from xenoovs.agent.notify import Readiness, notify
from xenoovs.agent.operate import Operator
from xenoovs.agent.overrides import show_weight
from xenoovs.agent.reconcile import Reconciler, Round
from xenoovs.agent.reload import Reloader
from xenoovs.agent.report import Report
from xenoovs.agent.settings import Settings
from xenoovs.agent.sighting import Sighting
from xenoovs.agent.snapshot import Glance, PortView, Snapshot
from xenoovs.agent.waiting import Outcome, Waiting, told_if_late
from xenoovs.agent.watch import Watch
from xenoovs.agent.workers import Work, Workers
from xenoovs.errors import ChangesHeld, RoundLate, SwitchError, XenoovsError

_LOOK_S = 0.2
"""Between two looks at the config file and the bridge's socket, each one stat(2)."""
_RETRY_S = 0.5
"""After a round that failed. Flows are back within a second after Open vSwitch is."""
_LATE_S = 10.0
"""After so long a round that is not over is told, and nobody waits for its end any more."""
_SETTLE_S = 0.02
_SPREAD = 0.1
"""By which part of itself the time between two comparisons varies."""


class Agent:
    """Its parts are for `look` and for those who show something; to have something done, use its methods."""

    def __init__(
        self,
        config: ConfigFile,
        reconciler: Reconciler,
        *,
        probe: Probe,
        clock: Clock,
        settings: Settings | None = None,
    ) -> None:
        self._settings = settings or Settings()
        self.config, self.reconciler, self.clock = config, reconciler, clock
        self.report, self.events, self.operator = Report(), Events(), Operator(self._settings.runtime)
        self.workers = Workers(self.stop)
        self.aim = Aim(Watch(), clock, reconciler.ports_down)
        self.asker = Asker(probe, self.aim.watch, clock, self.workers, changed=self.want_round)
        self.reloader = Reloader(
            config, reconciler, aim=self.aim, operator=self.operator, confirm_s=self._settings.confirm_s
        )
        self.desired = Desired(config.balancer, config.balancer, {}, {})
        self.offload: Sighting | None = None
        self.ports: Callable[[], tuple[PortView, ...] | None] = lambda: None
        """The ports of the bridge that the config names; None while nobody tells."""
        self.ports_problem: Callable[[], str] = lambda: ""
        """Why nobody tells of them any more; empty while somebody does, or is only about to."""
        self.started_s = time.time()
        self._looker = Looker(self)
        self._beside: list[Work] = []
        self._waiting = Waiting()
        # One change of what is desired at a time: each is tried against all others.
        self._changing = asyncio.Lock()
        self._wake = asyncio.Event()
        self._stopping = self._reload = False
        self._readiness = Readiness()
        self._wanted = True
        self._drain_s: float | None = None

    @property
    def bridge(self) -> str:
        return self.config.balancer.uplinks.bridge

    @property
    def rounds(self) -> int:
        """Rounds that changed something."""
        return self.report.rounds

    @property
    def foreign(self) -> int:
        """Flows of others' making that were put right."""
        return self.report.foreign

    def beside(self, work: Work) -> None:
        """Register a worker: it runs beside the rounds from the start of `run` to its end."""
        self._beside.append(work)

    def watch_bridge(self, db: str) -> None:
        """Follow the ports in the database (`db` as of Endpoint) beside the rounds."""
        watch = BridgeWatch(db, balancer=lambda: self.config.balancer, want_round=self.want_round)
        self.ports, self.ports_problem = watch.ports, watch.problem
        self.beside(watch.forever)

    def show_offload(self, sighting: Sighting) -> None:
        """What a look at the hardware found just now; snapshots have it from here."""
        self.offload = sighting

    def glance(self) -> Glance:
        """All that is known now, taken at once; within the event loop of the agent."""
        return self._looker.glance()

    def snapshot(self) -> Snapshot:
        """The same, made at once: with thousands of backends the loop would wait for it."""
        return self.glance().snapshot()

    async def run(self, *, once: bool = False) -> None:
        """Work until `stop` or, with `once`, until every backend was asked once and the bridge is right.

        With `once` waits for the end of drains too, and raises what kept the bridge from being right. So does a mistake
        of ours in a probe: systemd starts an agent anew, and none may go on without its eyes.
        """
        with self.events.listening():
            tell("starting", bridge=self.bridge, config=self.config.digest, file=self.config.path, version=__version__)
            self.reconciler.is_held = self.operator.runtime.is_paused
            await self._begin()
            try:
                while not self.aim.watch.is_settled and not self._stopping:
                    await self._pause(_LOOK_S)
                if once:
                    self._done(await self._round())
                    while self._drain_s is not None and not self._stopping:
                        await self._pause(self._drain_s)
                        self._done(await self._round())
                    return
                await self._rounds_forever()
            finally:
                notify("STOPPING=1")
                await self.workers.stop()
        if self.workers.mistake is not None:
            raise self.workers.mistake

    def stop(self) -> None:
        """End after the round that is under way. The flows stay."""
        self._stopping = True
        self._wake.set()

    def reload(self) -> None:
        """Read the config file now."""
        self._reload = True
        self._readiness.reloading()
        self._wake.set()

    def want_round(self) -> None:
        """Make a round soon."""
        self._wanted = True
        self._wake.set()

    async def next_round(self) -> Outcome:
        """Make a round now and wait for what comes of it."""
        ticket = self._waiting.ticket()
        self.want_round()
        return await ticket

    async def set_weight(self, names: tuple[str, str], weight: Fraction | None) -> Outcome:
        """Give a backend another weight than the config, 0 to drain it, None to go back; and wait for the round.

        Raises RequestRefused, and CompileError, ToleranceUnreachable where no flows can do that: nothing changes then.
        """
        async with self._changing:
            runtime = self.operator.with_weight(self.config.balancer, names, weight)
            now = self.operator.overrides
            await asyncio.to_thread(self.aim.check, self.config.balancer, runtime.overrides, instead_of=now)
            self.operator.take(runtime)
            shown = "config" if weight is None else show_weight(weight)
            tell("weight set", service=names[0], backend=names[1], weight=shown)
            if not self.aim.is_following(self.config.balancer, runtime.overrides):
                await self._follow()
        return await self.next_round()

    async def hold(self, *, hold: bool) -> Outcome | None:
        """Pause or resume. What came of the next round; None: it was so already."""
        async with self._changing:
            if not self.operator.pause(hold=hold):
                return None
            self.reconciler.is_held = hold
        return await self.next_round()

    async def _begin(self) -> None:
        self.operator.begin(self.config.balancer)
        await self._follow()
        self.workers.start(self.asker.forever())
        for work in self._beside:
            self.workers.start(work())

    async def _rounds_forever(self) -> None:
        next_round_s = self.clock.now_s()
        while not self._stopping:
            await self._look()
            if self._wanted or self._is_lost() or self.clock.now_s() >= next_round_s:
                self._wanted, self._drain_s = False, None
                is_good = await self._try_round()
                next_round_s = self.clock.now_s() + (self._quiet_s() if is_good else _RETRY_S)
                if is_good:
                    self._readiness.up()
            if not self._reload:
                self._readiness.settled()
            notify("WATCHDOG=1")
            await self._pause(_LOOK_S)
        tell("stopping; the flows stay", rounds=self.rounds, foreign=self.foreign)

    def _quiet_s(self) -> float:
        """Until the next round for which nothing but time gives a reason."""
        # Agents that were started together, one a host, shall not all dump at once for ever.
        resync_s = self._settings.resync_s * uniform(1 - _SPREAD, 1 + _SPREAD)  # noqa: S311
        return resync_s if self._drain_s is None else min(resync_s, self._drain_s)

    async def _look(self) -> None:
        """Whatever gives a reason for a round besides health."""
        always, self._reload = self._reload, False
        if await self.reloader.look(always=always) or self.reloader.is_due or self.aim.ramps() != self.desired.ramps:
            self._wanted = True

    async def _try_round(self) -> bool:
        try:
            with told_if_late(self._late, after_s=_LATE_S):
                done = await self._round()
        except ChangesHeld as held:
            self.report.hold(held.flow_mods)
            notify(f"STATUS={held}")
            self._waiting.settle(held)
            return True
        except XenoovsError as problem:
            self._failed(problem)
            return False
        self._done(done)
        notify(f"STATUS=bridge {self.bridge} is as config {self.config.digest} says")
        self._waiting.settle(done)
        return True

    def _late(self) -> None:
        self._waiting.begin()
        self._failed(RoundLate(bridge=self.bridge, after_s=_LATE_S))

    def _failed(self, problem: XenoovsError) -> None:
        self.report.complain(str(problem), bridge=self.bridge)
        notify(f"STATUS={str(problem).splitlines()[0]}")
        self._waiting.settle(problem)

    async def _round(self) -> Round:
        async with self._changing:
            try:
                await self.reloader.follow_if_blind()
                await self.reloader.take_back_if_due()
                tried = await self.reloader.try_candidate()
            finally:
                # A config that cannot be tried now is an answer too: nobody waits for the end of an outage.
                self._waiting.begin()
        self.desired = desired = self.aim.desired(self.config.balancer, self.operator.overrides)
        if tried is not None:
            return tried
        now_s = self.clock.now_s()
        return await asyncio.to_thread(self.reconciler.round, desired.balancer, desired.out, now_s=now_s)

    def _done(self, done: Round) -> None:
        self._drain_s = done.next_s
        self.report.complain("", bridge=self.bridge)
        self.report.done(done, bridge=self.bridge, config=self.config.digest, now_s=time.time())
        self.report.keep(self.aim.kept(self.desired))

    def _is_lost(self) -> bool:
        # While something is wrong anyway, the retry will find out.
        return not self.report.last_error and self.reconciler.is_lost(self.bridge)

    async def _follow(self) -> None:
        try:
            await self.reloader.follow()
        except SwitchError as problem:
            self.report.complain(str(problem), bridge=self.bridge)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), seconds)
            # Backends that fall together, as those of one rack do, are moved in one round.
            await asyncio.sleep(_SETTLE_S)
        self._wake.clear()
