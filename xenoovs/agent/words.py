"""Numbers and times in few letters, for people: the same on the status page and in `xenoovs top`."""

from __future__ import annotations

_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3_600, 86_400


def percent(share: float | None) -> str:
    """A share 0..1 with one decimal at most; what is almost all is not called all. `-` for none."""
    if share is None:
        return "-"
    hundreds = share * 100
    rounded = round(hundreds, 1)
    if rounded == 100 and share < 1:
        rounded = 99.9
    if rounded == 0 and share > 0:
        return "<0.1 %"
    return f"{rounded:g} %"


def quantity(value: float | None) -> str:
    """A count or rate with an SI prefix, in 6 characters at most: 1234567 is 1.23 M. `-` for none."""
    if value is None:
        return "-"
    if 0 < value < 0.095:
        return "<0.1"
    for factor, prefix in _PREFIXES:
        # From 999.5 on three digits would be 1000.
        if value >= factor * 0.9995:
            return f"{_digits(value / factor)} {prefix}"
    return _digits(value)


def ago(seconds: float | None) -> str:
    """A time span by its largest unit: `95 s`, `12 min`, `3 h`, `4 d`. `-` for none."""
    if seconds is None:
        return "-"
    whole = max(0, int(seconds))
    if whole < 2 * _MINUTE_S:
        return f"{whole} s"
    if whole < 2 * _HOUR_S:
        return f"{whole // _MINUTE_S} min"
    if whole < 2 * _DAY_S:
        return f"{whole // _HOUR_S} h"
    return f"{whole // _DAY_S} d"


def keeping(blocks: int) -> str:
    """What a drain does for so many blocks."""
    return "1 block keeps open connections" if blocks == 1 else f"{blocks} blocks keep open connections"


def number(value: float) -> str:
    """A weight: no decimals where there are none."""
    return f"{value:.6g}"


def _digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
