"""What is told of strangers who are turned away: seldom, for how often they come is up to them."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from time import monotonic

from xenoovs.controller.bucket import Bucket, full_bucket, take
from xenoovs.controller.voice import Voice

COMPLAINTS, COMPLAINTS_PER_S = 20, 1 / 30
"""Of one kind that are told at once, and in the long run, whatever names, ids, ports and addresses strangers take."""

_REMEMBERED = 256
"""Peers whose refusal was told once; beyond that they are told again."""


class Complaints:
    """May be called by any thread. What is left out is counted, and told with the next one of its kind."""

    def __init__(self, voice: Voice, *, now_s: Callable[[], float] = monotonic) -> None:
        self._voice, self._now_s = voice, now_s
        self._lock = Lock()
        self._told: set[tuple[str, str]] = set()
        self._buckets: dict[str, Bucket] = {}
        self._left_out: dict[str, int] = {}

    def once(self, peer: str, event: str, **facts: object) -> None:
        """Once for each peer and reason: it comes again every few seconds."""
        complaint = (peer, str(facts["reason"]))
        with self._lock:
            if complaint in self._told:
                return
            if len(self._told) >= _REMEMBERED:
                self._told.clear()
            self._told.add(complaint)
        self.warn(event, **{"peer": peer, **facts})

    def warn(self, event: str, **facts: object) -> None:
        """As of Voice."""
        with self._lock:
            now_s = self._now_s()
            bucket = self._buckets.get(event) or full_bucket(rate=COMPLAINTS_PER_S, size=COMPLAINTS, now_s=now_s)
            self._buckets[event], may = take(bucket, now_s)
            before = self._left_out.get(event, 0)
            self._left_out[event] = 0 if may else before + 1
        if may:
            self._voice.warn(event, **facts, **({"not_told": before} if before else {}))
        elif not before:
            self._voice.warn("strangers come faster than is told; they are turned away all the same", last=event)
