"""Events that come again and again: told for a while, then seldom, and each time with how many were left out."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

_BURST = 20.0
"""So many events of one kind are told one by one; a bulk of drains by a script is."""
_REFILL_S = 30.0
"""After that one every so often."""
_MOST_KINDS = 4096
"""Remembered at once; with more, as when a rack falls, the oldest are forgotten and told one by one again."""

_IDENTITY = ("service", "backend", "backends", "bridge", "port", "peer", "path")
"""Facts that make two events with one text different kinds. Reasons and numbers do not."""

Later = Callable[[float, Callable[[], None]], object]
"""Calls a function after so many seconds."""


@dataclass(slots=True)
class _Kind:
    """tokens: how many may be told now; held: the last that was not; count: how many were not."""

    tokens: float
    at_s: float
    held: logging.LogRecord | None = None
    count: int = field(default=0)


class Repeats(logging.Filter):
    """For a logger. What is left out is told with the next event of its kind, or by itself when its time has come."""

    def __init__(self, logger: logging.Logger, later: Later, *, now_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._logger, self._later, self._now_s = logger, later, now_s
        self._kinds: dict[tuple[object, ...], _Kind] = {}
        self._lock = Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to tell it now."""
        with self._lock:
            return self._is_told(record)

    def _is_told(self, record: logging.LogRecord) -> bool:
        key, now_s = _key(record), self._now_s()
        kind = self._kinds.pop(key, None) or _Kind(_BURST, now_s)
        self._kinds[key] = kind
        if len(self._kinds) > _MOST_KINDS:
            del self._kinds[next(iter(self._kinds))]
        kind.tokens, kind.at_s = min(_BURST, kind.tokens + (now_s - kind.at_s) / _REFILL_S), now_s
        if kind.tokens >= 1:
            kind.tokens -= 1
            _count(record, kind)
            return True
        if kind.held is None:
            self._later((1 - kind.tokens) * _REFILL_S, lambda: self._release(key))
        kind.held, kind.count = record, kind.count + 1
        return False

    def _release(self, key: tuple[object, ...]) -> None:
        with self._lock:
            kind = self._kinds.get(key)
            if kind is None or kind.held is None:
                return
            record, kind.tokens, kind.at_s = kind.held, 0.0, self._now_s()
            kind.count -= 1
            _count(record, kind)
        self._logger.callHandlers(record)


def _count(record: logging.LogRecord, kind: _Kind) -> None:
    """Put into the event how many of its kind before it were not told."""
    if kind.count:
        record.facts = {**getattr(record, "facts", {}), "not_told": kind.count}
    kind.held, kind.count = None, 0


def _key(record: logging.LogRecord) -> tuple[object, ...]:
    facts = getattr(record, "facts", {})
    return (record.levelno, record.msg, *(facts.get(name) for name in _IDENTITY))
