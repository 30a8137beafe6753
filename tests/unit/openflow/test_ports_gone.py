"""Flows of a port that was taken off the bridge: Open vSwitch has no name for it any more, only its number."""

from __future__ import annotations

from xenoovs.openflow.text import parse_dump, render_flow

GONE = "cookie=0x1, table=0, priority=5,in_port=2 actions=output:2"
NAMED_LIKE_A_NUMBER = 'cookie=0x1, table=0, priority=5,in_port="2" actions=output:"2"'


def test_numbers_stay_numbers_and_names_stay_names() -> None:
    for text in (GONE, NAMED_LIKE_A_NUMBER):
        (seen,) = parse_dump(f" {text}\n")
        assert render_flow(seen.flow) == text.replace("table=0, ", "")
    gone, named = (next(iter(parse_dump(f" {text}\n"))).flow for text in (GONE, NAMED_LIKE_A_NUMBER))
    assert gone.key != named.key
