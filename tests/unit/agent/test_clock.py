"""The estimated error of a clock."""

from __future__ import annotations

import pytest

from xenoovs.agent.clock import clock_error_us, error_us


@pytest.mark.parametrize(
    ("state", "status", "estimated_us", "expected"),
    [
        (0, 0x2001, 310, 310),
        (0, 0x2001, 0, 0),
        (5, 0x0040, 16_000_000, -1),
        (0, 0x0041, 12, -1),
        (5, 0x2001, 12, -1),
        (-1, 0, 0, -1),
        (0, 0x2001, -7, 0),
    ],
)
def test_the_error_is_that_of_the_kernel_unless_nothing_sets_the_clock(
    state: int, status: int, estimated_us: int, expected: int
) -> None:
    assert error_us(state, status, estimated_us) == expected


def test_the_kernel_of_this_host_answers() -> None:
    assert clock_error_us() >= -1
