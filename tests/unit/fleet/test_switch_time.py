"""When DPUs switch to a change, and how long a DPU waits after it has received it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from tests.command_line import SMALL_CONFIG
from tests.fleet_support import EMPTY, MORE, committed, given, settled
from xenoovs.fleet.plan import (
    MAX_WAIT_S,
    completion,
    is_awaited,
    next_change,
    refusal,
    rolling_intent,
    seconds_to_wait,
    switch_time_ms,
)
from xenoovs.store.view import Changes, Dpu, FleetView, IntentState

NOW_MS = 1_800_000_000_000


@pytest.fixture
def view() -> FleetView:
    """A fleet with a config and two DPUs, one of them a canary."""
    dpus = {name: Dpu(name, frozenset(), wave=wave) for name, wave in (("dpu1", 1), ("dpu2", 3))}
    return committed(settled(given(EMPTY, SMALL_CONFIG)), Changes(dpus=dpus))


def test_what_moves_clients_has_a_time_unless_the_operator_disables_it(view: FleetView) -> None:
    first, later, begun = given(EMPTY, SMALL_CONFIG), given(view, MORE), given(view, MORE, IntentState.ROLLING)
    wave, changes, soon = settled(begun), next_change(later).changes, NOW_MS + 2000
    intent = rolling_intent(wave)
    assert intent is not None
    for name, before, made, expected in (
        ("the first config", first, next_change(first).changes, 0),
        ("another config", later, changes, soon),
        ("another config that has its time", later, replace(changes, switch_at_ms=0), 0),
        ("the first wave", begun, next_change(begun).changes, soon),
        ("the next wave", wave, Changes(wave=3, ack=True), soon),
        ("a roll-out that is taken back", wave, refusal(wave, intent, ""), 0),
        ("the end of a roll-out", wave, completion(wave, intent), 0),
        ("no flows", view, Changes(dpus={"dpu3": Dpu("dpu3", frozenset())}), None),
    ):
        assert switch_time_ms(before, made, now_ms=NOW_MS, after_s=2.0) == expected, name
    assert switch_time_ms(later, changes, now_ms=NOW_MS, after_s=0.0) == 0


@pytest.mark.parametrize(
    ("ahead_ms", "awaited"), [(-1, False), (0, False), (1, True), (2000, True), (3_600_000, False)]
)
def test_a_time_of_another_clock_keeps_no_change_from_being_written(
    view: FleetView, ahead_ms: int, *, awaited: bool
) -> None:
    assert is_awaited(replace(view, switch_at_ms=NOW_MS + ahead_ms), now_ms=NOW_MS) is awaited


@drawn(st.integers(0, 1 << 62), st.floats(0, 2e12, allow_nan=False))
def test_no_clock_makes_a_dpu_wait_for_long(switch_at_ms: int, now_ms: float) -> None:
    waits_s = seconds_to_wait(switch_at_ms, now_ms=now_ms)
    assert 0 <= waits_s <= MAX_WAIT_S
    assert (waits_s == 0) == (switch_at_ms <= now_ms)
    if 0 < switch_at_ms - now_ms < MAX_WAIT_S * 1000:
        assert now_ms + waits_s * 1000 == pytest.approx(switch_at_ms)
