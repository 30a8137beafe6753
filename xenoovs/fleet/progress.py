"""Whether a controller goes on with a roll-out, for a client that only reads the store."""

from __future__ import annotations

from collections.abc import Mapping

from xenoovs.fleet.change import next_change
from xenoovs.fleet.waves import next_step
from xenoovs.store.view import DpuStatus, FleetView

SETTLE_S = 15.0
"""How long a controller may take to write what is due: an election, and the decision about thousands of services."""


class RollOutProgress:
    """Watches the waves of a roll-out by a clock of its own, as the controller does."""

    def __init__(self) -> None:
        self._view: FleetView | None = None
        self._is_decided = False
        self._seen_s = 0.0
        self._wave: tuple[int, int] | None = None
        self._began_s = 0.0
        self._due_s: float | None = None

    def is_stalled(self, view: FleetView, statuses: Mapping[str, DpuStatus] | None, *, now_s: float) -> bool:
        """Return whether no controller has written what was due.

        A controller that has taken over watches the wave from the beginning. So the next step has to be overdue even
        for one that took over when it was due. Call it repeatedly with the newest view and reports.

        Args:
            now_s: On a clock that never goes back.
        """
        if view is not self._view:
            self._view, self._seen_s, self._is_decided = view, now_s, next_change(view).is_empty
        if not self._is_decided:
            return now_s - self._seen_s > SETTLE_S
        wave = view.wave, view.ack
        if wave != self._wave:
            self._wave, self._began_s, self._due_s = wave, now_s, None
        if next_step(view, statuses, watched_s=now_s - self._began_s).changes is None:
            self._due_s = None
            return False
        if self._due_s is None:
            self._due_s = now_s
        watched_s = now_s - self._due_s - SETTLE_S
        return watched_s >= 0 and next_step(view, statuses, watched_s=watched_s).changes is not None
