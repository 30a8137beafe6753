"""The agent: one loop of observe -> desired -> plan -> apply -> verify -> report, until it is told to stop.

This is the wiring. What is desired follows from one value and one function, in `state`; what differs from the bridge is
found and changed by the engine; `report` logs what rounds came to. Beside the loop:
`driver` sends the probes, `reload` watches the config file, and `look` makes snapshots.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from random import uniform

from xenoovs import __version__
from xenoovs.agent.bridge_watch import BridgeWatch
from xenoovs.agent.clock import Clock
from xenoovs.agent.config_file import ConfigFile
from xenoovs.agent.driver import Probe, ProbeScheduler, Store
from xenoovs.agent.events import Events
from xenoovs.agent.health.tracker import HealthChange
from xenoovs.agent.log import tell
from xenoovs.agent.look import Looker
from xenoovs.agent.notify import Readiness, notify
from xenoovs.agent.reload import Reloader
from xenoovs.agent.report import Report
from xenoovs.agent.runtime_file import load_runtime, save_runtime
from xenoovs.agent.settings import Settings
from xenoovs.agent.sighting import Sighting
from xenoovs.agent.snapshot import Glance, PortView, Snapshot
from xenoovs.agent.state import AgentState, Effect, PortsChanged, SaveRuntime, Tick, desired_state
from xenoovs.agent.waiting import Outcome, Waiting, told_if_late
from xenoovs.agent.workers import Work, Workers
from xenoovs.decision.desired import BackendName, DesiredState
from xenoovs.engine.change import Change
from xenoovs.engine.engine import Engine
from xenoovs.errors import ChangesHeld, RoundLate, XenoovsError

_LOOK_S = 0.2
"""Between two looks at the config file and the bridge's socket, each one stat(2)."""
_RETRY_S = 0.5
"""After a round that failed. Flows are back within a second after Open vSwitch is."""
_LATE_S = 10.0
"""After so long a round that is not over is told, and nobody waits for its end any more."""
_SETTLE_S, _URGENT_S = 0.02, 0.005
"""How long a round waits for other reasons to come, and how long one does for which clients wait."""
_COUNT_S, _COUNT_PACE = 1.0, 10
"""Between two counts of the packets of a drain; each pause is at least so many times as long as the count took."""
_SPREAD = 0.1
"""By which part of itself the time between two comparisons varies."""


