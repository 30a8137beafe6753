"""Numbers, times and text from outside, as people read them."""

from __future__ import annotations

from fractions import Fraction

import pytest

from xenoovs.display import decimal, duration, percent, percent_rounded_up, printable, quantity, span


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (None, "-"),
        (0, "0%"),
        (0.0, "0%"),
        (0.125, "12.5%"),
        (0.3344, "33.44%"),
        (Fraction(1, 3), "33.33%"),
        (1.0, "100%"),
        (Fraction(1), "100%"),
        (sum([0.1] * 10), "100%"),
        (1 - sum([0.1] * 10), "0%"),
        (0.9999, "99.99%"),
        (1 - 1e-8, "99.99%"),
        (Fraction(10**9 - 1, 10**9), "99.99%"),
        *((share, "<0.01%") for share in (1e-9, 0.00004, 2**-16, Fraction(1, 65536))),
    ],
)
def test_what_is_not_all_is_never_a_hundred_percent_and_what_is_some_never_zero(
    share: Fraction | float | None, text: str
) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0, "0"),
        (0.05, "<0.1"),
        (7, "7"),
        (99.97, "100"),
        (999.4, "999"),
        (1_234_567, "1.23M"),
        (92_800_000, "92.8M"),
        (1.5e15, "1500T"),
        # Just below a prefix.
        *((999.6, "1k"), (999_600, "1M"), (999_999_999, "1G"), (9.999e11, "1T"), (999_499, "999k")),
    ],
)
def test_a_quantity_has_three_digits_and_a_prefix(value: float | None, text: str) -> None:
    assert quantity(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (-1, "0s"),
        (0.4, "0s"),
        (59.6, "1m"),
        (59, "59s"),
        (60, "1m"),
        (119, "1m 59s"),
        (3_605, "1h"),
        (7_260, "2h 1m"),
        (90_000, "1d 1h"),
        (86_400 * 100 + 59, "100d"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0us"), (0.00046, "460us"), (0.00123, "1.23ms"), (0.0999, "99.9ms"), (0.9996, "1s"), (1.5, "1.5s")],
)
def test_a_latency_has_three_digits(seconds: float, text: str) -> None:
    assert span(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Fraction(70), "70"),
        (Fraction(1, 2), "0.5"),
        (Fraction(1, 3), "1/3"),
        (Fraction(1, 10**9), "0.000000001"),
        (Fraction(10**9), "1000000000"),
        (0.0, "0"),
        (11.25, "11.25"),
        (1e6, "1000000"),
        (1e-9, "0.000000001"),
    ],
)
def test_a_large_or_small_number_has_no_exponent(value: Fraction | float, text: str) -> None:
    assert decimal(value) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("answered", "answered"),
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
        ("\x9b31m", "\\x9b31m"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\udc9b", "\\udc9b"),
        ("größer ▸", "größer ▸"),
    ],
)
def test_control_characters_from_outside_are_shown_as_escapes(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(text).isprintable()


@pytest.mark.parametrize(
    ("share", "text"), [(Fraction(1, 4), "25%"), (Fraction(1, 3), "33.34%"), (Fraction(1, 10**9), "0.0000001%")]
)
def test_a_least_value_is_rounded_up(share: Fraction, text: str) -> None:
    assert percent_rounded_up(share) == text
