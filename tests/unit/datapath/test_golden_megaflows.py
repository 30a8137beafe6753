"""Recorded dumps of every layer and version, and what must be read from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.megaflow_text import render_megaflow
from xenoovs.datapath.megaflow import Megaflow, match_of, verdict_of
from xenoovs.datapath.parse import parse_dump, parse_megaflow

GOLDEN = Path(__file__).parents[2] / "golden" / "megaflows"
DUMPS = sorted(GOLDEN.glob("*.txt"))


def _facts(megaflow: Megaflow) -> dict[str, Any]:
    verdict = verdict_of(megaflow)
    return {
        "in_port": megaflow.in_port,
        "recirc_id": megaflow.recirc_id,
        "match": {name: f"{field.value:#x}/{field.mask:#x}" for name, field in match_of(megaflow).items()},
        "packets": megaflow.packets,
        "bytes": megaflow.bytes,
        "used_s": megaflow.used_s,
        "verdict": verdict.value if verdict else None,
        "actions": list(megaflow.actions),
        "extra": dict(megaflow.extra),
    }


@pytest.mark.parametrize("path", DUMPS, ids=lambda path: path.stem)
def test_a_recorded_dump_is_read_as_in_its_json(path: Path) -> None:
    read = [_facts(megaflow) for megaflow in parse_dump(path.read_text())]
    assert read == json.loads(path.with_suffix(".json").read_text())


@pytest.mark.parametrize("path", DUMPS, ids=lambda path: path.stem)
def test_a_recorded_line_is_rendered_as_it_was(path: Path) -> None:
    for megaflow, line in zip(parse_dump(path.read_text()), _flow_lines(path), strict=True):
        assert render_megaflow(megaflow) == line
        assert parse_megaflow(line) == megaflow


def _flow_lines(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if " actions:" in line]
