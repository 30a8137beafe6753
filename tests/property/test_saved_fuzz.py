"""A saved file that an editor or a disk has damaged is read, or refused with line and column."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from tests.command_line import SMALL_CONFIG
from tests.fake_switch import FakeSwitch, fake_bridge
from xenoovs.cli.saved import HistoryEntry, SavedPlan, entry_of, load, plan_of, save
from xenoovs.engine.change import PlanOptions
from xenoovs.engine.engine import Engine
from xenoovs.errors import SavedMalformed
from xenoovs.model.load import parse_config

_PIECES = [
    "",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    '"',
    "null",
    "true",
    "-1",
    "1e999",
    "\\",
    "\u0000",
    "\n",
    '"services": 7,',
    "é",
]


@cache
def texts() -> dict[type[SavedPlan | HistoryEntry], str]:
    """A plan and an entry of the history, as they are written."""
    balancer = parse_config(SMALL_CONFIG, file="my.yaml")
    change = Engine(FakeSwitch(fake_bridge("ovsbr1", ["p0", "p1"]))).plan(balancer, PlanOptions())
    plan = plan_of(change, file="my.yaml", options=PlanOptions())
    entry = entry_of(change, file="my.yaml", partial=False, number=1, command="apply my.yaml")
    with TemporaryDirectory() as directory:
        path, found = Path(directory) / "file", dict[type[SavedPlan | HistoryEntry], str]()
        for document in (plan, entry):
            save(path, document)
            assert load(path, type(document)) == document
            found[type(document)] = path.read_text()
        return found


@given(st.data(), st.sampled_from([SavedPlan, HistoryEntry]))
def test_any_text_is_read_or_refused(data: st.DataObject, kind: type[SavedPlan | HistoryEntry]) -> None:
    text = texts()[kind]
    for _ in range(data.draw(st.integers(1, 3))):
        begin = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(begin, min(len(text), begin + 40)))
        text = text[:begin] + data.draw(st.sampled_from(_PIECES)) + text[end:]
    with TemporaryDirectory() as directory:
        path = Path(directory) / "file"
        path.write_text(text)
        try:
            read = load(path, kind)
        except SavedMalformed as error:
            refused = error
        else:
            assert len(read.local_time) == len("2026-11-22 17:00:00")
            assert all(read.names.values())
            return
    assert 1 <= refused.line <= text.count("\n") + 1
    assert 1 <= refused.column <= max(map(len, text.split("\n"))) + 1
