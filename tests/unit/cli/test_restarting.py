"""The result of a planned restart, as both commands that make one report it."""

from __future__ import annotations

from xenoovs.cli.restart_ovs import restart_document, restart_lines
from xenoovs.switch.planned_restart import PlannedRestart

DONE = PlannedRestart(0.4567, {"ovsbr1": 8, "ovsbr2": 1}, {"ovsbr1": 2, "ovsbr2": 0})


def test_for_people() -> None:
    assert list(restart_lines(DONE)) == [
        "ovsbr1: 8 flows and 2 groups are back",
        "ovsbr2: 1 flow is back",
        "done: 457ms from the order to restart until all was back",
    ]


def test_for_programs() -> None:
    assert restart_document(DONE) == {
        "gap_s": 0.457,
        "flows": {"ovsbr1": 8, "ovsbr2": 1},
        "groups": {"ovsbr1": 2, "ovsbr2": 0},
        "left_to_ovn": [],
    }
