"""Holds the state of a running agent: gives it events and the time, and passes its effects on."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from xenoovs.agent.state import AgentState, Effect, Event, step


class Clock(Protocol):
    """A clock that never goes back."""

    def now_s(self) -> float:
        """Return the seconds since some moment."""
        ...


class MonotonicClock:
    """CLOCK_MONOTONIC of clock_gettime(2), which no change of the date affects."""

    def now_s(self) -> float:
        return time.monotonic()


class Store:
    """The state of an agent, for one thread.

    Attributes:
        observers: Called with the state before and after each event, and the time.
    """

    def __init__(self, state: AgentState, clock: Clock) -> None:
        self.state, self.clock = state, clock
        self.effect_handlers: list[Callable[[Effect], None]] = []
        self.observers: list[Callable[[AgentState, AgentState, float], None]] = []

    def dispatch(self, *events: Event) -> None:
        """Change the state by these events, one after the other."""
        for event in events:
            before, now_s = self.state, self.clock.now_s()
            self.state, effects = step(before, event, now_s)
            for observe in self.observers:
                observe(before, self.state, now_s)
            for effect in effects:
                for handle in self.effect_handlers:
                    handle(effect)
