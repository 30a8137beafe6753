"""Numbers, times and text from outside, as people read and write them (tests/golden/cli/display.txt)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import partial
from typing import Any

import click

from tests.judged import assert_recorded
from xenoovs.display import decimal, duration, percent, percent_rounded_up, printable, quantity, span
from xenoovs.show.terminal import wrapped
from xenoovs.terminal import options
from xenoovs.terminal.output import filtered

JUST_BELOW_ALL = (0.9999, 1 - 1e-8, Fraction(10**9 - 1, 10**9))
JUST_ABOVE_NONE = (1e-9, 0.00004, 2**-16, Fraction(1, 65536))
BELOW_A_PREFIX = (999.6, 999_600, 999_999_999, 9.999e11, 999_499)
TEXTS = ("answered", "\x1b[2Jgone", "a\nb\tc\rd", "\x9b31m", "\u202egnp.exe", "\udc9b", "größer ▸")
PRINTED = (
    *("tab\tand\nline", "\x1b[31mred\x1b[0m", "\x1b[8mhidden", "\x1b[31;8mhidden", "user\u202etxt.exe"),
    *("caf\u00e9 \u2192 \u65e5\u672c", "file\udcff", "a\x00b\x7fc\x85d"),
)
MEGAFLOW = (
    "1,024 packets: recirc_id(0),in_port(p0),eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02),"
    "geneve({class=0x2,0x1/0xf}),p1"
)
LONG = "a long-long-word"


def _read(option: Callable[[str], float], text: str) -> str:
    try:
        return f"{option(text):g}"
    except click.BadParameter as refused:
        return f"refused: {refused.message}"


TIMES = ("10s", "500ms", "2m", "1h", "1.5s", "10", "2", "", "0s", "-1s", "1d", "s", "1e3s", "nan", "١s")
SHARES = ("95%", "99.9 %", "0%", "100%", "95", "0.95", "101%", "%", "-5%", "")
SHOWN: dict[str, tuple[Callable[[Any], str | list[str]], Iterable[object]]] = {
    "what is not all is never a hundred percent, and what is some never zero": (
        percent,
        (None, 0, 0.0, 0.125, 0.3344, Fraction(1, 3), 1.0, Fraction(1), *JUST_BELOW_ALL, *JUST_ABOVE_NONE),
    ),
    "a rounding error is neither": (percent, (0.9999999999999999, 1.1102230246251565e-16)),
    "a least value is rounded up": (percent_rounded_up, (Fraction(1, 4), Fraction(1, 3), Fraction(1, 10**9))),
    "a quantity has three digits and a prefix": (
        quantity,
        (None, 0, 0.05, 7, 99.97, 999.4, 1_234_567, 92_800_000, 1.5e15, *BELOW_A_PREFIX),
    ),
    "a duration has its two largest units": (
        duration,
        (None, -1, 0.4, 59.6, 59, 60, 119, 3_605, 7_260, 90_000, 86_400 * 100 + 59),
    ),
    "a latency has three digits": (span, (0, 0.00046, 0.00123, 0.0999, 0.9996, 1.5)),
    "a large or small number has no exponent": (
        decimal,
        (Fraction(70), Fraction(1, 2), Fraction(1, 3), Fraction(1, 10**9), Fraction(10**9), 0.0, 11.25, 1e6, 1e-9),
    ),
    "control characters from outside are escapes": (printable, TEXTS),
    "a command prints text and known colours alone": (lambda text: ascii(filtered(text)), PRINTED),
    "a time as the value of an option": (partial(_read, options.duration), TIMES),
    "a time that may be zero": (partial(_read, options.duration_or_zero), ("0", "0s")),
    "a share as the value of an option": (partial(_read, options.share), SHARES),
    "a megaflow is broken after commas and a number is not": (partial(wrapped, width=40, indent="  "), (MEGAFLOW,)),
    "a word that is longer than a line sticks out of a sentence": (partial(wrapped, width=6), (LONG,)),
    "and not out of a cell": (partial(wrapped, width=6, breaks_words=True), (LONG,)),
}


def test_what_is_shown(*, update_golden: bool) -> None:
    shown = {
        title: "\n".join(f"{value!r} -> {show(value)}" for value in values) for title, (show, values) in SHOWN.items()
    }
    assert_recorded("cli/display.txt", shown, update=update_golden)
    assert all(printable(text).isprintable() for text in TEXTS)
