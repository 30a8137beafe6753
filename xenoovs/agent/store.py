"""The one place of an agent that holds its state."""

from __future__ import annotations

from collections.abc import Callable

from xenoovs.agent.clock import Clock
from xenoovs.agent.state import AgentState, Effect, Event, step


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
