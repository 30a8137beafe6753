"""What `make soak` and `make journeys` find: an agent with a change every second, and the files that a journey runs."""

from __future__ import annotations

import pytest

from scripts.journeys import JOURNEYS, MOST, files_of
from scripts.soak import growth, soak
from tests.golden.cases import ROOT

_DURATION_S, _TEXTS = 60.0, 6
"""Few configs, so that all of them were in use before the last quarter, in which memory may grow by 5% at most."""


@pytest.mark.long
def test_a_minute_of_changes_leaks_nothing_and_ends_right() -> None:
    assert soak(_DURATION_S, texts=_TEXTS) == []


def test_memory_that_grows_is_found() -> None:
    assert growth([100_000 + 1_000 * second for second in range(15)]) == ["memory grew from 102000 to 114000 KiB"]
    assert growth([100_000] * 15) == []


@pytest.mark.parametrize("journey", JOURNEYS)
def test_no_more_files_run_than_a_journey_may(journey: str) -> None:
    assert len(files_of(journey, ROOT.parent)) <= MOST[journey]
