"""Reports of DPUs have bounds: those of the schema, of what agents send, and of what is read are the same."""

from __future__ import annotations

from xenoovs.store.export import declared_columns
from xenoovs.store.rows import STATUSES, StoreDatabase
from xenoovs.store.view import MAX_DOWN, MAX_DRIFT, MAX_ERROR, MAX_NAME, MAX_VERDICTS, DpuStatus

HUGE = DpuStatus(
    "dpu1",
    version="v" * 1000,
    error="e" * 10_000,
    drift={**{f"s{number:05}": "d" * 1000 for number in range(5000)}, "n" * 500: ""},
    verdicts={f"v{number:05}": 1 for number in range(1000)},
    down=frozenset({*(f"t{number:06}" for number in range(50_000)), "n" * 500}),
)


def test_the_bounds_are_those_of_the_schema() -> None:
    columns = declared_columns(StoreDatabase.STATES)["Dpu_State"]
    assert (columns["version"]["key"]["maxLength"], columns["error"]["key"]["maxLength"]) == (MAX_NAME, MAX_ERROR)
    for column, entries in (("drift", MAX_DRIFT), ("verdicts", MAX_VERDICTS), ("down", MAX_DOWN)):
        assert (columns[column]["key"]["maxLength"], columns[column]["max"]) == (MAX_NAME, entries)
    assert columns["drift"]["value"]["maxLength"] == MAX_NAME


def test_a_huge_report_is_cut_and_is_no_error() -> None:
    cut = HUGE.bounded
    assert cut.drift == {f"s{number:05}": "d" * MAX_NAME for number in range(MAX_DRIFT)}
    assert (len(cut.version), len(cut.error), len(cut.verdicts), len(cut.down)) == (
        MAX_NAME,
        MAX_ERROR,
        MAX_VERDICTS,
        MAX_DOWN,
    )
    assert cut.bounded == cut
    # One report with too much must not keep the others from being read.
    assert STATUSES.value(STATUSES.row(HUGE)) == cut
    usual = DpuStatus("dpu2", error="no port p9", drift={"dns": "0"}, down=frozenset({"192.0.2.1/tcp/80"}))
    assert usual.bounded == usual
