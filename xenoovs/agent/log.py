"""What the agent says: one line for one event, with its facts, as text or as JSON, on stderr."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum

from xenoovs.agent.document import shallow

LOGGER = "xenoovs.agent"


class LogForm(Enum):
    """How events are written."""

    TEXT = "text"
    JSON = "json"


def start_logging(form: LogForm) -> None:
    """Write events to stderr; systemd-journald(8) adds time and unit."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if form is LogForm.JSON else _Text())
    logger = logging.getLogger(LOGGER)
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False


def tell(event: str, **facts: object) -> None:
    """Something that was meant to happen, or that was put right."""
    logging.getLogger(LOGGER).info(event, extra={"facts": facts})


def warn(event: str, **facts: object) -> None:
    """Something that an operator may want to look at."""
    logging.getLogger(LOGGER).warning(event, extra={"facts": facts})


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
