"""The agent: one loop that observes the bridge, plans and applies changes, and reads them back, until it is stopped.

`state` is a pure function that returns the desired state. The engine compares it with the bridge and changes the
bridge. `scheduler` sends the probes, `reload` follows the config file, and `snapshot_builder` makes snapshots.
`cli/run_agents` lists what runs beside the rounds.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from random import uniform
from typing import TYPE_CHECKING, TypeVar

from xenoovs import __version__
from xenoovs.agent.announce import not_ready
from xenoovs.agent.bridge_watch import follow_bridge, port_views
from xenoovs.agent.config_file import ConfigFile
from xenoovs.agent.health import AdvertisedChange, HealthChange
from xenoovs.agent.notify import Notifier
from xenoovs.agent.paths.mover import Mover
from xenoovs.agent.paths.views import remote_views
from xenoovs.agent.reload import Reloader, Settings
from xenoovs.agent.report import BackendChanges, Report
from xenoovs.agent.runtime_file import load_runtime
from xenoovs.agent.scheduler import Probe, ProbeScheduler
from xenoovs.agent.snapshot_builder import lazy_snapshot
from xenoovs.agent.state import (
    IMPOSSIBLE,
    AdvertisedRefused,
    AgentState,
    BlocksPlaced,
    RoundFacts,
    Runtime,
    Tick,
    desired_state,
    impossible_advertised,
)
from xenoovs.agent.state_store import StateStore
from xenoovs.agent.tasks import BackgroundTasks, LoopCall, TaskFactory, kept_running, run_all, within
from xenoovs.dataclass import replace
from xenoovs.decision.decision import DesiredState
from xenoovs.engine.change import Change
from xenoovs.engine.engine import Engine
from xenoovs.errors import ChangesHeld, RoundLate, XenoovsError, problem_of
from xenoovs.log import (
    LOGGER,
    Readiness,
    RepeatFilter,
    bridge_context,
    current_bridge,
    facts_of,
    info,
    notify,
    warn,
)
from xenoovs.model.balancer import Balancer
from xenoovs.show.paths import RemoteView
from xenoovs.show.snapshot import Event, LazySnapshot, Override, PortView, Snapshot

if TYPE_CHECKING:
    from aiohttp.web import RouteDef

_POLL_S = 0.2
"""Time between two checks of the config file and of the bridge's socket, one stat(2) each."""
_RETRY_S = 0.5
"""Pause after a failed round. Flows are back within a second after a restart of Open vSwitch."""
_LATE_S = 20.0
"""A round that takes longer is reported, and requests wait as long at most. Most waits for Open vSwitch end earlier
(revalidator/wait after 15 s, OVSDB after 10 s), so that their errors come first."""
_COALESCE_S, _URGENT_COALESCE_S = 0.02, 0.005
"""How long a round waits for more changes, and how long if clients wait."""
_MEASURE_S, _MEASURE_RATIO = 1.0, 10
"""Shortest pause between two measurements of a drain, and the least ratio of a pause to the time of the dumps."""
_SAVE_RETRY_S = 5.0
_RESYNC_JITTER = 0.1
"""The time between two comparisons varies by this part of it."""

T = TypeVar("T")
Outcome = Change | XenoovsError
"""The change that a round made, or why it failed."""


