"""Which DPUs of a fleet are not fit to serve: they report it, and the controller agrees if enough others stay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from xenoovs.store.view import Dpu, DpuStatus, FleetView

MAX_UNFIT = Fraction(3, 10)
"""No more than this part of the DPUs is unfit at once: if more report it, their checks are the more likely fault, as
with `max_down` of backends."""


def max_unfit(dpus: int) -> int:
    """Return how many of so many DPUs may be unfit at once: never all, and one of two."""
    return min(max(1, int(MAX_UNFIT * dpus)), max(0, dpus - 1))


def next_unfit(view: FleetView, statuses: Mapping[str, DpuStatus] | None) -> dict[str, Dpu]:
    """Return the DPUs to change. Those that are unfit already go first; one that is silent stays as it is."""
    if statuses is None:
        return {}
    heard = {name: status for name, status in statuses.items() if name not in view.silent}
    reported = {
        name
        for name, dpu in view.dpus.items()
        if not dpu.is_out and (not heard[name].is_fit if name in heard else dpu.is_unfit)
    }
    ranked = sorted(reported, key=lambda name: (not view.dpus[name].is_unfit, name))
    members = sum(not dpu.is_out for dpu in view.dpus.values())
    unfit = set(ranked[: max_unfit(members)])
    return {
        name: replace(dpu, is_unfit=name in unfit) for name, dpu in view.dpus.items() if dpu.is_unfit != (name in unfit)
    }
