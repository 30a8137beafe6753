"""Roll-outs in waves: which DPU has which services, when the next wave begins, and what reverts a roll-out."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from tests.command_line import SMALL_CONFIG
from tests.fleet_support import EMPTY, MORE, committed, given, settled
from xenoovs.fleet.plan import next_change
from xenoovs.fleet.rollout import (
    PATIENCE_S,
    FleetProgress,
    hw_share,
    next_step,
    planned_waves,
    waits_for,
)
from xenoovs.fleet.snapshot import dpu_rows
from xenoovs.store.view import Changes, Dpu, DpuState, DpuStatus, FleetView, IntentState

SOAK_S = 60


def fleet(*waves: int) -> FleetView:
    names = [f"dpu{number}" for number in range(1, len(waves) + 1)]
    dpus = {name: Dpu(name, frozenset(), wave=wave) for name, wave in zip(names, waves, strict=True)}
    return settled(given(replace(EMPTY, dpus=dpus), SMALL_CONFIG))


def rolling(view: FleetView) -> FleetView:
    """The view while its first wave is watched."""
    return settled(given(view, MORE, IntentState.ROLLING, soak_s=SOAK_S))


def reports(view: FleetView) -> dict[str, DpuStatus]:
    return {name: DpuStatus(name, applied=view.generation) for name in view.dpus}


def planned(waves: tuple[int, ...], **how: Any) -> dict[str, int]:
    """The waves that change."""
    return {name: dpu.wave for name, dpu in planned_waves(fleet(*waves).dpus, **how).items()}


def test_canaries_are_chosen_by_name_where_there_are_too_few() -> None:
    assert planned((3, 3, 2, 1), at_once=9) == {}
    assert planned((3, 3, 2, 1), canaries=3, at_once=9) == {"dpu1": 1, "dpu2": 1}
    assert planned((3, 3, 2, 1), canaries=9) == {"dpu1": 1, "dpu2": 1, "dpu3": 1}
    assert planned((3, 3)) == {"dpu1": 1}
    assert planned(()) == {}


def test_one_of_ten_dpus_is_in_the_second_wave_and_none_of_nine() -> None:
    assert 2 not in planned((1,) + (3,) * 8).values()
    assert planned((1,) + (3,) * 9, at_once=9) == {"dpu10": 2}
    assert planned((3,) * 10, at_once=9) == {"dpu1": 1, "dpu10": 2}
    assert planned((1, 2) + (3,) * 18, at_once=20) == {"dpu10": 2}
    assert planned((3,) * 4, second=2, at_once=9) == {"dpu1": 1, "dpu2": 2, "dpu3": 2}
    assert planned((3,) * 3, canaries=3, second=3) == {"dpu1": 1, "dpu2": 1, "dpu3": 1}
    assert planned((3,) * 20, second=0, at_once=20) == {"dpu1": 1}


def sizes(dpus: dict[str, Dpu], **how: Any) -> list[int]:
    """How many DPUs each wave has."""
    counts = Counter(dpu.wave for dpu in {**dpus, **planned_waves(dpus, **how)}.values())
    return [counts[wave] for wave in sorted(counts)]


def test_the_others_follow_a_quarter_at_a_time_and_the_next_roll_out_splits_them_anew() -> None:
    dpus = dict(fleet(*[3] * 200).dpus)
    assert sizes(dpus) == [2, 20, 50, 50, 50, 28]
    dpus |= planned_waves(dpus)
    assert planned_waves(dpus) == {}
    assert sizes(dpus, at_once=100) == [2, 20, 100, 78]
    assert sizes(dict(fleet(3, 3, 3).dpus)) == [1, 1, 1]


def test_waves_are_by_rack_or_group_and_canaries_of_many_racks() -> None:
    dpus = {
        f"r{rack}d{number}": Dpu(f"r{rack}d{number}", frozenset({"north" if rack < 3 else "south"}), f"r{rack}")
        for rack in range(1, 5)
        for number in range(5)
    }
    after = {**dpus, **planned_waves(dpus, canaries=4, by="rack")}
    assert {dpu.rack for dpu in after.values() if dpu.wave == 1} == {"r1", "r2", "r3", "r4"}
    racks = defaultdict[int, set[str]](set)
    for dpu in after.values():
        racks[dpu.wave].add(dpu.rack)
    assert [racks[wave] for wave in (3, 4, 5, 6)] == [{"r1"}, {"r2"}, {"r3"}, {"r4"}]
    assert sizes(dpus, canaries=4, by="rack", at_once=3) == [4, 3, 1, 3, 1, 3, 1, 3, 1]
    assert sizes(dpus, by="group") == [1, 9, 10]
    # Where nobody has said which rack a DPU is in, a wave would be all of the fleet.
    assert sizes(dict(fleet(*[3] * 200).dpus), by="rack") == [2, 50, 50, 50, 48]
    # Without it, no wave takes a whole rack.
    spread = {**dpus, **planned_waves(dpus)}
    assert all(len({each.wave for each in spread.values() if each.rack == rack}) > 2 for rack in ("r1", "r4"))


def test_the_share_in_hardware_leaves_out_what_is_not_known() -> None:
    assert hw_share({}) is hw_share({"ABSENT": 3, "UNCONFIRMED": 1}) is None
    assert hw_share({"HW": 1, "ABSENT": 9, "IDLE_HW": 1, "CONTRADICTED": 1, "TC_SW": 1}) == Fraction(1, 4)


def test_a_roll_out_is_stalled_when_a_step_is_overdue_also_for_a_controller_that_took_over() -> None:
    view, progress = rolling(fleet(1, 3)), FleetProgress()

    def is_stalled(now_s: float, view: FleetView = view) -> bool:
        found = {name: replace(status, seen_ms=int(now_s)) for name, status in reports(view).items()}
        return f"next step of wave {view.wave}" in progress.stall(view, found, now_s=now_s)

    # The step is due at 60 s; a successor has watched for 60 s at 135 s.
    assert [now_s for now_s in range(0, 140, 5) if is_stalled(now_s)] == [135]
    # A wave that begins is watched from the beginning.
    step = next_step(view, reports(view), watched_s=SOAK_S)
    assert step.changes is not None
    later = settled(committed(view, step.changes))
    assert [now_s for now_s in range(140, 280, 5) if is_stalled(now_s, later)] == [275]
    # Nothing is due while a DPU that is waited for may come yet; its refusal is.
    found = {**reports(view), "dpu1": DpuStatus("dpu1")}
    progress = FleetProgress()
    times = [now_s for now_s in range(0, 400, 5) if progress.stall(view, found, now_s=now_s)]
    assert times[0] == SOAK_S + PATIENCE_S + 15 + SOAK_S + PATIENCE_S


@pytest.mark.parametrize("wave", [1, 3])
def test_a_wave_without_a_roll_out_ends_and_does_not_give_the_next_config_to_all_at_once(wave: int) -> None:
    """As a mistaken or hostile client of the store may leave it."""
    before = fleet(1, 3)
    hostile = replace(before, wave=wave)
    assert settled(hostile) == replace(before, generation=before.generation + 1)
    # So too if no controller runs before the next roll-out, or if something is staged.
    begun = settled(committed(given(hostile, MORE, IntentState.ROLLING, soak_s=SOAK_S), Changes(wave=0)))
    assert begun.wave == 1
    cleaned = next_change(given(hostile, MORE, IntentState.ROLLING, soak_s=SOAK_S)).changes
    assert (cleaned.wave, cleaned.services, cleaned.intents) == (0, {}, {})
    staged = replace(hostile, staged=begun.staged, removed=frozenset({"dns"}))
    after = settled(staged)
    assert (after.wave, after.staged, after.removed, after.services) == (0, {}, frozenset(), before.services)


@pytest.mark.parametrize(
    ("ahead", "store", "commit", "state"),
    [
        (0, "new", "c/1", DpuState.APPLIED),
        # Of an agent that does not report it.
        (0, "", "", DpuState.APPLIED),
        (-1, "new", "b/1", DpuState.BEHIND),
        (0, "new", "other/1", DpuState.BEHIND),
        (0, "new", "c/2", DpuState.BEHIND),
        (1, "new", "d/1", DpuState.AHEAD),
        (0, "old", "x/1", DpuState.OTHER_STORE),
        (6, "old", "x/1", DpuState.OTHER_STORE),
    ],
)
def test_bug_a_dpu_ahead_of_the_store_or_of_another_one_was_applied_and_passed_its_wave(
    ahead: int, store: str, commit: str, state: DpuState
) -> None:
    """Also one with the number of the newest generation and other content."""
    view = replace(rolling(fleet(1, 3)), store_id="new", commit_id="c", content="1")
    status = DpuStatus("dpu1", applied=view.generation + ahead, store=store, commit=commit)
    assert (waits_for(view, {"dpu1": status}) == {}) is (state is DpuState.APPLIED)
    assert (next_step(view, {"dpu1": status}, watched_s=SOAK_S).changes is not None) is (state is DpuState.APPLIED)
    is_named = state in (DpuState.AHEAD, DpuState.OTHER_STORE)
    for error, shown in (("", state), ("refused", state if is_named else DpuState.FAILED)):
        assert dpu_rows(view, {"dpu1": replace(status, error=error)}, now_s=0.0)[0].state is shown
