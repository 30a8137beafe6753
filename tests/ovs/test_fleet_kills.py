"""A few kills of controllers and of leading servers; `scripts/fleet_kills.py` makes as many as one likes."""

from __future__ import annotations

from pathlib import Path

from scripts.fleet_kills import killed_leaders, killed_roll_outs, takeovers


def test_a_roll_out_whose_controller_is_killed_ends_current_or_refused_without_a_gap_in_generations(
    tmp_path: Path,
) -> None:
    """It checks that itself; this one kills in two waves, once with a DPU that refuses the config."""
    ended = killed_roll_outs(tmp_path, 2)
    assert {how.rpartition(" ")[2]: count for how, count in ended.items()} == {"current": 1, "refused": 1}


def test_another_controller_decides_when_the_leading_server_and_its_controller_are_killed(tmp_path: Path) -> None:
    assert len(takeovers(tmp_path, 1)) == 1


def test_the_leader_is_killed_under_writes_and_nothing_is_lost_or_half(tmp_path: Path) -> None:
    """It checks that itself."""
    assert len(killed_leaders(tmp_path, 1).delays) == 1
