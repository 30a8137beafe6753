"""A token bucket: never more than its size at once, and its rate in the long run."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from xenoovs.controller.log import full_bucket, take


def _taken(times: list[float], *, rate: float, size: float) -> int:
    bucket, taken = full_bucket(rate=rate, size=size, now_s=0.0), 0
    for now_s in times:
        bucket, had_one = take(bucket, now_s)
        taken += had_one
    return taken


def test_what_it_holds_is_given_at_once() -> None:
    assert _taken([0.0] * 100, rate=10, size=5) == 5


def test_it_fills_up_again() -> None:
    assert _taken([0.0] * 100 + [0.3] * 100, rate=10, size=5) == 8


def test_it_does_not_overflow() -> None:
    assert _taken([1000.0] * 100, rate=10, size=5) == 5


def test_a_clock_that_goes_back_adds_no_tokens() -> None:
    assert _taken([10.0] * 100 + [0.0] * 100 + [10.0] * 100, rate=10, size=5) == 5


@given(steps=st.lists(st.floats(0, 2), max_size=100))
def test_never_more_than_size_and_rate_allow(steps: list[float]) -> None:
    times = list(accumulate(steps))
    assert _taken(times, rate=3, size=4) <= 4 + 3 * (times[-1] if times else 0)
