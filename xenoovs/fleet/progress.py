"""Whether a controller goes on with what is due, for a client that only reads the store."""

from __future__ import annotations

from collections.abc import Mapping

from xenoovs.fleet.change import FleetChange, next_change, rolling_intent
from xenoovs.fleet.dpus import clocks_differ
from xenoovs.fleet.services import Memo
from xenoovs.fleet.waves import PATIENCE_S, next_step
from xenoovs.store.view import Changes, DpuStatus, FleetView

SETTLE_S = 15.0
"""How long a controller may take to write what is due: an election, and the decision about thousands of services."""
UNDECIDED = "no controller has decided about the newest change"


def overdue_step(view: FleetView) -> str:
    """Return the words for a roll-out that no controller goes on with."""
    return f"no controller has written the next step of wave {view.wave}"


def is_overdue(view: FleetView, statuses: Mapping[str, DpuStatus] | None, *, now_ms: int) -> bool:
    """Return whether a wave lasts longer than a controller lets it, from one reading of the store.

    A controller ends a wave after the soak time and `PATIENCE_S`, also one that took over at the last moment. The time
    at which DPUs switch is that of the wave, or of the last drain or weight after it. A change of health has none, and
    no change has one with `--switch-after 0`; then the answer is False. So it is where the clocks of DPUs show that
    the one of this host may be wrong.
    """
    intent = rolling_intent(view)
    if intent is None or not view.wave or not view.switch_at_ms:
        return False
    if clocks_differ(view, statuses, now_s=now_ms / 1000):
        return False
    return now_ms - view.switch_at_ms > 1000 * (2 * (intent.soak_s + PATIENCE_S) + SETTLE_S)


class FleetProgress:
    """Watches the changes and the waves of a fleet by a clock of its own, as the controller does.

    Attributes:
        change: What the newest view lacks.
        memo: As of `next_change`.
    """

    def __init__(self) -> None:
        self.memo = Memo()
        self.change = FleetChange(Changes())
        self._view: FleetView | None = None
        self._seen_s = 0.0
        self._wave: tuple[int, int] | None = None
        self._began_s = 0.0
        self._due_s: float | None = None

    def stall(self, view: FleetView, statuses: Mapping[str, DpuStatus] | None, *, now_s: float) -> str:
        """Return what no controller has written though it was due, in words; empty: one may yet write it.

        A controller that has taken over watches the wave from the beginning. So the next step has to be overdue even
        for one that took over when it was due. Call it repeatedly with the newest view and reports.

        Args:
            now_s: On a clock that never goes back.
        """
        if view is not self._view:
            self._view, self._seen_s, self.change = view, now_s, next_change(view, memo=self.memo)
        if not self.change.is_empty:
            return UNDECIDED if now_s - self._seen_s > SETTLE_S else ""
        wave = view.wave, view.ack
        if wave != self._wave:
            self._wave, self._began_s, self._due_s = wave, now_s, None
        if next_step(view, statuses, watched_s=now_s - self._began_s).changes is None:
            self._due_s = None
            return ""
        if self._due_s is None:
            self._due_s = now_s
        watched_s = now_s - self._due_s - SETTLE_S
        is_overdue = watched_s >= 0 and next_step(view, statuses, watched_s=watched_s).changes is not None
        return overdue_step(view) if is_overdue else ""
