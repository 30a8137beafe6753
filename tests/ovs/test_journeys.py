"""No more files run in an apply, for one dump line and when a backend dies than `scripts/journeys.py` allows."""

from __future__ import annotations

import pytest

from scripts.journeys import JOURNEYS, MOST, files_of
from tests.golden.cases import ROOT


@pytest.mark.parametrize("journey", JOURNEYS)
def test_files_that_run(journey: str) -> None:
    assert len(files_of(journey, ROOT.parent)) <= MOST[journey]
