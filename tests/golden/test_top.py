"""Frames of `xenoovs top`: at 80x24, wide, with a question, sorted, in trouble, piped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click
import pytest

from tests.golden.test_flows import compare
from tests.snapshots import NOW_S, snapshot
from xenoovs.cli.top import Order, Sort, Task, View, frame
from xenoovs.show.screen import Size
from xenoovs.show.snapshot import PortView, Snapshot

HERE = Path(__file__).parent / "top"

TROUBLE = replace(
    snapshot(),
    is_paused=True,
    last_error="bridge ovsbr1 is not there; the switch has br-int",
    config_problem="config.yaml:3:1: services: is missing",
    confirm_by_s=NOW_S + 20,
    ports=(PortView("p0", 1, link_up=False), PortView("p1", None, link_up=None)),
    pending_flow_mods=4,
)
EMPTY = replace(snapshot(), services=(), last_round_s=None, sampled_s=None)

CASES: dict[str, tuple[Snapshot, View, Size]] = {
    "standard": (snapshot(), View(), Size(80, 24)),
    "wide": (snapshot(), View(("web", "b2")), Size(150, 16)),
    "low": (snapshot(), View(("dns<script>alert(1)</script>", "b1")), Size(80, 8)),
    "question": (snapshot(), View(("web", "b1"), question=Order(Task.DRAIN, ("web", "b1"))), Size(80, 12)),
    "by_state": (snapshot(), View(("web", "b2"), Sort.STATE), Size(80, 12)),
    "by_packets": (snapshot(), View(None, Sort.PPS, message="web/b3 is already drained"), Size(100, 12)),
    "trouble": (TROUBLE, View(), Size(80, 20)),
    "empty": (EMPTY, View(), Size(80, 6)),
    "piped": (snapshot(), View(), Size(120)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_frame_is_as_recorded_and_fits(name: str, update_golden: bool) -> None:
    size, lines = CASES[name][2], [click.unstyle(line) for line in frame(*CASES[name])]
    assert (max(map(len, lines)) <= size.width, size.height in (None, len(lines))) == (True, True)
    compare(HERE / f"{name}.txt", "".join(f"{line}\n" for line in lines), update=update_golden)
