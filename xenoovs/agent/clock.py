"""Time as something that is handed in, so that tests can turn it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A clock that never goes back."""

    def now_s(self) -> float:
        """Seconds since some moment."""
        ...


class MonotonicClock:
    """CLOCK_MONOTONIC of clock_gettime(2): setting the date does not touch it."""

    def now_s(self) -> float:
        return time.monotonic()
