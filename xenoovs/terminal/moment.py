"""A moment ahead, as an operator writes it: `22:00`, `2026-11-24T22:00+01:00`, `+90m`."""

from __future__ import annotations

import re
import time
from datetime import date, datetime, timedelta

import click

from xenoovs.display import duration, moment
from xenoovs.terminal.options import duration as duration_type

_CLOCK = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?", re.ASCII)
_DATED = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([0-9:]{5,8})(Z|[+-][0-9]{2}:[0-9]{2})?", re.ASCII)
_DAYS = 3
"""From today on: a clock time may be past today, and left out tomorrow by daylight saving."""


def moment_ahead(text: str, *, now_s: float | None = None, most_s: float) -> int:
    """Return a moment of the future, in milliseconds since 1970.

    Args:
        text: `HH:MM` or `HH:MM:SS`, the next one in local time; a date and time of ISO 8601, in local time if it has no
            offset; or `+` and a duration from now.
        now_s: Now, in seconds since 1970; None: by the clock.
        most_s: How far ahead it may be.

    Raises click.BadParameter: It is none of these, has passed, or is too far ahead.
    """
    now_s = time.time() if now_s is None else now_s
    at_s = _seconds(text.strip(), now_s)
    at_ms = int(at_s * 1000)
    if at_s <= now_s:
        raise click.BadParameter(f"{text!r} is {moment(at_ms)}, which has passed; give a time of the future.")
    if at_s - now_s > most_s:
        raise click.BadParameter(
            f"{text!r} is {moment(at_ms)}, in {duration(at_s - now_s)}; give a time of the next {duration(most_s)}."
        )
    return at_ms


def _seconds(text: str, now_s: float) -> float:
    if text.startswith("+"):
        return now_s + duration_type(text[1:])
    if _CLOCK.fullmatch(text):
        return _next_clock(text, now_s)
    found = _DATED.fullmatch(text)
    try:
        if found is not None and _CLOCK.fullmatch(found[2]):
            return _dated(found[1], found[2], found[3], text)
    except (ValueError, OverflowError):
        pass
    raise click.BadParameter(f"{text!r} is no time such as 22:00, 2026-11-24T22:00+01:00 or +90m.")


def _next_clock(text: str, now_s: float) -> float:
    today = datetime.fromtimestamp(now_s).date()
    days = [(today + timedelta(days=number)).isoformat() for number in range(_DAYS)]
    local = (datetime.fromisoformat(f"{day}T{text}").replace(fold=fold) for day in days for fold in (0, 1))
    return min(each.timestamp() for each in local if _exists(each) and each.timestamp() > now_s)


def _dated(day: str, clock: str, offset: str | None, text: str) -> float:
    date.fromisoformat(day)
    at = datetime.fromisoformat(f"{day}T{clock}{'+00:00' if offset == 'Z' else offset or ''}")
    if at.tzinfo is None and not _exists(at):
        raise click.BadParameter(f"{text!r} does not exist here: clocks are put forward over it.")
    return at.timestamp()


def _exists(local: datetime) -> bool:
    """Return whether a local time is one of its day: the hour that daylight saving leaves out is not."""
    return datetime.fromtimestamp(local.timestamp()) == local.replace(fold=0)
