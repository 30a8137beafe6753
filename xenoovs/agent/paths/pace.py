"""How often remotes are probed: as configured, as long as that is within the budget. Pure."""

from __future__ import annotations

from collections.abc import Iterable

PROBES_PER_S = 20_000
"""Of one agent, to all remotes together: 11 Mbit/s each way."""

MAX_SHARE = 0.3
"""Part of a processor that probes may take; the rest of the agent shares it with them."""

_BATCH = 200
"""Probes that are measured together: answers are read later than their probes are sent."""

_NEW_PART = 0.25
"""Weight of the newest batch in the cost of a probe."""


class ProbeBudget:
    """Stretches the intervals of all remotes by one factor, so that the budget of probes and of processor time is kept.

    Attributes:
        cost_s: Processor time of a probe and its answer, on average.
    """

    def __init__(self) -> None:
        self.cost_s = 0.0
        self._configured_per_s = 0.0
        self._probes, self._busy_s = 0, 0.0

    def plan(self, rounds: Iterable[tuple[int, float]]) -> None:
        """Take over what is configured: for each remote the probes of a round and the seconds between two rounds."""
        self._configured_per_s = sum(probes / interval_s for probes, interval_s in rounds)

    def measured(self, *, probes: int, busy_s: float) -> None:
        """Count probes and the processor time of sending them, or of reading answers.

        What decisions cost does not depend on the rate: the fewer the probes, the more each would seem to cost.
        """
        self._probes, self._busy_s = self._probes + probes, self._busy_s + busy_s
        if self._probes >= _BATCH:
            cost_s = self._busy_s / self._probes
            self.cost_s = cost_s if not self.cost_s else self.cost_s + _NEW_PART * (cost_s - self.cost_s)
            self._probes, self._busy_s = 0, 0.0

    @property
    def factor(self) -> float:
        """By how much intervals are longer than configured, 1 or more."""
        rate = self._configured_per_s
        return max(1.0, rate / PROBES_PER_S, rate * self.cost_s / MAX_SHARE)
