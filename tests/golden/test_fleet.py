"""What `fleet status`, `fleet top` and the metrics show of a fleet, as recorded in tests/golden/fleet."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from tests.unit.store.test_cluster import LEADER, facts
from xenoovs.agent.telemetry import exposition
from xenoovs.dataclass import replace
from xenoovs.fleet.commands import status
from xenoovs.fleet.commands.top import FleetScreen, fleet_frame
from xenoovs.fleet.snapshot import DpuRow, DpuState, FleetSnapshot, TargetRow, TargetState
from xenoovs.fleet.tables import DPUS, DRIFTS, FLEET_TABLES, HISTORY, SERVER_LIST, SERVERS, TARGETS
from xenoovs.fleet.votes import Votes
from xenoovs.show.screen import Size
from xenoovs.show.terminal import TextTable
from xenoovs.store.view import DpuStatus, FleetView, Intent, IntentState

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
    return click.unstyle("\n".join(fleet_frame(snapshot, FleetScreen(), Size(100, 14)))) + "\n"


def documents() -> str:
    return json.dumps({name: table.documents(SNAPSHOT) for name, table in DOCUMENTS.items()}, indent=1) + "\n"


def status_of_200(capsys: pytest.CaptureFixture[str]) -> str:
    """`fleet status` of a fleet in which nine DPUs need an operator."""
    wrong = {5: DpuState.SILENT, 17: DpuState.FAILED, **dict.fromkeys(range(90, 97), DpuState.BEHIND)}
    rows = [
        DpuRow(
            f"dpu{number}",
            wrong.get(number, DpuState.APPLIED),
            DpuStatus(f"dpu{number}", applied=41, verdicts={"HW": 3}, error="no port p9" if number == 17 else ""),
            3.0,
            groups=frozenset({"edge" if number % 2 else "core"}),
            certificate_left_s=86_400.0 * (number + 20),
        )
        for number in range(200)
    ]
    assert SNAPSHOT.view is not None
    snapshot = replace(SNAPSHOT, rows=tuple(rows), problems=("no controller is active",), targets=())
    status._show(SNAPSHOT.view, snapshot, status._shortened(snapshot), {})
    return capsys.readouterr().out


def test_a_fleet_of_200_fits_a_screen(capsys: pytest.CaptureFixture[str], *, update_golden: bool) -> None:
    text = status_of_200(capsys)
    if update_golden:
        (HERE / "status-200.txt").write_text(text)
    assert text == (HERE / "status-200.txt").read_text()
    assert text.count("\n") <= 24


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
    text = CASES[name]()
    if update_golden:
        HERE.mkdir(exist_ok=True)
        (HERE / name).write_text(text)
    assert text == (HERE / name).read_text()
