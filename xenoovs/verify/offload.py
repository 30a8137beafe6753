"""Whether the NIC forwards each block: a dump of megaflows judged against what a program expects.

Packets, not bytes, compare between layers: software traffic control leaves 14 bytes of each frame out of its count.
"""

from __future__ import annotations

from collections.abc import Iterable

from xenoovs.datapath.megaflow import Megaflow
from xenoovs.datapath.parse import read_line
from xenoovs.errors import ParseError
from xenoovs.verify.alike import AlikeLines
from xenoovs.verify.check import Check, Surroundings
from xenoovs.verify.expected import ExpectedService
from xenoovs.verify.findings import OffloadFindings

__all__ = ["Surroundings", "check_dump", "check_offload"]


def check_offload(
    services: Iterable[ExpectedService],
    megaflows: Iterable[Megaflow | ParseError],
    *,
    surroundings: Surroundings | None = None,
) -> OffloadFindings:
    """Judge megaflows, as `datapath.parse.scan_dump` reads them, against the expected services. Never raises."""
    check = Check(tuple(services), surroundings or Surroundings())
    for megaflow in megaflows:
        if isinstance(megaflow, ParseError):
            check.torn.add(megaflow)
        else:
            check.add(megaflow)
    return check.findings()


def check_dump(
    services: Iterable[ExpectedService], lines: Iterable[str], *, surroundings: Surroundings | None = None
) -> OffloadFindings:
    """As `check_offload` of `scan_dump(lines)`, several times faster: alike lines are judged once. Never raises."""
    check = Check(tuple(services), surroundings or Surroundings())
    alike = AlikeLines(check)
    for number, line in enumerate(lines, start=1):
        if alike.add(line):
            continue
        megaflow = read_line(line, number=number)
        if isinstance(megaflow, ParseError):
            check.torn.add(megaflow)
        elif megaflow is not None:
            alike.learn(line, megaflow, check.add(megaflow))
    return check.findings()
