"""How long tests wait for a state: far longer than it takes, because the machine may be busy."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 90.0


def eventually(condition: Callable[[], bool], what: str) -> None:
    """Return once the condition holds; fail after PATIENCE_S."""
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s, f"did not happen within {PATIENCE_S:g} s: {what}"
        time.sleep(0.02)
