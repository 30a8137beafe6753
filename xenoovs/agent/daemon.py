"""The agent: one loop of observe -> desired -> plan -> apply -> verify -> report, until it is told to stop.

This is the wiring. What is desired follows from one value and one function, in `state`; what differs from the bridge is
found and changed by the engine. Beside the loop:
`driver` sends the probes, `reload` watches the config file and logs what
rounds came to, and `view` makes snapshots.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from random import uniform

from xenoovs import __version__
from xenoovs.agent.bridge_watch import BridgeWatch
from xenoovs.agent.driver import Clock, Probe, ProbeScheduler, Store, Work, Workers
from xenoovs.agent.health import HealthChange
from xenoovs.agent.log import LOGGER, Repeats, facts_of, spoken_of, tell
from xenoovs.agent.reload import ConfigFile, Reloader, Report
from xenoovs.agent.runtime_file import RuntimeFile, load_runtime, save_runtime
from xenoovs.agent.snapshot import Event, Glance, PortView, Snapshot
from xenoovs.agent.state import AgentState, Effect, PortsChanged, SaveRuntime, Tick, desired_state
from xenoovs.agent.view import Looker, Sighting
from xenoovs.decision.decision import BackendName, DesiredState
from xenoovs.engine.change import Change
from xenoovs.engine.engine import Engine
from xenoovs.errors import ChangesHeld, RoundLate, XenoovsError

# How an agent works: what its command line says.


@dataclass(frozen=True, slots=True)
class Settings:
    """How an agent works.

    resync_s:  between two rounds for which nothing but time gives a reason; they find foreign changes.
    confirm_s: how long a new config waits to be confirmed before it is taken back; None: it need not be.
    runtime:   where overrides outlive a restart; None: nowhere.
    """

    resync_s: float = 10.0
    confirm_s: float | None = None
    runtime: RuntimeFile | None = None


# What systemd is told (sd_notify(3)): a datagram of `KEY=value` lines to the socket that it names.


def notify(message: str) -> bool:
    """WATCHDOG=1, STOPPING=1, STATUS=... False: it was lost, as where systemd does not read. True without systemd."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return True
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        sock.settimeout(0)
        try:
            # A name that starts with @ stands in the abstract namespace (unix(7)).
            sock.sendto(message.encode(), "\0" + address[1:] if address[0] == "@" else address)
        except OSError:
            return False
    return True


class Readiness:
    """Tells that the service is ready, and when it reads its config again. READY=1 is said until it is heard."""

    def __init__(self) -> None:
        self._is_up = self._is_owed = False

    def up(self) -> None:
        """The bridge is right. Counts the first time."""
        if not self._is_up:
            self._is_up = self._is_owed = True

    def reloading(self) -> None:
        """The config is to be read. Nothing while the service starts: READY=1 would end that too."""
        if self._is_up:
            # Type=notify-reload (systemd.service(5), since 253) goes by the time.
            notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
            self._is_owed = True

    def settled(self) -> None:
        """Everything asked for was tried."""
        if self._is_owed:
            self._is_owed = not notify("READY=1")


# Lets whoever asked for a change wait for the round that makes it.


Outcome = Change | XenoovsError


@contextmanager
def told_if_late(late: Callable[[], None], *, after_s: float) -> Iterator[None]:
    """Call `late` if the `with` is not over after this time; within an event loop."""
    timer = asyncio.get_running_loop().call_later(after_s, late)
    try:
        yield
    finally:
        timer.cancel()


class Waiting:
    """Futures of rounds to come; within one event loop."""

    def __init__(self) -> None:
        self._next: list[asyncio.Future[Outcome]] = []
        self._now: list[asyncio.Future[Outcome]] = []

    def ticket(self) -> asyncio.Future[Outcome]:
        """What the next round that begins comes to."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._next.append(future)
        return future

    def begin(self) -> None:
        """A round begins: it knows all that was asked until now, and nothing that is asked later."""
        self._now, self._next = self._now + self._next, []

    def settle(self, outcome: Outcome) -> None:
        """The round that began is over. Those who gave up waiting are left out."""
        settled, self._now = self._now, []
        for future in settled:
            if not future.done():
                future.set_result(outcome)


# The last events of the log, kept in memory for `xenoovs logs`, the API and the page.


KEPT = 1_000


class Events(logging.Handler):
    """Numbered from 1 at the start of the agent; the oldest are dropped when there are more than `KEPT`.

    Where one process keeps several bridges: those of this one, and those of none.
    """

    def __init__(self) -> None:
        super().__init__()
        self._events: deque[Event] = deque(maxlen=KEPT)
        self._count, self._bridge = 0, ""
        self._arrival: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Keep what is logged meanwhile, and let what repeats itself be told seldom; within the loop of the agent."""
        logger, loop = logging.getLogger(LOGGER), asyncio.get_running_loop()
        self._loop, self._arrival, self._bridge = loop, asyncio.Event(), spoken_of()
        repeats = Repeats(logger, lambda after_s, tell: loop.call_soon_threadsafe(loop.call_later, after_s, tell))
        logger.addHandler(self)
        logger.addFilter(repeats)
        logger.setLevel(logging.INFO)
        try:
            yield
        finally:
            logger.removeFilter(repeats)
            logger.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if self._bridge and facts_of(record).get("bridge", self._bridge) != self._bridge:
            return
        self._count += 1
        level = record.levelname.lower()
        self._events.append(Event(record.created, level, record.getMessage(), facts_of(record), self._count))
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    @property
    def last(self) -> int:
        """The number of the newest event; 0: there is none."""
        return self._count

    def since(self, number: int) -> tuple[Event, ...]:
        """The events kept whose number is above `number`, oldest first."""
        return tuple(event for event in tuple(self._events) if event.number > number)

    async def wait_after(self, number: int) -> None:
        """Until there is an event whose number is above `number`."""
        while self._count <= number and self._arrival is not None:
            await self._arrival.wait()

    def _wake(self) -> None:
        if self._arrival is not None:
            self._arrival.set()
            self._arrival = asyncio.Event()


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
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._wake.wait(), seconds)
            # Backends that fall together, as those of one rack do, are moved in one round.
            await asyncio.sleep(_URGENT_S if self._urgent else _SETTLE_S)
        self._wake.clear()
