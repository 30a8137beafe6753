"""How numbers, times and text from outside are shown: one function for each, the same in every command and page."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from decimal import ROUND_CEILING, Context, Decimal
from enum import Enum
from fractions import Fraction
from typing import Any

_ROUNDING = 1e-12
"""How far a sum of shares may be from 0 or 1 by the rounding of its parts."""
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_MOST_DECIMALS = 9


def percent(share: Fraction | float | None) -> str:
    """Return a share 0..1 with two decimals at most: `33.33%`; `-` for None.

    Only nothing is `0%`, and only everything is `100%`.
    """
    if share is None:
        return "-"
    text = f"{float(share) * 100:.2f}".rstrip("0").rstrip(".")
    if text == "0" and share > _ROUNDING:
        return "<0.01%"
    if text == "100" and share < 1 - _ROUNDING:
        return "99.99%"
    return f"{text}%"


def percent_rounded_up(share: Fraction) -> str:
    """Return a share in four digits, rounded up: a least value that is still enough when it is typed in."""
    context = Context(prec=4, rounding=ROUND_CEILING)
    return f"{context.divide(Decimal(100 * share.numerator), Decimal(share.denominator)):f}%"


def quantity(value: float | None) -> str:
    """Return a count or a rate in three digits with an SI prefix: 1234567 is `1.23M`; `-` for None."""
    if value is None:
        return "-"
    if 0 < value < 0.095:
        return "<0.1"
    for factor, prefix in _PREFIXES:
        # From 999.5 on three digits would be 1000.
        if value >= factor * 0.9995:
            return f"{_digits(value / factor)}{prefix}"
    return _digits(value)


def duration(seconds: float | None) -> str:
    """Return a span in its two largest units: `3d 4h`, `5m 20s`, `12s`; `-` for None."""
    if seconds is None:
        return "-"
    left = max(0, round(seconds))
    first = next((index for index, (_, size) in enumerate(_UNITS) if left >= size), len(_UNITS) - 1)
    parts = list[str]()
    for unit, size in _UNITS[first : first + 2]:
        count, left = divmod(left, size)
        if count or not parts:
            parts.append(f"{count}{unit}")
    return " ".join(parts)


def moment(milliseconds: int) -> str:
    """Return a moment, in milliseconds since 1970, in local time: `2026-11-24 22:00:00`; `-`: beyond the calendar."""
    try:
        return f"{datetime.fromtimestamp(milliseconds / 1000).astimezone():%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError, OSError):
        return "-"


def span(seconds: float) -> str:
    """Return a short span in three digits: `460us`, `12.3ms`, `1.5s`."""
    if seconds >= 0.9995:
        return f"{_digits(seconds)}s"
    return f"{_digits(seconds * 1e3)}ms" if seconds >= 0.0009995 else f"{_digits(seconds * 1e6)}us"


def decimal(value: Fraction | float) -> str:
    """Return a number without an exponent: `70`, `0.5`; a fraction without a decimal form exactly: `1/3`."""
    if isinstance(value, Fraction):
        scaled = value * 10**_MOST_DECIMALS
        if scaled.denominator != 1:
            return str(value)
        whole, part = divmod(scaled.numerator, 10**_MOST_DECIMALS)
        text = f"{whole}.{part:0{_MOST_DECIMALS}}"
    else:
        text = f"{Decimal(f'{value:.{_MOST_DECIMALS}g}'):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def printable(text: str) -> str:
    r"""Return the text with every character that is not printable as an escape: ESC becomes `\x1b`.

    Names and reasons come from configs, switches and servers. Unescaped they could move the cursor of a terminal or
    change what it shows.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def as_plain(value: object) -> object:
    """Return a value that JSON can have: a number for a fraction, and text for types that JSON does not have."""
    if value is None or isinstance(value, str | int | float | list | tuple | dict):
        return value
    if isinstance(value, Fraction):
        return value.numerator if value.denominator == 1 else float(value)
    return value.value if isinstance(value, Enum) else str(value)


def unique_keys(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON (`object_pairs_hook` of json.loads). Raises ValueError if a key is in it twice."""
    found = dict[str, Any]()
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r:.40} is twice in one object")
        found[key] = value
    return found


def _digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
