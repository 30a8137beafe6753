"""Drives the state: gives it events and time, probes backends when they are due, and carries out effects."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from heapq import heappop, heappush
from typing import Protocol

from xenoovs.agent.health import Check
from xenoovs.agent.probe.target import ProbeResult, Target
from xenoovs.agent.state import AgentState, Effect, Event, ProbeAt, Probed, step

# Time as something that is handed in, so that tests can turn it.


class Clock(Protocol):
    """A clock that never goes back."""

    def now_s(self) -> float:
        """Seconds since some moment."""
        ...


class MonotonicClock:
    """CLOCK_MONOTONIC of clock_gettime(2): setting the date does not touch it."""

    def now_s(self) -> float:
        return time.monotonic()


# What goes on beside the rounds: probes, the control socket, watchers. All of it ends with the agent.


Work = Callable[[], Coroutine[None, None, None]]
"""Makes the coroutine of one worker, which may go on for ever; it is cancelled at the end."""


class Workers:
    """Tasks of one event loop. A mistake of ours in one ends the agent: none may go on without its eyes."""

    def __init__(self, failed: Callable[[], None]) -> None:
        """`failed`: called after a task has ended by an exception, which is kept in `mistake`."""
        self.mistake: BaseException | None = None
        self._failed = failed
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[None, None, None]) -> None:
        """Let it run beside everything else."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    async def stop(self) -> None:
        """Cancel all and wait for their ends."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (mistake := task.exception()) is not None:
            self.mistake = self.mistake or mistake
            self._failed()


_LONGEST_PAUSE_S = 60.0


class Store:
    """Holds the state of an agent, and passes the effects of each event on. For one thread.

    Attributes:
        state: The state now.
        clock: The time of events.
        performers: Called with each effect.
    """

    def __init__(self, state: AgentState, clock: Clock) -> None:
        self.state, self.clock = state, clock
        self.performers: list[Callable[[Effect], None]] = []

    def dispatch(self, *events: Event) -> None:
        """Make the state that these events lead to."""
        for event in events:
            self.state, effects = step(self.state, event, self.clock.now_s())
            for effect in effects:
                for perform in self.performers:
                    perform(effect)


class Probe(Protocol):
    """Asks once. Never raises for what the backend or the network does; always done soon after `timeout_s`."""

    def __call__(self, target: Target, *, timeout_s: float) -> Awaitable[ProbeResult]: ...


class ProbeQueue:
    """Checks by the time when their next probe is due."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Check]] = []
        self._count = 0

    def push(self, probe: ProbeAt) -> None:
        # The number keeps checks that are due at one time in their order.
        self._count += 1
        heappush(self._heap, (probe.due_s, self._count, probe.check))

    def take_due(self, state: AgentState, now_s: float) -> list[Check]:
        """Return the checks to be probed now. None comes again before `push`.

        A check that the config no longer has is left out. One that the config dropped and got back is due at the time
        that its new state says.
        """
        due = []
        while self._heap and self._heap[0][0] <= now_s:
            due_s, _, check = heappop(self._heap)
            health = state.tracker.health.get(check)
            if health is not None and health.due_s == due_s:
                due.append(check)
        return due

    @property
    def next_due_s(self) -> float | None:
        """When `take_due` may have something; None: not before a result comes."""
        return self._heap[0][0] if self._heap else None


class ProbeScheduler:
    """Sends the probes that the state asks for.

    Attributes:
        heard: Called with each check and its result.
    """

    def __init__(self, probe: Probe, store: Store, workers: Workers) -> None:
        self.heard: list[Callable[[Check, ProbeResult], None]] = []
        self._probe, self._store, self._workers = probe, store, workers
        self._queue, self._wake, self._next_s = ProbeQueue(), asyncio.Event(), 0.0
        store.performers.append(self._perform)

    async def forever(self) -> None:
        """Send probes until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            now_s = self._store.clock.now_s()
            for check in self._queue.take_due(self._store.state, now_s):
                self._workers.start(self._ask(check))
            due_s = self._queue.next_due_s
            pause_s = _LONGEST_PAUSE_S if due_s is None else max(0.001, due_s - now_s)
            self._next_s = now_s + pause_s
            timer = loop.call_later(pause_s, self._wake.set)
            try:
                await self._wake.wait()
            finally:
                timer.cancel()

    async def _ask(self, check: Check) -> None:
        asked_s = self._store.clock.now_s()
        result = await self._probe(check.target, timeout_s=check.health.timeout_ms / 1000)
        self._store.dispatch(Probed(check, result, asked_s))
        for listener in self.heard:
            listener(check, result)

    def _perform(self, effect: Effect) -> None:
        if isinstance(effect, ProbeAt):
            self._queue.push(effect)
            if effect.due_s < self._next_s:
                self._wake.set()
