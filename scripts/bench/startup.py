"""How long a person waits for commands that hardly work: whole processes, beside an empty one of the same Python."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from scripts.bench.measure import XENOOVS, Row, process

_QUICKSTART = str(Path(__file__).resolve().parents[2] / "templates" / "quickstart.yaml")
_NOWHERE = ("--db", "unix:/nowhere/db.sock")
# Words -> the bound, and the exit status where there is no Open vSwitch.
_BOUNDS = {
    ("--help",): (8, 0),
    ("validate", _QUICKSTART): (15, 0),
    ("lint", _QUICKSTART): (15, 0),
    ("lab", "list"): (8, 0),
    ("history", *_NOWHERE): (8, 64),
    ("verify-offload", _QUICKSTART, "--from-dump", "/dev/null"): (15, 3),
    ("why", _QUICKSTART, "--from-dump", "/dev/null"): (15, 3),
    ("plan", _QUICKSTART, *_NOWHERE): (15, 1),
    ("apply", _QUICKSTART, *_NOWHERE): (15, 1),
    ("status", _QUICKSTART, *_NOWHERE): (15, 1),
    ("doctor", _QUICKSTART, *_NOWHERE): (15, 2),
}


def rows() -> Iterator[Row]:
    """The time of a processor, which other processes change little, of commands that meet no switch."""
    empty = process([sys.executable, "-c", "pass"], runs=9)
    for words, (bound, status) in _BOUNDS.items():
        took = process([XENOOVS, *words], runs=5, expected=status)
        name = " ".join(word for word in words[:2] if not word.startswith(("/", "--db")))
        yield Row(f"xenoovs {name} / python3 -c pass", took.cpu_s / empty.cpu_s, "x", bound)
