"""What the agent says: one line for one event, with its facts, as text or as JSON, on stderr."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from enum import Enum

from xenoovs.agent.document import shallow

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
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
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
