"""What operators read about backends that are down, and about votes without a quorum."""

from __future__ import annotations

from dataclasses import replace

from tests.fleet_support import EMPTY, given, settled
from tests.unit.fleet.test_health import CONFIG
from xenoovs.fleet.snapshot import TargetState, target_problems, target_rows
from xenoovs.store.view import Dpu, DpuStatus, FleetView, Watch

NAMES = frozenset(f"d{n}" for n in range(5))
TARGETS = [f"192.0.2.{n}/tcp/80" for n in range(1, 5)]


def view(*, down: int = 0) -> FleetView:
    made = settled(given(EMPTY, CONFIG.replace("EXTRA", "")))
    watches = {target: Watch(target, NAMES, n < down, 1000, 1) for n, target in enumerate(TARGETS)}
    return replace(made, watches=watches, dpus={name: Dpu(name, frozenset()) for name in NAMES})


def reports(*, down: int, silent: int = 0) -> dict[str, DpuStatus]:
    """All vote that the first target is down, or some do."""
    voted = sorted(NAMES)[silent:]
    return {
        name: DpuStatus(name, seen_ms=60_000, voted=1, down=frozenset(TARGETS[:1] if n < down else ()))
        for n, name in enumerate(voted)
    }


def test_a_target_that_is_down_names_its_backend_and_counts_the_votes() -> None:
    rows = target_rows(view(down=1), reports(down=3), now_s=61.0)
    assert [row.state for row in rows] == [TargetState.DOWN] + [TargetState.UP] * 3
    assert rows[0].backends == ("web/b1",)
    (problem,) = target_problems(rows)
    assert problem == (
        "web/b1 (192.0.2.1/tcp/80) has been down for 1m: of 5 witnesses 3 say down, 2 up; it keeps "
        "clients, by `max_down` or because all are down"
    )


def test_no_quorum_is_a_problem_and_unknown_reports_are_none() -> None:
    rows = target_rows(view(), reports(down=1, silent=2), now_s=61.0)
    assert rows[0].target == TARGETS[0]
    assert rows[0].state is TargetState.NO_QUORUM
    assert target_problems(rows) == [
        "no quorum about web/b1 (192.0.2.1/tcp/80), which stays up: of 5 witnesses 1 say down, 2 up, 2 nothing"
    ]
    assert target_rows(view(), None, now_s=61.0) == []


def test_many_problems_are_counted() -> None:
    many = [replace(target_rows(view(down=1), reports(down=3), now_s=61.0)[0], target=str(n)) for n in range(30)]
    assert len(target_problems(many)) == 11
    assert target_problems(many)[-1] == "20 more targets in trouble; JSON has all"
