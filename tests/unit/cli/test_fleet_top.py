"""Frames of `xenoovs fleet top`, with 1,000 DPUs in 80x24."""

from __future__ import annotations

from dataclasses import replace

import click

from xenoovs.fleet.commands.top import FleetScreen, fleet_frame, head_height
from xenoovs.fleet.snapshot import DpuRow, DpuState, FleetSnapshot
from xenoovs.show.screen import Size
from xenoovs.store.view import DpuStatus, FleetView

SIZE = Size(80, 24)


def fleet(dpus: int = 1000, *problems: str) -> FleetSnapshot:
    rows = [DpuRow(f"dpu{n:03}", DpuState.APPLIED, DpuStatus(f"dpu{n:03}", applied=41), 12.0) for n in range(dpus)]
    status = replace(rows[500].status, applied=40, error="port p9 is not on bridge ovsbr1 " * 9)
    rows[500] = replace(rows[500], state=DpuState.FAILED, status=status)
    return FleetSnapshot(FleetView("production", 1, 41, 7, 0), tuple(rows), (), True, problems, 0.0)


def lines(snapshot: FleetSnapshot, screen: FleetScreen = FleetScreen()) -> list[str]:  # noqa: B008 - it is frozen
    return [click.unstyle(line) for line in fleet_frame(snapshot, screen, SIZE)]


def test_a_thousand_dpus_fit_and_trouble_comes_first() -> None:
    shown = lines(fleet())
    assert len(shown) == 24
    assert max(map(len, shown)) <= 80
    assert shown[0] == "xenoovs fleet top  production  1 DPU differs"
    assert shown[2] == "1 failed   999 applied"
    assert shown[4].split()[:5] == ["dpu500", "failed", "40", "-", "12s"]
    assert shown[5].split() == ["dpu000", "applied", "41", "-", "12s"]
    assert shown[-1] == "1-19 of 1000   ↑ ↓ scroll   f filter: all   q quit"


def test_a_note_that_is_cut_off_is_below_the_table_where_there_is_room() -> None:
    made = fleet(501)
    made = replace(made, rows=made.rows[498:])
    shown = lines(made)
    assert (len(shown), max(map(len, shown)) <= 80) == (24, True)
    assert shown[4].endswith("…")
    assert (shown[7], shown[8].startswith("dpu500: port p9 is not on bridge ovsbr1 port p9")) == ("", True)
    assert shown[-1].startswith("1-3 of 3 ")


def test_keys_scroll_to_the_end_and_no_further() -> None:
    snapshot, page = fleet(), 24 - head_height(fleet())
    screen = FleetScreen()
    for key in ("end", "down", "page-down"):
        screen = screen.after(key, snapshot, page=page)
    shown = lines(snapshot, screen)
    assert shown[-2].startswith("dpu999")
    assert shown[-1].startswith("982-1000 of 1000")
    assert screen.after("home", snapshot, page=page).first == 0
    assert FleetScreen().after("up", snapshot, page=page).first == 0


def test_a_filter_shows_one_state_and_returns_to_all() -> None:
    screen = FleetScreen(first=300).after("f", fleet(), page=19)
    assert screen == FleetScreen(DpuState.FAILED)
    shown = lines(fleet(), screen)
    assert [line for line in shown if line.startswith("dpu500 ") or line.startswith("dpu0")] == shown[4:5]
    screen = screen.after("f", fleet(), page=19)
    assert screen == FleetScreen(DpuState.APPLIED)
    assert screen.after("f", fleet(), page=19) == FleetScreen()


def test_many_problems_leave_room_for_dpus() -> None:
    shown = lines(fleet(3 + 500, *(f"problem {n} " * 20 for n in range(30))))
    assert shown[7] == "26 more: see `xenoovs fleet status`"
    assert shown[9].startswith("dpu500")
    assert max(map(len, shown)) <= 80
