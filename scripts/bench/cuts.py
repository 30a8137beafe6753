"""What a cut costs where the switch fails over, in packets of a steady stream; and the same cut left to an agent."""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

from scripts.bench.measure import Row
from tests.ovs.cuts import MOST_LOST, PLAIN, RATE_PPS, cuts, cuts_of
from xenoovs.lab.lab import DIRECTORY_VARIABLE


def rows() -> Iterator[Row]:
    """Yield the median and the worst of each kind, and the ratio to a run without groups."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        os.environ[DIRECTORY_VARIABLE] = str(directory / "labs")
        found = list(cuts(directory))
        alone = [cut.lost for cut in cuts_of("link", directory / "plain.yaml", PLAIN, ["throughout"] * 3)]
    for kind, most in MOST_LOST.items():
        lost = [cut.lost for cut in found if cut.kind == kind]
        yield Row(f"{kind} cut at {RATE_PPS} packets/s, lost by {len(lost)} cuts, median", statistics.median(lost), "")
        yield Row("  worst", max(lost), "", most)
    links = statistics.median(cut.lost for cut in found if cut.kind == "link")
    yield Row("link cut by groups / by an agent that probes every 2 s", links / statistics.median(alone), "x", 0.1)
    yield Row("clients that did not move once and back", sum(cut.astray for cut in found), "", 0)
