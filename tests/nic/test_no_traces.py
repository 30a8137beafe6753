"""Asking changes nothing: after `why --probe-driver` and all else, filters, entries and log levels are as before."""

from __future__ import annotations

import pytest

from tests.nic.judged import judgements
from tests.nic.recorded import Story

pytestmark = pytest.mark.parametrize(
    "story", ["accepted", "copying", "foreign", "foreign_port", "limits", "skip_sw"], indirect=True
)


def test_traffic_control_and_the_nic_hold_the_same_rules_afterwards(story: Story) -> None:
    for judged in judgements(story, "why"):
        for what in ("filters", "rules"):
            assert judged.after[what] == judged.before[what], judged.look.label


def test_log_levels_are_the_same_afterwards(story: Story) -> None:
    for judged in judgements(story, "why"):
        assert judged.after["log_levels"] == judged.before["log_levels"], judged.look.label
