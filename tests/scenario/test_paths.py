"""Runs every file of paths/: answers to the probes of a sender that has 64 blocks on four paths, and where these go.

In a step its agent restarts (`restart`), an operator allows some paths (`usable`), or probes have these `answers` for
`for_s` seconds: milliseconds by path; null: none. Then must be true: `moved` (blocks in this step, by reason),
`decisions` (how many blocks each one moved), `counts` (blocks by path), `states` and `restore_s` (by path), `at_home`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tests.path_rounds import Sender, always

SCENARIOS = sorted((Path(__file__).parent / "paths").glob("*.yaml"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_it_is_as_the_file_says(path: Path) -> None:
    sender = Sender()
    for step in yaml.safe_load(path.read_text()):
        if "restart" in step:
            placement, sender = sender.placement, Sender()
            sender.placement = placement
        if "usable" in step:
            sender.placement = replace(sender.placement, usable=tuple(step["usable"]))
        before = len(sender.shifts)
        answers_us = (None if answer_ms is None else answer_ms * 1000 for answer_ms in step["answers"])
        sender.run(step["for_s"], always(*answers_us))
        shifts = sender.shifts[before:]
        seen = {
            "moved": dict(Counter(shift.reason.value for _, shift in shifts)),
            "decisions": list(Counter(at_s for at_s, _ in shifts).values()),
            "counts": sender.counts,
            "states": [each.state.value for each in sender.verdict.paths],
            "restore_s": [each.restore_s for each in sender.verdict.paths],
            "at_home": sender.placement.owners == sender.placement.home,
        }
        expected = {key: step[key] for key in step if key in seen}
        assert {key: seen[key] for key in expected} == expected, step
