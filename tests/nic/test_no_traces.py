"""Asking changes nothing: after `why --probe-driver` and all else, filters, entries and log levels are as before."""

from __future__ import annotations

import pytest

from tests.nic.guest.catalogue import JUDGED
from tests.nic.judged import judgements
from tests.nic.recorded import Story

pytestmark = pytest.mark.parametrize("story", JUDGED, indirect=True)


def test_traffic_control_and_the_nic_hold_the_same_rules_afterwards(story: Story) -> None:
    for judged in judgements(story):
        for what in ("filters", "rules"):
            assert judged.after[what] == judged.before[what], judged.look.label


def test_log_levels_are_the_same_afterwards(story: Story) -> None:
    for judged in judgements(story):
        assert judged.after["log_levels"] == judged.before["log_levels"], judged.look.label
