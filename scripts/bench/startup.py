"""How long a person waits for help."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from scripts.bench.measure import XENOOVS, Row, process


def rows() -> Iterator[Row]:
    """The bound: 150 ms where an empty Python takes 20 ms."""
    empty = process([sys.executable, "-c", "pass"], runs=9)
    helped = process([XENOOVS, "--help"], runs=9)
    yield Row("xenoovs --help", helped.wall_s * 1000, "ms")
    yield Row("xenoovs --help / python3 -c pass", helped.wall_s / empty.wall_s, "x", 7.5)
