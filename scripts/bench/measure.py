"""Whole processes and functions, timed several times; the median counts."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

XENOOVS = str(Path(sys.executable).parent / "xenoovs")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `bound`: the value should not be above; None: shown for comparison."""

    name: str
    value: float
    unit: str
    bound: float | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """What one process took: seconds on the clock, seconds of a processor, and the most memory that it held at once.

    The memory counts from that of the process that measures: the kernel hands its peak on at exec.
    """

    wall_s: float
    peak_mib: float
    cpu_s: float


def process(argv: Sequence[str], *, runs: int = 3, stdin: Path | None = None, expected: int = 0) -> Cost:
    """Median cost of a program. Raises RuntimeError for another exit status than `expected`."""
    costs = [_once(argv, stdin, expected) for _ in range(runs)]
    return Cost(
        statistics.median(c.wall_s for c in costs),
        max(c.peak_mib for c in costs),
        statistics.median(c.cpu_s for c in costs),
    )


def function(call: Callable[[], object], *, runs: int = 3) -> float:
    """Median seconds of a call."""
    durations_s = []
    for _ in range(runs):
        start = time.perf_counter()
        call()
        durations_s.append(time.perf_counter() - start)
    return statistics.median(durations_s)


def _once(argv: Sequence[str], stdin: Path | None, expected: int) -> Cost:
    start = time.perf_counter()
    with (stdin or Path(os.devnull)).open("rb") as source:
        child = subprocess.Popen(argv, stdin=source, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
    wall_s = time.perf_counter() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != expected:
        raise RuntimeError(f"{' '.join(argv)} ended with {child.returncode}")
    return Cost(wall_s, usage.ru_maxrss / 1024, usage.ru_utime + usage.ru_stime)
