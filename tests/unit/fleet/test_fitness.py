"""How many DPUs may withdraw at once when only they cannot reach backends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from tests.fleet_support import EMPTY, committed
from xenoovs.fleet.health import max_unfit, next_unfit
from xenoovs.store.view import Changes, Dpu, DpuStatus, FleetView


def fleet(dpus: int, unfit: Iterable[int] = ()) -> FleetView:
    names = set(unfit)
    return replace(EMPTY, dpus={f"d{n}": Dpu(f"d{n}", frozenset(), is_unfit=n in names) for n in range(dpus)})


def reports(view: FleetView, unfit: Iterable[int]) -> dict[str, DpuStatus]:
    names = {f"d{n}" for n in unfit}
    return {name: DpuStatus(name, is_fit=name not in names) for name in view.dpus}


def unfit(view: FleetView) -> set[str]:
    return {name for name, dpu in view.dpus.items() if dpu.is_unfit}


def after(view: FleetView, statuses: dict[str, DpuStatus] | None) -> FleetView:
    return committed(view, Changes(dpus=next_unfit(view, statuses)))


@pytest.mark.parametrize(("dpus", "most"), [(0, 0), (1, 0), (2, 1), (3, 1), (9, 2), (10, 3), (1000, 300)])
def test_at_most_three_of_ten_and_never_all(dpus: int, most: int) -> None:
    assert max_unfit(dpus) == most
    view = fleet(dpus)
    assert len(unfit(after(view, reports(view, range(dpus))))) == most


def test_an_unfit_dpu_stays_unfit_first_and_recovers() -> None:
    view = fleet(10, unfit=[7, 8, 9])
    assert unfit(after(view, reports(view, range(10)))) == {"d7", "d8", "d9"}
    assert unfit(after(view, reports(view, [9]))) == {"d9"}
    assert next_unfit(view, reports(view, [7, 8, 9])) == {}


def test_one_that_is_silent_stays_as_it_is_and_one_out_of_service_does_not_count() -> None:
    view = fleet(4, unfit=[0])
    silent = replace(view, silent=frozenset(view.dpus))
    assert unfit(after(silent, reports(view, [1, 2, 3]))) == {"d0"}
    assert next_unfit(view, None) == {}
    out = replace(view, dpus={**view.dpus, "d0": replace(view.dpus["d0"], is_out=True)})
    assert unfit(after(out, reports(out, [0, 3]))) == {"d3"}
