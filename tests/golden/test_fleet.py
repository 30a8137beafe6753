"""What `fleet status`, `fleet top` and the metrics show of a fleet, as recorded in tests/golden/fleet."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import click
import pytest

from tests.golden.test_flows import compare
from tests.judged import assert_recorded
from tests.unit.store.test_cluster import LEADER, facts
from xenoovs.agent.telemetry import exposition
from xenoovs.dataclass import replace
from xenoovs.fleet.commands import status
from xenoovs.fleet.commands.serve import fleet_page
from xenoovs.fleet.commands.top import FleetScreen, fleet_frame, head_height
from xenoovs.fleet.health import TargetState, Votes
from xenoovs.fleet.snapshot import (
    DPUS,
    DRIFTS,
    FLEET_TABLES,
    HISTORY,
    SERVER_LIST,
    SERVERS,
    TARGETS,
    DpuRow,
    FleetSnapshot,
    TargetRow,
)
from xenoovs.show.screen import Size
from xenoovs.show.terminal import TextTable
from xenoovs.store.view import DpuState, DpuStatus, FleetView, Freeze, Intent, IntentState
from xenoovs.terminal import output

HERE = Path(__file__).parent / "fleet"
INTENT = Intent(7, "", "", "operator", "refused: no such thing", 0, IntentState.REFUSED)
VOTES = Votes(frozenset({"dpu1", "dpu2"}), frozenset({"dpu3"}), frozenset())
SNAPSHOT = FleetSnapshot(
    FleetView("production", 1, 41, 6, 0, intents={7: INTENT}),
    (
        DpuRow(
            "dpu1",
            DpuState.APPLIED,
            DpuStatus("dpu1", applied=41, drift={"web": "3f"}, verdicts={"HW": 3, "SW": 1}),
            3.0,
            groups=frozenset({"edge"}),
        ),
        DpuRow('dpu"2', DpuState.UNKNOWN, DpuStatus('dpu"2'), None, is_unfit=True),
    ),
    (facts(LEADER, gap="record 3 is missing"),),
    is_active=True,
    is_stalled=True,
    problems=("one",),
    now_s=0.0,
    targets=(
        TargetRow("192.0.2.1/tcp/80", ("web/one",), TargetState.DOWN, 3.0, VOTES),
        TargetRow("192.0.2.2/tcp/80", ("web/two",), TargetState.UP, 3.0, VOTES),
    ),
)
NEVER_ANSWERED = FleetSnapshot(None, (), (), is_active=False, problems=("lost",), now_s=0.0)


def tables(width: int | None) -> str:
    shown = [(DPUS, SNAPSHOT), (SERVER_LIST, SNAPSHOT), (HISTORY, SNAPSHOT.view), (DRIFTS, SNAPSHOT.rows)]
    texts = ("\n".join(TextTable.of(table.columns, table.shown(state)).lines(width)) for table, state in shown)
    return click.unstyle("\n\n".join(texts)) + "\n"


def frame(snapshot: FleetSnapshot) -> str:
    return click.unstyle("\n".join(fleet_frame(FleetScreen(snapshot), Size(100, 14)))) + "\n"


def documents() -> str:
    return json.dumps({name: table.documents(SNAPSHOT) for name, table in DOCUMENTS.items()}, indent=1) + "\n"


def test_a_fleet_of_200_fits_a_screen(capsys: pytest.CaptureFixture[str], *, update_golden: bool) -> None:
    """On a terminal of 80 columns, with DPUs in all states."""
    wrong = {5 * number: state for number, state in enumerate(DpuState, start=1)}
    wrong |= dict.fromkeys(range(90, 97), DpuState.BEHIND)
    error = "the bridge ovsbr1 has no port p9, behind which web2 is; add it, or map the name by `fleet_ports`"
    rows = [
        DpuRow(
            f"rack{number // 10:02}-dpu{number % 10}",
            state,
            DpuStatus("", applied=41, verdicts={"HW": 3}, error=error if state is DpuState.FAILED else ""),
            3.0,
            groups=frozenset({"edge" if number % 2 else "core"}),
            certificate_left_s=86_400.0 * (number + 5),
        )
        for number in range(200)
        for state in (wrong.get(number, DpuState.APPLIED),)
    ]
    assert SNAPSHOT.view is not None
    problems = ["no controller is active", *(f"web/web{number} has been down for 3s: {error}" for number in range(10))]
    snapshot = replace(SNAPSHOT, rows=tuple(rows), problems=tuple(problems), targets=())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(output, "terminal_width", lambda: 80)
        status._show(SNAPSHOT.view, snapshot, None, {}, source="")
    text = click.unstyle(capsys.readouterr().out)
    compare(HERE / "status-200.txt", text, update=update_golden)
    lines = text.splitlines()
    # One is for the next prompt.
    assert (len(lines) < 24, max(map(len, lines)) <= 80) == (True, True)


DOCUMENTS = {"dpus": DPUS, "servers": SERVERS, "targets": TARGETS}
CASES: dict[str, Callable[[], str]] = {
    "tables.txt": lambda: tables(None),
    "tables-80.txt": lambda: tables(80),
    "top.txt": lambda: frame(SNAPSHOT),
    "documents.json": documents,
    "metrics.txt": lambda: exposition(FLEET_TABLES, SNAPSHOT).decode(),
    "never-answered.txt": lambda: frame(NEVER_ANSWERED) + exposition(FLEET_TABLES, NEVER_ANSWERED).decode(),
}


@pytest.fixture(autouse=True)
def utc() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize("name", CASES)
def test_it_is_as_recorded(name: str, *, update_golden: bool) -> None:
    compare(HERE / name, CASES[name](), update=update_golden)


def test_the_page_shows_a_freeze_as_status_does() -> None:
    assert SNAPSHOT.view is not None
    freeze = Freeze("fleet", 60_000, "ann", "sales week-end")
    page = fleet_page(replace(SNAPSHOT, view=replace(SNAPSHOT.view, freezes={"fleet": freeze})))
    assert ("the fleet is frozen until 1970-01-01 00:01:00, by ann: sales week-end", "warn") in cast(
        list[object], page["notices"]
    )


def many(dpus: int = 1000, *problems: str) -> FleetSnapshot:
    rows = [DpuRow(f"dpu{n:03}", DpuState.APPLIED, DpuStatus(f"dpu{n:03}", applied=41), 12.0) for n in range(dpus)]
    status = replace(rows[500].status, applied=40, error="port p9 is not on bridge ovsbr1 " * 9)
    rows[500] = replace(rows[500], state=DpuState.FAILED, status=status)
    return FleetSnapshot(FleetView("production", 1, 41, 7, 0), tuple(rows), (), True, problems, 0.0)


FEW = many(501)
FRAMES = {
    "a thousand DPUs fit, and trouble comes first": (many(), ""),
    "a note that is cut off is below the table where there is room": (replace(FEW, rows=FEW.rows[498:]), ""),
    "keys scroll to the end and no further": (many(), "end down page-down"),
    "and back": (many(), "end home up"),
    "a filter shows one state, from its first DPU": (many(), "end f"),
    "the next one": (many(), "end f f"),
    "and returns to all": (many(), "f f f"),
    "many problems leave room for DPUs": (many(503, *(f"problem {n} " * 20 for n in range(30))), ""),
}


def pressed(snapshot: FleetSnapshot, keys: str) -> list[str]:
    screen = FleetScreen(snapshot)
    for key in keys.split():
        screen = screen.after(key, page=24 - head_height(snapshot))
    return [click.unstyle(line) for line in fleet_frame(screen, Size(80, 24))]


def test_frames_are_as_recorded_and_fit(*, update_golden: bool) -> None:
    frames = {title: pressed(*case) for title, case in FRAMES.items()}
    assert {len(frame) for frame in frames.values()} == {24}
    assert max(len(line) for frame in frames.values() for line in frame) <= 80
    assert_recorded("top/fleet.txt", {title: "\n".join(frame) for title, frame in frames.items()}, update=update_golden)