class Agent:
    """Its parts are for `look` and for those who show something; to have something done, use its methods."""

    def __init__(
        self,
        config: ConfigFile,
        engine: Engine,
        *,
        probe: Probe,
        clock: Clock,
        settings: Settings | None = None,
    ) -> None:
        self._settings = settings or Settings()
        self.config, self.engine, self.clock = config, engine, clock
        self.report, self.events = Report(), Events()
        self.workers = Workers(self.stop)
        runtime, self._runtime_problem = load_runtime(self._settings.runtime)
        self.store = Store(AgentState(config.balancer, config.balancer, runtime), clock)
        self.store.performers.append(self._perform)
        self.scheduler = ProbeScheduler(probe, self.store, self.workers)
        self.reloader = Reloader(config, engine, self.store, self.report, confirm_s=self._settings.confirm_s)
        self.desired = DesiredState(config.balancer)
        """What the last round made of the bridge, or tried to."""
        self._held: dict[str, frozenset[str]] = {}
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
        self._wanted, self._urgent = True, False
        self._drain_s: float | None = None

    @property
    def bridge(self) -> str:
        return self.config.balancer.uplinks.bridge

    @property
    def state(self) -> AgentState:
        return self.store.state

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
            await self._begin(once=once)
            try:
                while not self.state.tracker.is_settled and not self._stopping:
                    await self._pause(_LOOK_S)
                if once:
                    self._done(await self._round())
                    while self._drain_s is not None and not self._stopping:
                        await self._pause(self._drain_s)
                        await asyncio.to_thread(self.engine.look, now_s=self.clock.now_s())
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

    async def set_weight(self, name: BackendName, weight: Fraction | None) -> Outcome:
        """Give a backend another weight than the config, 0 to drain it, None to go back; and wait for the round.

        Raises RequestRefused, and CompileError, ToleranceUnreachable where no flows can do that: nothing changes then.
        """
        async with self._changing:
            await self.reloader.set_weight(name, weight)
        return await self.next_round()

    async def hold(self, *, hold: bool) -> Outcome | None:
        """Pause or resume. What came of the next round; None: it was so already."""
        async with self._changing:
            if not self.reloader.pause(hold=hold):
                return None
        return await self.next_round()

    async def _begin(self, *, once: bool) -> None:
        await self.reloader.begin(self._runtime_problem)
        self.workers.start(self.scheduler.forever())
        if not once:
            self.workers.start(self._watch_drains())
        for work in self._beside:
            self.workers.start(work())

    async def _watch_drains(self) -> None:
        """Count the packets of old backends while drains go on; with many connections that takes seconds."""
        while True:
            begun_s = time.monotonic()
            with suppress(XenoovsError):
                await asyncio.to_thread(self.engine.look, now_s=self.clock.now_s())
            await asyncio.sleep(max(_COUNT_S, _COUNT_PACE * (time.monotonic() - begun_s)))

    def _perform(self, effect: Effect) -> None:
        if isinstance(effect, HealthChange):
            self.report.health(effect)
            self._urgent = True
            self.want_round()
        elif isinstance(effect, SaveRuntime):
            save_runtime(self._settings.runtime, effect.runtime)

    async def _rounds_forever(self) -> None:
        next_round_s = self.clock.now_s()
        while not self._stopping:
            await self._look()
            if self._wanted or self._is_lost() or self.clock.now_s() >= next_round_s:
                self._wanted, self._drain_s = False, None
                is_good = await self._try_round()
                next_round_s = self.clock.now_s() + (self._quiet_s() if is_good else _RETRY_S)
                if is_good and not self.report.problems:
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
        has_ramped = self.state.ramps(self.clock.now_s()) != self.desired.ramps
        if await self.reloader.look(always=always) or self.reloader.is_due or has_ramped:
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
        left_out = "; ".join(problem.text for problem in done.problems)
        notify(f"STATUS={left_out or f'bridge {self.bridge} is as config {self.config.digest} says'}")
        self._waiting.settle(done)
        return True

    def _late(self) -> None:
        self._waiting.begin()
        self._failed(RoundLate(bridge=self.bridge, after_s=_LATE_S))

    def _failed(self, problem: XenoovsError) -> None:
        self.report.complain(str(problem), bridge=self.bridge)
        notify(f"STATUS={str(problem).splitlines()[0]}")
        self._waiting.settle(problem)

    async def _round(self) -> Change:
        async with self._changing:
            try:
                await self.reloader.follow_if_blind()
                await self.reloader.take_back_if_due()
                tried = await self.reloader.try_candidate()
            finally:
                # A config that cannot be tried now is an answer too: nobody waits for the end of an outage.
                self._waiting.begin()
        urgent, self._urgent = self._urgent, False
        ports_down = self.engine.ports_down()
        urgent = urgent or ports_down != self.state.ports_down
        self.store.dispatch(PortsChanged(ports_down), Tick())
        now_s = self.clock.now_s()
        self.desired, self._held = desired_state(self.state, now_s), self.state.held
        if tried is not None:
            return tried
        return await asyncio.to_thread(self.engine.round, self.desired, now_s=now_s, urgent=urgent)

    def _done(self, done: Change) -> None:
        self._drain_s = done.next_s
        self.report.complain("", bridge=self.bridge)
        self.report.done(done, bridge=self.bridge, config=self.config.digest, now_s=time.time())
        self.report.keep(self._held)

    def _is_lost(self) -> bool:
        # While something is wrong anyway, the retry will find out.
        return not self.report.last_error and self.engine.is_lost(self.bridge)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), seconds)
            # Backends that fall together, as those of one rack do, are moved in one round.
            await asyncio.sleep(_URGENT_S if self._urgent else _SETTLE_S)
        self._wake.clear()
