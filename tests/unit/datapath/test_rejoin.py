"""Wrapped dumps: which lines are joined again, and which are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from xenoovs.datapath.parse import parse_dump, rejoin_lines, scan_dump
from xenoovs.errors import ParseError

GOLDEN = Path(__file__).parents[2] / "golden" / "megaflows"
WITH_UFID = (GOLDEN / "tc_in_hardware_ovs_3.1.txt").read_text().strip()
WITHOUT = (GOLDEN / "without_m_ovs_3.1.txt").read_text().strip()


@pytest.mark.parametrize("line", [WITH_UFID, WITHOUT], ids=["with ufid", "without"])
def test_a_break_anywhere_gives_the_same_megaflow(line: str) -> None:
    (whole,) = parse_dump(line)
    # Before its first key is known, a line without ufid is no megaflow yet.
    for at in range(len("recirc_id("), len(line)):
        parts = [line[:at], line[at:]]
        assert list(parse_dump(rejoin_lines([*parts, *parts]))) == [whole, whole], parts


def test_lines_keep_their_numbers() -> None:
    lines = [WITH_UFID[:50], WITH_UFID[50:], "ufid:1, in_po", WITH_UFID]
    found = list(scan_dump(rejoin_lines(lines)))
    assert [error.line for error in found if isinstance(error, ParseError)] == [3]
    assert len(found) == 3
