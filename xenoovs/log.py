"""The log of agents and controllers, with a rate limit for events that repeat, and notifications of systemd."""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timezone
from threading import Lock

from xenoovs.display import as_plain

LOGGER = "xenoovs.agent"
_SYSLOG_LEVELS = {"warning": 4, "info": 6}

_BRIDGE: ContextVar[str] = ContextVar("bridge", default="")
"""The bridge that events are about, in a process with several. Tasks and their threads inherit it."""


def start_logging(*, is_json: bool = False) -> None:
    """Write events to stderr, as text or JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(is_json=is_json, is_leveled=_is_journal()))
    logger = logging.getLogger(LOGGER)
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False


@contextmanager
def bridge_context(bridge: str) -> Iterator[None]:
    """Add this bridge to all events that are logged in the context."""
    token = _BRIDGE.set(bridge)
    try:
        yield
    finally:
        _BRIDGE.reset(token)


def current_bridge() -> str:
    """Return the bridge of `bridge_context`; empty if the process has only one bridge."""
    return _BRIDGE.get()


def _is_journal() -> bool:
    """Return whether stderr is a stream of the journal (JOURNAL_STREAM of systemd.exec(5): device and inode)."""
    try:
        stream = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{stream.st_dev}:{stream.st_ino}"


def info(event: str, **facts: object) -> None:
    """Log an expected event, or a recovery."""
    logging.getLogger(LOGGER).info(event, extra={"facts": _with_bridge(facts)})


def warn(event: str, **facts: object) -> None:
    """Log an event that an operator may have to act on."""
    logging.getLogger(LOGGER).warning(event, extra={"facts": _with_bridge(facts)})


def _with_bridge(facts: dict[str, object]) -> dict[str, object]:
    bridge = _BRIDGE.get()
    return {**facts, "bridge": bridge} if bridge else facts


class _Formatter(logging.Formatter):
    """Renders an event. For systemd-journald(8), which adds time and unit, each line begins with the level, which it
    strips (sd-daemon(3), syslog(3))."""

    def __init__(self, *, is_json: bool, is_leveled: bool) -> None:
        super().__init__()
        self._is_json, self._is_leveled = is_json, is_leveled

    def format(self, record: logging.LogRecord) -> str:
        level, event, facts = record.levelname.lower(), record.getMessage(), facts_of(record)
        if self._is_json:
            moment = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
            text = json.dumps({"time": moment, "level": level, "event": event, **facts}, default=as_plain)
        else:
            text = f"{level} {event} {render_facts(facts)}".rstrip()
        return f"<{_SYSLOG_LEVELS[level]}>{text}" if self._is_leveled else text


def facts_of(record: logging.LogRecord) -> dict[str, object]:
    facts: dict[str, object] = getattr(record, "facts", {})
    return facts


def render_facts(facts: Mapping[str, object]) -> str:
    """Return the facts as `key=value` words. Values with blanks or special characters are quoted."""
    return " ".join(f"{key}={_word(value)}" for key, value in facts.items())


def _word(value: object) -> str:
    """Quote characters that a terminal could interpret, because the answer of a backend may contain anything."""
    text = str(value)
    is_plain = text.isprintable() and not any(char in text for char in ' "=\\')
    return text if text and is_plain else json.dumps(text)


# Repeated events are logged at first, then rarely, each with the number of suppressed events.


_BURST = 20.0
"""How many events of one kind are logged in a burst. A script that drains many backends stays below this."""
_REFILL_S = 30.0
"""After a burst, one event of the kind is logged in each such interval."""
_MAX_KINDS = 4096
"""Kinds in memory. Beyond this the oldest are dropped, as when a rack loses power, and their next events are logged."""

_IDENTITY = ("service", "backend", "backends", "bridge", "port", "peer", "path")
"""Facts by which events with the same text are of different kinds. Reasons and numbers are not among them."""


class TokenBucket:
    """A rate limit with bursts: `rate` tokens a second, `size` at first and at most. Not thread-safe."""

    def __init__(self, *, rate: float, size: float, now_s: float) -> None:
        self._rate, self._size, self._tokens, self._at_s = rate, size, size, now_s

    def take(self, now_s: float) -> bool:
        """Take a token, and return whether there was one. A clock that goes back adds nothing."""
        self._tokens = min(self._size, self._tokens + self._rate * max(0.0, now_s - self._at_s))
        self._at_s = max(now_s, self._at_s)
        has_one = self._tokens >= 1
        self._tokens -= has_one
        return has_one


@dataclass(slots=True)
class _Kind:
    """The events of one kind. `suppressed`: how many were not logged."""

    bucket: TokenBucket
    last_suppressed: logging.LogRecord | None = None
    suppressed: int = 0


class RepeatFilter(logging.Filter):
    """Limits how often events of one kind are logged. The next logged event of a kind has the number of suppressed
    ones. If none follows in time, the last suppressed event is logged."""

    def __init__(self, logger: logging.Logger, *, now_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._logger, self._now_s = logger, now_s
        self._kinds: dict[tuple[object, ...], _Kind] = {}
        self._lock = Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        with self._lock:
            key, now_s = _key(record), self._now_s()
            kind = self._kinds.pop(key, None) or _Kind(TokenBucket(rate=1 / _REFILL_S, size=_BURST, now_s=now_s))
            self._kinds[key] = kind
            if len(self._kinds) > _MAX_KINDS:
                del self._kinds[next(iter(self._kinds))]
            if kind.bucket.take(now_s):
                _add_suppressed(record, kind)
                return True
            kind.last_suppressed, kind.suppressed = record, kind.suppressed + 1
            return False

    def release(self) -> None:
        """Log suppressed events of the kinds that may have one again. Call it every second."""
        with self._lock:
            released = list[logging.LogRecord]()
            for kind in self._kinds.values():
                if (record := kind.last_suppressed) is not None and kind.bucket.take(self._now_s()):
                    kind.suppressed -= 1
                    _add_suppressed(record, kind)
                    released.append(record)
        for record in released:
            self._logger.callHandlers(record)


def _add_suppressed(record: logging.LogRecord, kind: _Kind) -> None:
    if kind.suppressed:
        record.facts = {**facts_of(record), "suppressed": kind.suppressed}
    kind.last_suppressed, kind.suppressed = None, 0


def _key(record: logging.LogRecord) -> tuple[object, ...]:
    facts = facts_of(record)
    return (record.levelno, record.msg, *(facts.get(name) for name in _IDENTITY))


# The state of the service for systemd (sd_notify(3)).


def notify(message: str) -> bool:
    """Send lines of `KEY=value`, such as WATCHDOG=1. Return False if they were lost, as when systemd does not read
    them. Without systemd, return True."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return True
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.settimeout(0)
            # A name that starts with @ stands in the abstract namespace (unix(7)).
            sock.sendto(message.encode(), "\0" + address[1:] if address[0] == "@" else address)
    except OSError:
        return False
    return True


class Readiness:
    """Notifies systemd when the service is ready, and of reloads. READY=1 is repeated until it is delivered."""

    def __init__(self) -> None:
        self._is_ready = self._is_pending = False

    def ready(self) -> None:
        """Report that the bridge is as configured. Only the first call counts."""
        if not self._is_ready:
            self._is_ready = self._is_pending = True

    def reloading(self) -> None:
        """Report that the config will be read. Ignored at the start, because the READY=1 after it would end the start
        too."""
        if self._is_ready:
            # Type=notify-reload (systemd.service(5), since 253) requires the time.
            notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
            self._is_pending = True

    def idle(self) -> None:
        """Report that all requests so far were handled."""
        if self._is_pending:
            self._is_pending = not notify("READY=1")
