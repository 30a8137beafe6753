"""The log of the agent: one line for one event, and fewer lines for events that repeat."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum
from threading import Lock

from xenoovs.agent.snapshot import shallow

LOGGER = "xenoovs.agent"
_SYSLOG_WARNING, _SYSLOG_INFO = 4, 6

_SPEAKER: ContextVar[str] = ContextVar("speaker", default="")
"""The bridge that is spoken of here, where one process keeps several; tasks and their threads inherit it."""


class LogForm(Enum):
    """How events are written."""

    TEXT = "text"
    JSON = "json"


def start_logging(form: LogForm) -> None:
    """Write events to stderr; systemd-journald(8) adds time and unit, and is told the level of each."""
    handler = logging.StreamHandler(sys.stderr)
    formatter = _Json() if form is LogForm.JSON else _Text()
    handler.setFormatter(_Leveled(formatter) if _is_journal() else formatter)
    logger = logging.getLogger(LOGGER)
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False


@contextmanager
def speaking_of(bridge: str) -> Iterator[None]:
    """Whatever is told in here is of this bridge, and says so."""
    token = _SPEAKER.set(bridge)
    try:
        yield
    finally:
        _SPEAKER.reset(token)


def spoken_of() -> str:
    """The bridge of `speaking_of`; empty: the process keeps one."""
    return _SPEAKER.get()


def _is_journal() -> bool:
    """Whether stderr is a stream of the journal (JOURNAL_STREAM of systemd.exec(5): device and inode)."""
    try:
        stream = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{stream.st_dev}:{stream.st_ino}"


def tell(event: str, **facts: object) -> None:
    """Something that was meant to happen, or that was put right."""
    logging.getLogger(LOGGER).info(event, extra={"facts": _facts(facts)})


def warn(event: str, **facts: object) -> None:
    """Something that an operator may want to look at."""
    logging.getLogger(LOGGER).warning(event, extra={"facts": _facts(facts)})


def _facts(facts: dict[str, object]) -> dict[str, object]:
    bridge = _SPEAKER.get()
    return {**facts, "bridge": bridge} if bridge else facts


class _Leveled(logging.Formatter):
    """Lines that begin with their level as journald takes it off them (sd-daemon(3), syslog(3))."""

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        level = _SYSLOG_WARNING if record.levelno >= logging.WARNING else _SYSLOG_INFO
        return f"<{level}>{self._inner.format(record)}"


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"{record.levelname.lower()} {record.getMessage()} {render_facts(facts_of(record))}".rstrip()


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
        head = {"time": moment, "level": record.levelname.lower(), "event": record.getMessage()}
        return json.dumps({**head, **facts_of(record)}, default=shallow)


def facts_of(record: logging.LogRecord) -> dict[str, object]:
    """What an event is about, by name."""
    facts: dict[str, object] = getattr(record, "facts", {})
    return facts


def render_facts(facts: Mapping[str, object]) -> str:
    """`key=value` words; values with blanks or signs in them in quotes."""
    return " ".join(f"{key}={_word(value)}" for key, value in facts.items())


def _word(value: object) -> str:
    """What a backend answers may hold anything, also what moves the cursor of a terminal."""
    text = str(value)
    is_plain = text.isprintable() and not any(char in text for char in ' "=\\')
    return text if text and is_plain else json.dumps(text)


# Events that come again and again: told for a while, then seldom, and each time with how many were left out.


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
