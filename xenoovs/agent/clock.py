"""The error of this host's clock, as its kernel estimates it from NTP or PTP."""

from __future__ import annotations

import ctypes

_UNSYNCHRONISED, _UNKNOWN_STATE = 0x0040, 5
"""STA_UNSYNC of `status` and TIME_ERROR, the state of an unsynchronised clock (<sys/timex.h>, adjtimex(2))."""
_LIBC = ctypes.CDLL(None)


class _Timex(ctypes.Structure):
    """`struct timex` of <sys/timex.h>; what comes after `status` is not read."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 256),
    )


def clock_error_us() -> int:
    """Return the estimated error of the clock in microseconds; -1: not known, as without NTP and PTP."""
    asked = _Timex()
    # modes 0 only reads, and needs no right.
    state = _LIBC.adjtimex(ctypes.byref(asked))
    return error_us(state, asked.status, asked.esterror)


def error_us(state: int, status: int, estimated_us: int) -> int:
    """Return the error of a clock in microseconds from what adjtimex(2) answers; -1: not known.

    Args:
        state: What the call returns; negative: it failed.
        status: Flags.
        estimated_us: `esterror`.
    """
    if state < 0 or state == _UNKNOWN_STATE or status & _UNSYNCHRONISED:
        return -1
    return max(0, estimated_us)
