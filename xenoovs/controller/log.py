"""What the controller logs: its own faults, warnings about peers, and names of OpenFlow errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from time import monotonic

from xenoovs.errors import fault_text
from xenoovs.log import TokenBucket, warn
from xenoovs.openflow.wire.frame import Error


@contextmanager
def surviving(part: str) -> Iterator[None]:
    """Log an unexpected exception and go on: a thread that ends would leave its part undone, unnoticed."""
    try:
        yield
    except Exception as error:  # noqa: BLE001
        warn("internal error; going on", part=part, reason=fault_text(error))


WARNINGS, WARNINGS_PER_S = 20, 1 / 30
"""Warnings of one kind in a burst, and per second, whatever names, ids and addresses peers use."""

_REMEMBERED = 256
"""Most peers whose refusal is remembered as logged; above that they are logged again."""


class LogLimit:
    """Limits warnings about peers, which choose how often they connect and what they send. Thread-safe.

    Suppressed warnings are counted; the next one of their kind reports the number.
    """

    def __init__(self, *, now_s: Callable[[], float] = monotonic) -> None:
        self._now_s = now_s
        self._lock = Lock()
        self._logged: set[tuple[str, str]] = set()
        self._buckets: dict[str, TokenBucket] = {}
        self._suppressed: dict[str, int] = {}

    def once(self, peer: str, event: str, **facts: object) -> None:
        """Warn once for each peer and reason: peers reconnect every few seconds."""
        warning = (peer, str(facts["reason"]))
        with self._lock:
            if warning in self._logged:
                return
            if len(self._logged) >= _REMEMBERED:
                self._logged.clear()
            self._logged.add(warning)
        self.warn(event, **{"peer": peer, **facts})

    def warn(self, event: str, **facts: object) -> None:
        """Warn, unless there are too many of this kind."""
        with self._lock:
            now_s = self._now_s()
            if event not in self._buckets:
                self._buckets[event] = TokenBucket(rate=WARNINGS_PER_S, size=WARNINGS, now_s=now_s)
            may = self._buckets[event].take(now_s)
            before = self._suppressed.get(event, 0)
            self._suppressed[event] = 0 if may else before + 1
        if may:
            warn(event, **facts, **({"suppressed": before} if before else {}))
        elif not before:
            warn("too many warnings of one kind to log each", last=event)


def describe_error(error: Error) -> dict[str, object]:
    """Return the name of an OpenFlow error and the message that caused it."""
    if len(error.refused) < 2:
        return {"error": error.name}
    kind = error.refused[1]
    return {"error": error.name, "about": _KINDS.get(kind, f"message type {kind}"), "xid": error.refused_xid}


_KINDS = {
    2: "ECHO_REQUEST",
    13: "PACKET_OUT",
    14: "FLOW_MOD",
    18: "MULTIPART_REQUEST",
    20: "BARRIER_REQUEST",
    24: "ROLE_REQUEST",
    33: "BUNDLE_CONTROL",
    34: "BUNDLE_ADD_MESSAGE",
}
"""Requests that a controller sends (OpenFlow 1.4.0, 7.1.1: enum ofp_type)."""
