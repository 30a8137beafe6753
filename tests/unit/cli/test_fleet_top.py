"""Frames of `xenoovs fleet top`, with 1,000 DPUs in 80x24."""

from __future__ import annotations

from dataclasses import replace

import click

from tests.judged import assert_recorded
from xenoovs.fleet.commands.top import FleetScreen, fleet_frame, head_height
from xenoovs.fleet.snapshot import DpuRow, DpuState, FleetSnapshot
from xenoovs.show.screen import Size
from xenoovs.store.view import DpuStatus, FleetView


def fleet(dpus: int = 1000, *problems: str) -> FleetSnapshot:
    rows = [DpuRow(f"dpu{n:03}", DpuState.APPLIED, DpuStatus(f"dpu{n:03}", applied=41), 12.0) for n in range(dpus)]
    status = replace(rows[500].status, applied=40, error="port p9 is not on bridge ovsbr1 " * 9)
    rows[500] = replace(rows[500], state=DpuState.FAILED, status=status)
    return FleetSnapshot(FleetView("production", 1, 41, 7, 0), tuple(rows), (), True, problems, 0.0)


FEW = fleet(501)
CASES = {
    "a thousand DPUs fit, and trouble comes first": (fleet(), ""),
    "a note that is cut off is below the table where there is room": (replace(FEW, rows=FEW.rows[498:]), ""),
    "keys scroll to the end and no further": (fleet(), "end down page-down"),
    "and back": (fleet(), "end home up"),
    "a filter shows one state, from its first DPU": (fleet(), "end f"),
    "the next one": (fleet(), "end f f"),
    "and returns to all": (fleet(), "f f f"),
    "many problems leave room for DPUs": (fleet(503, *(f"problem {n} " * 20 for n in range(30))), ""),
}


def shown(snapshot: FleetSnapshot, keys: str) -> list[str]:
    screen = FleetScreen()
    for key in keys.split():
        screen = screen.after(key, snapshot, page=24 - head_height(snapshot))
    return [click.unstyle(line) for line in fleet_frame(snapshot, screen, Size(80, 24))]


def test_frames_are_as_recorded_and_fit(*, update_golden: bool) -> None:
    frames = {title: shown(*case) for title, case in CASES.items()}
    assert {len(frame) for frame in frames.values()} == {24}
    assert max(len(line) for frame in frames.values() for line in frame) <= 80
    assert_recorded("top/fleet.txt", {title: "\n".join(frame) for title, frame in frames.items()}, update=update_golden)
