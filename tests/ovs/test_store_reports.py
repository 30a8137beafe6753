"""Reports of DPUs at a real server: what is too large is cut by agents, and refused to anybody else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.ovs.stores import running_store
from tests.patience import eventually
from tests.unit.store.test_reports import HUGE
from xenoovs.store.client import DpuStatusClient, DpuStatusReader
from xenoovs.store.rows import STATUSES, StoreDatabase, atom
from xenoovs.store.view import MAX_DRIFT, MAX_ERROR, MAX_NAME, MAX_VERDICTS, DpuStatus
from xenoovs.switch.process import run

pytestmark = pytest.mark.ovs


def test_a_report_has_bounds_whoever_writes_it(tmp_path: Path) -> None:
    with (
        running_store(tmp_path, StoreDatabase.STATES) as store,
        DpuStatusClient(store.files.remote) as writer,
        DpuStatusReader(store.files.remote) as reader,
    ):
        writer.put(HUGE)
        eventually(lambda: reader.statuses() == {"dpu1": HUGE.bounded}, "the report, cut")
        assert writer.written == HUGE.bounded
        for row in (
            {"version": "v" * (MAX_NAME + 1)},
            {"error": "e" * (MAX_ERROR + 1)},
            {"drift": {str(number): "" for number in range(MAX_DRIFT + 1)}},
            {"drift": {"n" * (MAX_NAME + 1): ""}},
            {"verdicts": {str(number): 1 for number in range(MAX_VERDICTS + 1)}},
            {"down": frozenset({"n" * (MAX_NAME + 1)})},
        ):
            columns = {column: atom(value) for column, value in row.items()}
            update = {"op": "update", "table": STATUSES.name, "where": [["name", "==", "dpu1"]], "row": columns}
            request = json.dumps([StoreDatabase.STATES.value, update])
            answer = run(["ovsdb-client", "transact", store.files.remote, request]).stdout
            assert "constraint violation" in answer or "ovsdb error" in answer or "syntax error" in answer, (
                row,
                answer,
            )
        assert reader.statuses() == {"dpu1": HUGE.bounded}
        writer.put(DpuStatus("dpu1"))
        eventually(lambda: reader.statuses() == {"dpu1": DpuStatus("dpu1")}, "a small report")
