"""When the DPUs of a fleet switch to a change: together, at a time that is written with it, or each at once.

Pure. The clocks are those of the controller and of the DPUs; `MAX_WAIT_S` bounds the effect of a wrong clock.
"""

from __future__ import annotations

from xenoovs.store.view import Changes, FleetView

SWITCH_AFTER_S = 2.0
"""From a decision until DPUs switch, by default: time to receive the change and to prepare it."""
MAX_WAIT_S = 5.0
"""The longest that a DPU waits after it has learned of a change, by any clock. Open vSwitch drops a bundle
that is idle for 10 s (ovs-vswitchd.conf.db(5), `bundle-idle-timeout`)."""


def switch_time_ms(view: FleetView, changes: Changes, *, now_ms: int, after_s: float) -> int | None:
    """Return when DPUs are to switch, in milliseconds since 1970; 0: at once, None: no flows change.

    A change that takes blocks from backends has a time, because DPUs would disagree about these blocks while it
    spreads. One that only adds services, takes a roll-out back, or ends it, has none.

    Args:
        view: What the changes were computed from.
        now_ms: The time now, likewise.
        after_s: How long to wait; 0: all changes are made at once.
    """
    if changes.switch_at_ms is not None:
        return changes.switch_at_ms
    touched = changes.services.keys() | changes.staged.keys()
    if not touched and changes.wave is None and changes.removed is None:
        return None
    if changes.wave == 0:
        return 0
    takes_blocks = bool(changes.wave or changes.removed or touched & view.services.keys())
    return now_ms + int(after_s * 1000) if after_s and takes_blocks else 0


def is_awaited(view: FleetView, *, now_ms: int) -> bool:
    """Return whether the DPUs are about to switch, so that the next change must not be written yet.

    DPUs that learn of both changes would make the first one at the time of the second.
    """
    return 0 < view.switch_at_ms - now_ms <= MAX_WAIT_S * 1000


def seconds_to_wait(switch_at_ms: int, *, now_ms: float) -> float:
    """Return for how long a DPU waits after it has learned of a change; 0: it switches at once.

    No controller writes a time so far ahead: a longer wait means a clock that is behind.
    """
    return min(max(0.0, (switch_at_ms - now_ms) / 1000), MAX_WAIT_S)
