"""What a stream lost between its marks. `python -m tests.nic.losses` does a planned restart (as root) and prints it."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.nic.truth import parse_ports
from tests.nic.vm import record_all

SCENARIO = "planned_restart"


@dataclass(frozen=True, slots=True)
class Window:
    """From one mark to the next. `hit`, `miss`: packets that met a rule of the NIC in p0, or none."""

    begins: str
    ends: str
    seconds: float
    sent: int
    lost: int
    hit: int
    miss: int
    rules: int
    """At its end."""


def windows_of(stream: dict[str, Any]) -> list[Window]:
    """All windows, in the order of time; `stream` is one of a record."""
    delivered = {packet["number"] for packet in stream["delivered"]}
    return [_window(begin, end, delivered) for begin, end in pairwise(stream["marks"])]


def _window(begin: dict[str, Any], end: dict[str, Any], delivered: set[int]) -> Window:
    numbers = range(begin["sent"], end["sent"])
    before, after = (parse_ports(mark["port_counters"])["p0"] for mark in (begin, end))
    return Window(
        begins=begin["label"],
        ends=end["label"],
        seconds=end["second"] - begin["second"],
        sent=len(numbers),
        lost=len(set(numbers) - delivered),
        hit=after.hit - before.hit,
        miss=after.miss - before.miss,
        rules=len(end["rules"].splitlines()),
    )


def main() -> None:
    """One line a window."""
    with tempfile.TemporaryDirectory(prefix="xenoovs-nic-") as directory:
        [stream] = record_all([SCENARIO], Path(directory) / "run")[SCENARIO]["streams"]
    for window in windows_of(stream):
        loss = f"{window.lost:5} of {window.sent:5} lost in {window.seconds:5.1f} s, {window.rules} rules at its end"
        print(f"{window.begins:>18} .. {window.ends:18}{loss}")


if __name__ == "__main__":
    main()
