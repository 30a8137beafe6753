"""Holds the state of a running agent, changes it by events, and wakes tasks that watch a part of it."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from xenoovs.agent.state import AgentState, Event, step
from xenoovs.agent.tasks import call_each


class StateStore:
    """The state of an agent, for one thread. Tasks read it, dispatch events, and wait for changes of its parts."""

    def __init__(
        self,
        state: AgentState,
        now_s: Callable[[], float] = time.monotonic,
        observe: Callable[[AgentState, AgentState, float], None] = lambda _before, _after, _now_s: None,
    ) -> None:
        """Begin with a state. `now_s`: returns the time of a clock that never goes back. `observe`: called with the
        state before and after each event, and the time."""
        self.state, self.now_s, self._observe = state, now_s, observe
        self._handlers = defaultdict[type, list[Callable[[Any], object]]](list)
        self._watches: list[tuple[str, asyncio.Event]] = []

    def subscribe(self, kind: type, handle: Callable[[Any], object]) -> None:
        """Call `handle` with each event, effect or other fact of a type. Its exceptions are only logged."""
        self._handlers[kind].append(handle)

    def watch(self, *parts: str) -> asyncio.Event:
        """Return an event that is set whenever one of these attributes of the state changes."""
        news = asyncio.Event()
        self._watches += ((part, news) for part in parts)
        return news

    def dispatch(self, *events: Event) -> None:
        """Change the state by these events in order, and call the subscribers of each event and effect."""
        for event in events:
            before, now_s = self.state, self.now_s()
            after, effects = step(before, event, now_s)
            self.state = after
            call_each((self._observe,), before, after, now_s)
            for part, news in self._watches:
                if getattr(before, part) is not getattr(after, part):
                    news.set()
            for each in (event, *effects):
                self.publish(each)

    def publish(self, fact: object) -> None:
        """Call the subscribers of the type of `fact`."""
        if handlers := self._handlers.get(type(fact)):
            call_each(handlers, fact)
