"""The last log events of an agent, in memory, for `xenoovs logs`, the API and the status page."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from xenoovs.agent.log import LOGGER, RepeatFilter, current_bridge, facts_of
from xenoovs.agent.tasks import LoopCall
from xenoovs.show.agent import Event

_MAX_EVENTS = 1_000


class EventLog(logging.Handler):
    """Events numbered from 1 at the start of the agent, of this bridge alone. The oldest are dropped."""

    def __init__(self) -> None:
        super().__init__()
        self._events: deque[Event] = deque(maxlen=_MAX_EVENTS)
        self._count, self._bridge = 0, ""
        self._arrival: asyncio.Event | None = None
        self._wake: LoopCall | None = None

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record events, and limit how often repeated ones are logged. For the event loop of the agent."""
        logger, loop = logging.getLogger(LOGGER), asyncio.get_running_loop()
        self._arrival, self._bridge = asyncio.Event(), current_bridge()
        self._wake = LoopCall(loop, self._arrived)
        timers = deque[tuple[float, Callable[[], None]]]()

        def start_timers() -> None:
            while timers:
                loop.call_later(*timers.popleft())

        start = LoopCall(loop, start_timers)

        def call_later(after_s: float, callback: Callable[[], None]) -> None:
            timers.append((after_s, callback))
            start()

        repeats = RepeatFilter(logger, call_later)
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
        if self._wake is not None:
            self._wake()

    @property
    def last(self) -> int:
        """The number of the newest event; 0: there is none."""
        return self._count

    def since(self, number: int) -> tuple[Event, ...]:
        """Return the events whose number is above `number`, oldest first."""
        return tuple(event for event in tuple(self._events) if event.number > number)

    async def wait_after(self, number: int) -> None:
        """Wait for an event whose number is above `number`."""
        while self._count <= number and self._arrival is not None:
            await self._arrival.wait()

    def _arrived(self) -> None:
        if self._arrival is not None:
            self._arrival.set()
            self._arrival = asyncio.Event()
