"""What becomes of the connections of clients that get another backend."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class DrainMode(Enum):
    """NONE: clients move at once. PIN: connections that are open stay with the old backend for a while."""

    NONE = "none"
    PIN = "pin"


@dataclass(frozen=True, slots=True)
class Drain:
    """How a service moves clients. Times in milliseconds, 1 or more; they count in mode PIN alone.

    timeout_ms: after which a block moves with all that is still open.
    rest_ms:    it moves earlier when the old backend has got no packet of it for so long.
    """

    mode: DrainMode = DrainMode.NONE
    timeout_ms: int = 60_000
    rest_ms: int = 10_000


AT_ONCE = Drain()
"""What a service does that says nothing."""
