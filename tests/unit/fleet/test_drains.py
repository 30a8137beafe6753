"""Which drains of services run, from the times that the store has."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from tests.command_line import SMALL_CONFIG
from tests.fleet_support import EMPTY, committed, given, settled
from xenoovs.fleet.plan import DrainWatch, with_override
from xenoovs.fleet.snapshot import clocks_ms
from xenoovs.store.view import Changes, Dpu, DpuStatus, FleetView

PINNED = SMALL_CONFIG.replace("  - name: dns\n", "  - name: dns\n    drain: {mode: pin, timeout: 60s}\n")
NOW_MS = 1_800_000_000_000
LATEST_S = 7


def fleet(text: str) -> FleetView:
    return settled(given(EMPTY, text))


def drained(view: FleetView) -> FleetView:
    override = with_override(view, ("dns", "fips2"), Fraction(0), author="", now_ms=NOW_MS)
    return settled(committed(view, Changes(overrides={("dns", "fips2"): override})))


def drains_at(view: FleetView, now_ms: int) -> dict[str, float]:
    return DrainWatch().left(view, clocks_ms=(now_ms,), now_s=0)


def test_a_planned_change_begins_the_drains_of_the_services_that_it_changed() -> None:
    view = replace(fleet(PINNED), switch_at_ms=NOW_MS)
    assert drains_at(view, NOW_MS + 1000) == {"dns": 59 + LATEST_S}
    other = replace(view.services["dns"], name="other", generation=view.generation + 1)
    assert drains_at(replace(view, services={**view.services, "other": other}), NOW_MS) == {}


def test_a_clock_that_differs_from_that_of_the_writer_makes_no_drain_longer_than_it_is() -> None:
    """By a clock an hour behind, `drain-dpu` waited for more than an hour, and by one ahead not at all."""
    view, most_s = drained(fleet(PINNED)), 60 + LATEST_S
    assert drains_at(view, NOW_MS) == {"dns": most_s}
    assert drains_at(drained(fleet(SMALL_CONFIG)), NOW_MS) == {}
    behind = NOW_MS - 3_600_000
    assert drains_at(view, behind) == {"dns": most_s}
    watch = DrainWatch()
    times = (0, 30, most_s - 1, most_s)
    lefts = [watch.left(view, clocks_ms=[behind + 1000 * s], now_s=5.0 + s) for s in times]
    assert lefts == [{"dns": most_s}, {"dns": most_s - 30}, {"dns": 1}, {}]
    ahead, watch = NOW_MS + 3_600_000, DrainWatch()
    assert watch.left(view, clocks_ms=[ahead], now_s=5.0) == {}
    lefts = [watch.left(view, clocks_ms=[ahead, NOW_MS], now_s=5.0 + s) for s in (0, 30, most_s)]
    assert lefts == [{"dns": most_s}, {"dns": most_s - 30}, {}]


@pytest.mark.parametrize("error_s", [-3600, 3600])
def test_bug_on_a_host_with_a_wrong_clock_a_drain_that_is_over_was_waited_for(error_s: int) -> None:
    """The time by the reports of DPUs tells its age; the reports of one DPU with a wrong clock do not."""
    view, host_ms = drained(fleet(PINNED)), NOW_MS + 1000 * (60 + LATEST_S + error_s)
    names = ("d1", "d2", "d3")
    view = replace(view, dpus={name: Dpu(name, frozenset()) for name in names})
    seen_ms = (NOW_MS + 1000 * (60 + LATEST_S), NOW_MS + 1000 * (60 + LATEST_S), NOW_MS - 86_400_000)
    statuses = {name: DpuStatus(name, seen_ms=ms) for name, ms in zip(names, seen_ms, strict=True)}
    assert DrainWatch().left(view, clocks_ms=clocks_ms(view, statuses, now_ms=host_ms), now_s=5.0) == {}
    assert clocks_ms(view, statuses, now_ms=seen_ms[0]) == (seen_ms[0],)