class Agent:
    """An agent of one bridge. Its attributes are for snapshots and metrics; changes go through its methods."""

    def __init__(self, config: ConfigFile, engine: Engine, *, probe: Probe, settings: Settings | None = None) -> None:
        self._settings = settings or Settings()
        self.config, self.engine = config, engine
        self.report, self.events, self.changes = Report(), EventLog(), BackendChanges()
        self.tasks = BackgroundTasks()
        runtime, self._runtime_problem = load_runtime(self._settings.runtime)
        state = AgentState(config.balancer, config.balancer, runtime)
        self.store = StateStore(state, self._settings.now_s, self.changes.observe)
        for kind, handle in (
            (HealthChange, self.report.health),
            (HealthChange, self._request_urgent_round),
            (AdvertisedChange, self.report.advertised),
            (AdvertisedChange, self._advertised_changed),
            (Override, self.report.expired),
            (BlocksPlaced, self._request_urgent_round),
            (HealthChange, self.changes.health),
            (AdvertisedChange, self.changes.advertised),
        ):
            self.store.subscribe(kind, handle)
        self.scheduler = ProbeScheduler(probe, self.store, self.tasks, self._settings.max_probes)
        self.reloader = Reloader(config, engine, self.store, self._settings)
        self._notifier = Notifier(self.store, probe, self.tasks, self.is_deciding)
        self.desired = DesiredState(config.balancer)
        self.mover: Mover | None = None
        self.routes: Sequence[RouteDef] = ()
        """What is served beside the API, such as metrics and the status page."""
        self.started_s = time.time()
        self._task_factories: list[TaskFactory] = []
        # Requests that wait for the outcome of the next round, and of the current one.
        self._asked, self._waiting = list[asyncio.Future[Outcome]](), list[asyncio.Future[Outcome]]()
        # Changes of config and overrides are serialized, because each is validated together with all others.
        self._changing = asyncio.Lock()
        self._runtime_news = self.store.watch("runtime")
        self._wake = asyncio.Event()
        self._is_stopping = self._must_reload = False
        self._readiness = Readiness()
        self._must_round, self._is_urgent = True, False
        self._dead_ports = frozenset[str]()
        self._drain_s: float | None = None

    @property
    def bridge(self) -> str:
        return self.config.balancer.uplinks.bridge

    @property
    def state(self) -> AgentState:
        return self.store.state

    def add_task(self, *factories: TaskFactory) -> None:
        """Register tasks that run in parallel to the rounds, from the start of `run` to its end."""
        self._task_factories += factories

    def add_mover(self, mover: Mover) -> None:
        """Register the task that moves blocks between paths. The snapshots have its remotes."""
        self.mover = mover
        self.add_task(mover.run)

    def watch_bridge(self, db: str) -> None:
        """Follow the ports in the database in parallel to the rounds. `db`: as in Endpoint."""
        self.add_task(partial(follow_bridge, db, self.store, balancer=self.used, request_round=self.request_round))

    def ports(self) -> tuple[PortView, ...] | None:
        """Return the ports that the config names, in its order; None if their state is not known."""
        used = self.used()
        known = self.state.ports.of(used.uplinks.bridge)
        return None if known is None else port_views(known, used)

    def not_ready(self) -> str:
        """Return why this host should get no clients; empty if it is ready."""
        return not_ready(self.state, self.store.now_s())

    def used(self) -> Balancer:
        """Return the config, with the next hops of former backends to which the bridge still sends packets."""
        on_bridge = self.engine.balancer
        return self.config.balancer if on_bridge is None else replace(self.config.balancer, leaving=on_bridge.leaving)

    def lazy_snapshot(self) -> LazySnapshot:
        """Return the current state, of which any thread can make a snapshot. For the event loop of the agent."""
        config, reloader, state = self.config, self.reloader, self.state
        frame = Snapshot(
            bridge=config.balancer.uplinks.label,
            config_path=str(config.path),
            config_digest=config.digest,
            started_s=self.started_s,
            now_s=time.time(),
            services=(),
            is_paused=state.runtime.is_paused,
            config_problem=str(config.problem or ""),
            last_error=state.round.error,
            rounds=state.round.rounds,
            flow_mods=state.round.flow_mods,
            reverted=state.round.foreign,
            reloads=reloader.reloads,
            last_round_s=state.round.last_s,
            confirm_by_s=reloader.confirm_by_s,
            sampled_s=state.offload.sampled_s,
            insertion=state.offload.insertion,
            events=self.events.since(0),
            pending_flow_mods=state.round.held,
            ports=self.ports(),
            ports_problem=state.ports.problem,
            candidate=config.newer,
            rolls_back_to=reloader.goes_back_to,
            problems=tuple(problem.text for problem in state.round.problems),
            probes_late_s=self.scheduler.late_s,
            announcements=state.vips.views,
            remotes=self.remotes(),
            are_moves_paused=state.runtime.are_moves_paused,
            fleet=state.fleet,
            not_ready=self.not_ready(),
        )
        return lazy_snapshot(
            frame,
            state,
            self.engine.program,
            self.changes.last,
            now_s=self.store.now_s(),
            command_options=self.command_options(),
        )

    def command_options(self) -> str:
        """Return the options that a command needs to reach this agent, after a space; empty if none."""
        return self._settings.command_options()

    async def run(self, *, once: bool = False) -> None:
        """Reconcile the bridge until `stop`. With `once`: until all backends were probed, the bridge is as desired, and
        drains have ended. Raises XenoovsError if `once` and the bridge could not be reconciled."""
        with self.events.recording():
            info("starting", bridge=self.bridge, config=self.config.digest, file=self.config.path, version=__version__)
            await self._start_tasks(once=once)
            try:
                while not self.state.is_settled and not self._is_stopping:
                    await self._pause(_POLL_S)
                if once:
                    await self._run_once()
                else:
                    await self._run_rounds()
            finally:
                await self.tasks.stop()

    def stop(self) -> None:
        """Stop after the current round. The flows stay."""
        self._is_stopping = True
        self.wake()

    def reload(self) -> None:
        """Read the config file now."""
        self._must_reload = True
        self._readiness.reloading()
        self.wake()

    def request_round(self) -> None:
        """Start a round soon."""
        self._must_round = True
        self.wake()

    def wake(self) -> None:
        """Check soon for a new config and other changes. Cancels the wait of a round for the time of its change."""
        self._wake.set()
        if self.reloader.appointment is not None:
            self.reloader.appointment.cancel()

    async def next_round(self) -> Outcome:
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._asked.append(outcome)
        self.request_round()
        return await outcome

    async def change(self, make: Callable[[Reloader], Awaitable[T]]) -> T:
        """Change overrides, pins or a pause, from the next round on. Return what `make` returns. Raises RequestRefused
        if another controller is master, and what `make` raises."""
        if (refusal := self._settings.refusal()) is not None:
            raise refusal
        async with self._change():
            return await make(self.reloader)

    def remotes(self) -> tuple[RemoteView, ...]:
        """Return the remotes of tunnels that are probed, and their paths. For the event loop of the agent."""
        return () if self.mover is None else remote_views(self.mover)

    async def adopt(self, runtime: Runtime) -> None:
        """Adopt the overrides and the pause set at another controller, from the next round on."""
        async with self._change():
            self.reloader.adopt(runtime)

    @asynccontextmanager
    async def _change(self) -> AsyncIterator[None]:
        """Change overrides or the pause within a `with`. Rounds go on if the disk is slow, but without a reload."""
        self.wake()
        try:
            async with self._changing:
                yield
        finally:
            self.request_round()

    async def _start_tasks(self, *, once: bool) -> None:
        await self.reloader.begin(self._runtime_problem)
        self._notifier.begin()
        drains = () if once else (self._measure_drains,)
        own = self.events.release_repeated, self.scheduler.run, self._notifier.run, self._keep_saved
        for factory in (*own, *drains, *self._task_factories):
            self.tasks.start(kept_running(factory))

    async def _measure_drains(self) -> None:
        """Count the packets of old backends during drains. With many connections one count takes seconds."""
        while True:
            busy_s = await self._measure_drains_once()
            await asyncio.sleep(max(_MEASURE_S, _MEASURE_RATIO * busy_s))

    async def _measure_drains_once(self) -> float:
        """Measure once, and return how long the switch was busy. After a failure it is measured again later."""
        busy_s, problem = 0.0, ""
        try:
            busy_s = await asyncio.to_thread(self.engine.count_drains, now_s=self.store.now_s())
        except (XenoovsError, OSError) as error:
            problem = str(error)
        self.report.drains_measured(problem)
        return busy_s

    def is_deciding(self) -> bool:
        """Return whether this agent decides about the bridge, and not another controller."""
        return self._settings.refusal() is None

    def _request_urgent_round(self, _: object) -> None:
        self._is_urgent = True
        self.request_round()

    def _advertised_changed(self, change: AdvertisedChange) -> None:
        self._is_urgent = self._is_urgent or change.advertised.is_away
        self.request_round()

    async def _keep_saved(self) -> None:
        """Save overrides that a config or their end has changed. Overrides of requests are saved already."""
        while True:
            await self._runtime_news.wait()
            self._runtime_news.clear()
            while not self.reloader.is_saved:
                async with self._change():
                    is_saved = await self.reloader.save()
                if not is_saved:
                    await asyncio.sleep(_SAVE_RETRY_S)

    async def _run_once(self) -> None:
        self._done(await self._round())
        while self._drain_s is not None and not self._is_stopping:
            await self._pause(self._drain_s)
            await self._measure_drains_once()
            self._done(await self._round())
        async with self._changing:
            await self.reloader.save()
        await self._notifier.finish()

    async def _run_rounds(self) -> None:
        next_round_s = self.store.now_s()
        while not self._is_stopping:
            try:
                next_round_s = await self._round_if_due(next_round_s)
            except Exception as error:  # noqa: BLE001 - no request waits, and no other bridge ends, for what fails here.
                self._begin()
                self._failed(problem_of(error))
                next_round_s = self.store.now_s() + _RETRY_S
            if not self._must_reload:
                self._readiness.idle()
            notify("WATCHDOG=1")
            await self._pause(_POLL_S)
        notify("STOPPING=1")
        info("stopping; the flows stay", rounds=self.state.round.rounds, foreign=self.state.round.foreign)

    async def _round_if_due(self, next_round_s: float) -> float:
        await self._check_for_changes()
        # If a round has failed, the retry finds out whether the bridge was recreated.
        is_recreated = not self.state.round.error and self.engine.is_lost(self.bridge)
        if self._must_round or is_recreated or self.store.now_s() >= next_round_s:
            self._must_round, self._drain_s = False, None
            is_good = await self._try_round()
            next_round_s = self.store.now_s() + (self._quiet_s() if is_good else _RETRY_S)
            if is_good and not self.state.round.problems:
                self._readiness.ready()
        return next_round_s

    def _quiet_s(self) -> float:
        # Agents that were started together, one per host, must not always dump flows at the same time.
        resync_s = self._settings.resync_s * uniform(1 - _RESYNC_JITTER, 1 + _RESYNC_JITTER)  # noqa: S311
        return resync_s if self._drain_s is None else min(resync_s, self._drain_s)

    async def _check_for_changes(self) -> None:
        """Request a round if the config has changed, or a rollback, the end of an override or a slow start is due."""
        always, self._must_reload = self._must_reload, False
        now_s = self.store.now_s()
        is_due = self.state.is_due(now_s) or self.state.ramps(now_s) != self.desired.ramps
        problem, is_accepted = self.config.problem, False
        if await self.reloader.poll(always=always):
            is_accepted = self._is_accepted_without_round()
            self._must_round = self._must_round or not is_accepted
        if self.reloader.is_due or is_due:
            self._must_round = True
        if is_accepted or self.config.problem is not problem:
            self._publish(self.state.round)

    def _is_accepted_without_round(self) -> bool:
        """Accept a generation of a fleet that changes no service of this DPU. Return whether it did. The last round has
        compared the flows; another comparison on each of a thousand DPUs would find nothing."""
        last, is_busy = self.state.round, self._must_round or self._changing.locked()
        is_right = not (last.error or is_busy) and last.last_s is not None
        return bool(self.config.good.stored and is_right and self.reloader.accept_unchanged())

    def _publish(self, facts: RoundFacts) -> None:
        """Publish what the bridge has now, and its problems, for the tasks in parallel to the rounds."""
        self.store.dispatch(replace(facts, program=self.engine.program, desired=self.desired))

    async def _try_round(self) -> bool:
        """Make a round. Return whether the bridge is as desired, except for a pause and known problems."""
        late = asyncio.create_task(self._report_late_round())
        try:
            change = await self._round()
        except ChangesHeld as held:
            if held.flow_mods != self.state.round.held:
                warn("paused; changes are held back", flow_mods=held.flow_mods)
            self._publish(replace(self.state.round, held=held.flow_mods))
            self._settle(held, str(held))
            return True
        except XenoovsError as problem:
            self._failed(problem)
            return False
        finally:
            late.cancel()
        self._done(change)
        problems = "; ".join(problem.text for problem in change.problems)
        self._settle(change, problems or f"bridge {self.bridge} is as config {self.config.digest} says")
        return True

    def _begin(self) -> None:
        """Begin a round, whose outcome is for all requests so far, and for no later ones."""
        self._waiting, self._asked = self._waiting + self._asked, []

    def _settle(self, outcome: Outcome, status: str) -> None:
        """End a round: tell systemd its status, and all requests that were not cancelled its outcome."""
        notify(f"STATUS={status}")
        settled, self._waiting = self._waiting, []
        for future in settled:
            if not future.done():
                future.set_result(outcome)

    async def _report_late_round(self) -> None:
        """Fail the requests that wait for a late round, also those that come while it is late."""
        while True:
            await asyncio.sleep(_LATE_S)
            self._begin()
            self._failed(RoundLate(bridge=self.bridge, after_s=_LATE_S))

    def _failed(self, problem: XenoovsError) -> None:
        self._publish(self.report.failed(self.state.round, problem, bridge=self.bridge, now_s=self.store.now_s()))
        self._settle(problem, str(problem).splitlines()[0])

    async def _round(self) -> Change:
        change: Change | None = None
        try:
            # A request may wait for a slow disk. The ejection of a backend must not, so this round goes without it.
            if not self._changing.locked():
                async with self._changing:
                    await self.reloader.follow_if_unknown()
                    await self.reloader.roll_back_if_due()
                    change = await self.reloader.try_candidate()
                    if change is None and self.reloader.must_try_again:
                        self.request_round()
        finally:
            # A config that cannot be tried now is an outcome too, so that no request waits for the end of an outage.
            self._begin()
        is_urgent, self._is_urgent = self._is_urgent, False
        self.store.dispatch(Tick(self.engine.ports_down()))
        before, self._dead_ports = self._dead_ports, self.state.dead_ports
        is_urgent = is_urgent or before != self._dead_ports
        now_s = self.store.now_s()
        while True:
            self.desired = desired_state(self.state, now_s)
            if change is not None:
                return change
            try:
                return await asyncio.to_thread(self.engine.round, self.desired, now_s=now_s, urgent=is_urgent)
            except IMPOSSIBLE:
                # Advertised weights of a server must not prevent the reconciliation of the bridge.
                if not (reasons := await asyncio.to_thread(impossible_advertised, self.state)):
                    raise
            self.report.refused_advertised(reasons)
            self.store.dispatch(AdvertisedRefused({**self.state.refused, **reasons}))

    def _done(self, change: Change) -> None:
        self._drain_s = change.next_s
        self.report.held_backends(self.desired.held)
        bridge, config = self.bridge, self.config.digest
        self._publish(self.report.succeeded(self.state.round, change, bridge=bridge, config=config, now_s=time.time()))
        if not change.difference.is_empty:
            self.store.publish(change)

    async def _pause(self, seconds: float) -> None:
        with suppress(asyncio.TimeoutError):
            await within(seconds, self._wake.wait())
            # Backends that go down together, such as those of one rack, are ejected in one round.
            await asyncio.sleep(_URGENT_COALESCE_S if self._is_urgent else _COALESCE_S)
        self._wake.clear()


