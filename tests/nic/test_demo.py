"""`make demo-nic`: everything about the emulated NIC in one command."""

from __future__ import annotations

from typing import Any


def test_it_shows_hw_and_ends_with_a_summary(demo: dict[str, Any]) -> None:
    assert demo["exit_code"] == 0, demo["output"]
    summary = demo["output"].splitlines()[-3:]
    assert [line.split()[0] for line in summary] == ["balanced:", "offloaded:", "next:"]
    assert "7 blocks are HW" in summary[1]
