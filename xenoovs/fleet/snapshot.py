"""All that is known of a fleet at one moment: the same on its page and in its metrics."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from xenoovs.fleet.dpus import DpuRow, DpuState
from xenoovs.store.cluster import ServerFacts
from xenoovs.store.view import FleetView, Intent, IntentState


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """A moment of a fleet.

    Attributes:
        view: What the store has; None: it has not answered yet.
        rows: The DPUs.
        servers: Of the store on this host.
        is_active: Whether the controller of this host decides.
        problems: What an operator should look after, in words.
        now_s: Seconds since 1970.
    """

    view: FleetView | None
    rows: tuple[DpuRow, ...]
    servers: tuple[ServerFacts, ...]
    is_active: bool
    problems: tuple[str, ...]
    now_s: float

    def counts(self) -> Counter[DpuState]:
        """Return how many DPUs there are in each state."""
        return Counter(row.state for row in self.rows)

    @property
    def newest(self) -> Intent | None:
        """The config that was given last."""
        intents = {} if self.view is None else self.view.intents
        return intents[max(intents)] if intents else None

    @property
    def is_refused(self) -> bool:
        """Whether the controller refused that config."""
        return self.newest is not None and self.newest.state is IntentState.REFUSED
