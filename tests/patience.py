"""How long tests wait for a state: far longer than it takes, because the machine may be busy."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 90.0


def eventually(condition: Callable[[], bool], what: str) -> None:
    """Return once the condition holds; fail after PATIENCE_S.

    To ask takes at most half of the time, so that those who make it true have a processor.
    """
    begun_s = asked_s = time.monotonic()
    while not condition():
        answered_s = time.monotonic()
        assert answered_s < begun_s + PATIENCE_S, f"did not happen within {PATIENCE_S:g} s: {what}"
        time.sleep(max(0.02, answered_s - asked_s))
        asked_s = time.monotonic()
