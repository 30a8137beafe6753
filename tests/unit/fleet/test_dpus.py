"""The state of DPUs, from their reports."""

from __future__ import annotations

from dataclasses import replace

import pytest

from xenoovs.fleet.snapshot import DpuRow, DpuState, dpu_problems, dpu_rows
from xenoovs.store.view import Dpu, DpuStatus, FleetView

NOW_S = 1_800_000_000.0


def row(clock_s: float, silent: frozenset[str] = frozenset()) -> DpuRow:
    """The row of a DPU that reports just now, by a clock that is off by `clock_s`."""
    status = DpuStatus("dpu1", applied=1, seen_ms=int((NOW_S + clock_s) * 1000))
    view = FleetView("fleet", 1, generation=1, intent=1, ack=0, dpus={"dpu1": Dpu("dpu1", frozenset())})
    return dpu_rows(replace(view, silent=silent), {"dpu1": status}, now_s=NOW_S)[0]


@pytest.mark.parametrize("clock_s", [-170, 0, 170])
def test_a_clock_that_is_a_little_off_changes_nothing(clock_s: int) -> None:
    found = row(clock_s)
    assert (found.state, found.note, found.seen_s) == (DpuState.APPLIED, "", max(0, -clock_s))


@pytest.mark.parametrize(("clock_s", "when"), [(3600, "in the future"), (-3600, "ago")])
def test_bug_a_clock_that_was_off_by_an_hour_made_a_dpu_silent(clock_s: int, when: str) -> None:
    """Also where the clock of the reader was the wrong one. Only the controller finds silence, by its own clock."""
    found = row(clock_s)
    assert found.state is DpuState.APPLIED
    assert f"its last report is 1h {when} by its clock and that of this host" in found.note
    assert dpu_problems([found]) == ["the clocks of this host and of dpu1 differ by minutes: set them (NTP)"]
    assert dpu_problems([row(0)]) == []
    silent = row(clock_s, silent=frozenset({"dpu1"}))
    assert (silent.state, silent.note, dpu_problems([silent])) == (DpuState.SILENT, "", [])


@pytest.mark.parametrize(
    ("applied", "store", "commit", "state"),
    [
        (3, "new", "c/1", DpuState.APPLIED),
        # Of an agent that does not report it.
        (3, "", "", DpuState.APPLIED),
        (2, "new", "b/1", DpuState.BEHIND),
        (3, "new", "other/1", DpuState.BEHIND),
        (3, "new", "c/2", DpuState.BEHIND),
        (4, "new", "d/1", DpuState.AHEAD),
        (3, "old", "x/1", DpuState.OTHER_STORE),
        (9, "old", "x/1", DpuState.OTHER_STORE),
    ],
)
def test_bug_a_dpu_with_the_number_of_the_newest_generation_and_other_content_was_applied(
    applied: int, store: str, commit: str, state: DpuState
) -> None:
    view = FleetView("fleet", 1, 3, 1, 0, dpus={"dpu1": Dpu("dpu1", frozenset())})
    view = replace(view, store_id="new", commit_id="c", content="1")
    status = DpuStatus("dpu1", applied=applied, store=store, commit=commit, seen_ms=int(NOW_S * 1000), error="refused")
    for error in ("", "refused"):
        found = dpu_rows(view, {"dpu1": replace(status, error=error)}, now_s=NOW_S)[0].state
        is_named = state in (DpuState.AHEAD, DpuState.OTHER_STORE)
        assert found is (DpuState.FAILED if error and not is_named else state)


def test_a_certificate_that_ends_within_two_weeks_is_a_problem() -> None:
    found = row(0)
    day_s = 86_400.0
    rows = [replace(found, name=f"d{days}", certificate_left_s=days * day_s) for days in (400, 15, 13, 2)]
    assert dpu_problems([*rows, found]) == [
        "the certificate of d2, d13 ends in 2d: make another one, and restart what uses it"
    ]
    assert "ended 1d ago" in dpu_problems([replace(found, certificate_left_s=-day_s)])[0]