# The last log events of an agent, in memory, for `xenoovs logs`, the API and the status page.


_MAX_EVENTS = 1_000
_RELEASE_S = 1.0


class EventLog(logging.Handler):
    """The last events of one bridge, numbered from 1 at the start of the agent."""

    def __init__(self) -> None:
        super().__init__()
        self._events: deque[Event] = deque(maxlen=_MAX_EVENTS)
        self.last = 0
        """The number of the newest event; 0 if there is none."""
        self._bridge, self._repeats = "", RepeatFilter(logging.getLogger(LOGGER))
        self._arrival = asyncio.Event()
        self._wake: LoopCall | None = None

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record events within a `with`, and limit repeated ones. Call it in the event loop of the agent."""
        logger = logging.getLogger(LOGGER)
        self._bridge = current_bridge()
        self._wake = LoopCall(asyncio.get_running_loop(), self._arrived)
        logger.addHandler(self)
        logger.addFilter(self._repeats)
        logger.setLevel(logging.INFO)
        try:
            yield
        finally:
            logger.removeFilter(self._repeats)
            logger.removeHandler(self)

    async def release_repeated(self) -> None:
        """Record events that were suppressed as repeated, once there may be more of them, until cancelled."""
        while True:
            await asyncio.sleep(_RELEASE_S)
            self._repeats.release()

    def emit(self, record: logging.LogRecord) -> None:
        if self._bridge and facts_of(record).get("bridge", self._bridge) != self._bridge:
            return
        self.last += 1
        level = record.levelname.lower()
        self._events.append(Event(record.created, level, record.getMessage(), facts_of(record), self.last))
        if self._wake is not None:
            self._wake()

    def since(self, number: int) -> tuple[Event, ...]:
        """Return the events whose number is above `number`, oldest first."""
        return tuple(event for event in tuple(self._events) if event.number > number)

    async def wait_after(self, number: int) -> None:
        """Wait for an event whose number is above `number`."""
        while self.last <= number:
            await self._arrival.wait()

    def _arrived(self) -> None:
        self._arrival.set()
        self._arrival = asyncio.Event()


# Several agents in one process, one for each bridge. They share the event loop and the descriptors.


_THREADS = 8
"""Threads for each agent, more than it ever needs: calls that hang at one bridge must not delay those at another."""


Starter = Callable[[], Awaitable[Agent | None]]
"""Makes an agent, with its config; returns None if the group stops."""


class AgentGroup:
    """The agents of one process, by their bridges' labels. An agent runs as soon as its own config has been read. If
    its run fails, it is run again, and no other agent ends."""

    def __init__(self) -> None:
        self.agents: dict[str, Agent] = {}
        # Held while a config is read. If all were read in parallel, no bridge would get flows before the end.
        self.turn, self.is_stopping = asyncio.Lock(), False

    def stop(self) -> None:
        """Stop all agents, and make no more."""
        self.is_stopping = True
        for agent in self.agents.values():
            agent.stop()

    def reload(self) -> None:
        """Read all config files now."""
        for agent in self.agents.values():
            agent.reload()

    async def run(
        self, starters: Mapping[str, Starter], *, once: bool = False, beside: Iterable[TaskFactory] = ()
    ) -> None:
        """Make agents and run them, with tasks beside them, until all agents have ended. Raises XenoovsError if one
        could not be made, and with `once` what the first failed agent raises, after the end of all."""
        loop = asyncio.get_running_loop()
        if len(starters) > 1:
            loop.set_default_executor(ThreadPoolExecutor(_THREADS * len(starters), thread_name_prefix="xenoovs-work"))
        problems, all_made = list[Exception](), asyncio.Event()

        async def run_one(bridge: str, start: Starter) -> None:
            # Each task has its own context, which all tasks and threads of the agent inherit.
            with bridge_context(bridge if len(starters) > 1 else ""):
                if (agent := await start()) is None or self.is_stopping:
                    return None
                self.agents[bridge] = agent
                if len(self.agents) == len(starters):
                    all_made.set()
                if not once:
                    return await kept_running(agent.run)
                try:
                    await agent.run(once=True)
                except Exception as problem:  # noqa: BLE001 - raised after the end of all agents.
                    problems.append(problem)

        async def run_beside(factory: TaskFactory) -> None:
            await all_made.wait()
            await kept_running(factory)

        runs = (run_one(bridge, start) for bridge, start in starters.items())
        await run_all(runs, beside=map(run_beside, beside))
        if problems:
            raise problems[0]


def handle_signals(loop: asyncio.AbstractEventLoop, group: AgentGroup) -> None:
    """Stop all agents on SIGTERM and SIGINT, reload all on SIGHUP. For the main thread."""
    loop.add_signal_handler(signal.SIGTERM, group.stop)
    loop.add_signal_handler(signal.SIGINT, group.stop)
    loop.add_signal_handler(signal.SIGHUP, group.reload)
