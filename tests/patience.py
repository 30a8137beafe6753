"""How long tests wait for what must come: far longer than it takes, for a machine may have other work, too."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 90.0


def eventually(condition: Callable[[], bool], what: str) -> None:
    """Wait until it holds; fail after long."""
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s, f"this never came about: {what}"
        time.sleep(0.02)
