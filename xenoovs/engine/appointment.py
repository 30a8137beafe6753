"""The time at which a change is to be committed. Everything that takes long is done before it."""

from __future__ import annotations

import time
from threading import Event


class Appointment:
    """A time that a round waits for, in its thread, unless something else happens first.

    Attributes:
        at_s: On the clock of `time.monotonic()`.
    """

    def __init__(self, at_s: float) -> None:
        self.at_s = at_s
        self._cancelled = Event()

    def cancel(self) -> None:
        """End the wait: the round makes no change, and the next one plans again."""
        self._cancelled.set()

    @property
    def left_s(self) -> float:
        """Seconds until then; 0: it has come."""
        return max(0.0, self.at_s - time.monotonic())

    def wait(self, *, ahead_s: float = 0.0) -> bool:
        """Wait until so many seconds before it. Return False if it was cancelled."""
        return not self._cancelled.wait(max(0.0, self.left_s - ahead_s))
