"""The agent: one loop of observe -> desired -> plan -> apply -> verify -> report, until it is told to stop.

This is the wiring. What is desired is decided in `desired`, what differs and how it is made so in `reconcile` (plan,
apply and verify), who is asked when in `asking`, what is said of it all in `report`, what can be seen in `view`.
"""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import suppress
from dataclasses import dataclass

from xenoovs.agent.asking import Asker
from xenoovs.agent.check import Probe, uses_of
from xenoovs.agent.clock import Clock
from xenoovs.agent.config_file import ConfigFile
from xenoovs.agent.desired import Names, Ramps, effective
from xenoovs.agent.events import Events
from xenoovs.agent.log import tell, warn
from xenoovs.agent.notify import notify
from xenoovs.agent.reconcile import Reconciler, Round
from xenoovs.agent.report import Report
from xenoovs.agent.sighting import Sighting
from xenoovs.agent.snapshot import Override, Snapshot
from xenoovs.agent.view import HealthView, Seen, service_views
from xenoovs.agent.workers import Work, Workers
from xenoovs.compile.program import Outages
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


@dataclass(frozen=True, slots=True)
class _Desired:
    """What the last round aimed at."""

    balancer: Balancer
    out: Outages
    ramps: Ramps


class Agent:
    """`report`: counts of its rounds; `events`: what it said; `asker`: the probes and their last answers."""

    def __init__(
        self, config: ConfigFile, reconciler: Reconciler, *, probe: Probe, clock: Clock, pace: Pace | None = None
    ) -> None:
        self._config, self._reconciler, self._clock = config, reconciler, clock
        self._pace = pace or Pace()
        self._workers = Workers(self.stop)
        self._beside: list[Work] = []
        self.asker = Asker(probe, clock, self._workers, changed=self.want_round)
        self.report, self.events = Report(), Events()
        self._wake = asyncio.Event()
        self._stopping = self._reload = False
        self._wanted = True
        self._desired = _Desired(config.balancer, {}, {})
        self._overrides: tuple[Override, ...] = ()
        self._offload: Sighting | None = None
        self._started_s = time.time()

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

    def show_offload(self, sighting: Sighting) -> None:
        """What a look at the hardware found just now; snapshots have it from here."""
        self._offload = sighting

    async def run(self, *, once: bool = False) -> None:
        """Work until `stop` or, with `once`, until every backend was asked once and the bridge is right.

        With `once` raises what kept the bridge from being right. A mistake of ours in a probe ends it: systemd starts
        an agent anew, and none may go on without its eyes.
        """
        with self.events.listening():
            await self._follow()
            self._workers.start(self.asker.forever())
            for work in self._beside:
                self._workers.start(work())
            try:
                while not self.asker.watch.is_settled and not self._stopping:
                    await self._pause(_LOOK_S)
                if once:
                    self._done(await self._round())
                    return
                await self._rounds_forever()
            finally:
                notify("STOPPING=1")
                await self._workers.stop()
        if self._workers.mistake is not None:
            raise self._workers.mistake

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

    def snapshot(self) -> Snapshot:
        """All that is known now; within the event loop of the agent."""
        desired, sighting = self._desired, self._offload
        program = self._reconciler.program
        seen = Seen(
            config=self._config.balancer,
            desired=desired.balancer,
            program=program,
            out=desired.out,
            health=self._health(),
            overrides=self._overrides,
            ramps=desired.ramps,
            offload=sighting,
            moved=self.report.moved,
        )
        return Snapshot(
            bridge=self._bridge,
            config_path=str(self._config.path),
            config_digest=self._config.digest,
            started_s=self._started_s,
            now_s=time.time(),
            services=service_views(seen),
            config_problem=str(self._config.problem or ""),
            last_error=self.report.last_error,
            flows=0 if program is None else len(program.flows),
            rounds=self.report.rounds,
            flow_mods=self.report.flow_mods,
            foreign=self.report.foreign,
            reloads=self.report.reloads,
            last_round_s=self.report.last_round_s,
            verified_s=None if sighting is None else sighting.seen_s,
            overrides=self._overrides,
            events=self.events.since(0),
        )

    def _health(self) -> dict[Names, HealthView]:
        found, ahead_s = dict[Names, HealthView](), time.time() - self._clock.now_s()
        for use in uses_of(self._config.balancer):
            standing, answer = self.asker.watch.standing_of(use.check), self.asker.answers.get(use.check)
            if standing is not None and answer is not None:
                since_s = standing.since_s + ahead_s
                view = HealthView(standing.is_up, since_s, answer.reason, answer.latency_s, answer.transitions)
                found[use.service.name, use.backend.name] = view
        return found

    async def _rounds_forever(self) -> None:
        next_round_s, is_ready = self._clock.now_s(), False
        while not self._stopping:
            await self._look_at_config()
            if self._wanted or self._is_lost() or self._clock.now_s() >= next_round_s:
                self._wanted = False
                is_good = await self._try_round()
                next_round_s = self._clock.now_s() + (self._pace.resync_s if is_good else _RETRY_S)
                if is_good and not is_ready:
                    is_ready = True
                    notify("READY=1")
            notify("WATCHDOG=1")
            await self._pause(_LOOK_S)
        tell("stopping; the flows stay", rounds=self.rounds, foreign=self.foreign)

    async def _try_round(self) -> bool:
        try:
            self._done(await self._round())
        except XenoovsError as problem:
            self.report.complain(str(problem), bridge=self._bridge)
            return False
        self.report.complain("", bridge=self._bridge)
        return True

    async def _round(self) -> Round:
        self._desired = desired = self._desire()
        return await asyncio.to_thread(self._reconciler.round, desired.balancer, desired.out)

    def _desire(self) -> _Desired:
        ramps: Ramps = {}
        balancer = effective(self._config.balancer, self._overrides, ramps)
        return _Desired(balancer, self.asker.watch.outages(balancer), ramps)

    def _done(self, done: Round) -> None:
        self.report.done(done, bridge=self._bridge, config=self._config.digest, now_s=time.time())

    def _is_lost(self) -> bool:
        # While something is wrong anyway, the retry will find out.
        return not self.report.last_error and self._reconciler.is_lost(self._bridge)

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
        self.report.reloads += 1
        tell("config read", file=self._config.path, config=self._config.digest)
        await self._follow()
        self._wanted = True

    async def _follow(self) -> None:
        balancer: Balancer = self._config.balancer
        try:
            known = await asyncio.to_thread(self._reconciler.known, balancer)
        except SwitchError as problem:
            self.report.complain(str(problem), bridge=self._bridge)
            known = {}
        self.asker.watch.follow(balancer, known, now_s=self._clock.now_s())
        self.asker.forget(frozenset(use.check for use in uses_of(balancer)))

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), seconds)
            # Backends that fall together, as those of one rack do, are moved in one round.
            await asyncio.sleep(_SETTLE_S)
        self._wake.clear()
