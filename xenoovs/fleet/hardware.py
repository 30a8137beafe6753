"""The share of a DPU's megaflows that its NIC forwards, and whether a roll-out has lowered it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from xenoovs.datapath.megaflow import Verdict
from xenoovs.display import percent
from xenoovs.fleet.change import rolling_intent
from xenoovs.store.view import Changes, DpuStatus, FleetView

TOLERANCE = Fraction(1, 100)
"""A share that differs by no more is the same: megaflows come and go with the traffic."""

_SOFTWARE = tuple(verdict for verdict in Verdict if verdict.is_software)
_SCALE = 1000


def hw_share(verdicts: Mapping[str, int]) -> Fraction | None:
    """Return the share, 0..1, of the megaflows that are in hardware; None: there are none, or it is unknown.

    Args:
        verdicts: Number of megaflows by verdict, as a DPU reports it. `ABSENT`, `UNCONFIRMED` and names that this
            version does not know are neither in hardware nor in software.
    """
    in_hardware = verdicts.get(Verdict.HW.value, 0)
    judged = in_hardware + sum(verdicts.get(verdict.value, 0) for verdict in _SOFTWARE)
    return Fraction(in_hardware, judged) if judged else None


def with_hw_before(view: FleetView, changes: Changes, statuses: Mapping[str, DpuStatus]) -> Changes:
    """Return the changes that begin a wave, with the share in hardware that each of its DPUs has before.

    It is stored beside the roll-out, so that another controller compares with the same.
    """
    intent = rolling_intent(view)
    if intent is None or not changes.wave:
        return changes
    shares = {
        name: hw_share(statuses[name].verdicts)
        for name, dpu in view.dpus.items()
        if view.wave < dpu.wave <= changes.wave and name in statuses
    }
    known = {name: int(share * _SCALE) for name, share in shares.items() if share is not None}
    changed = changes.intents.get(intent.number) or intent
    changed = replace(changed, hw_before={**changed.hw_before, **known})
    return replace(changes, intents={**changes.intents, intent.number: changed})


def hw_problem(before: int | None, status: DpuStatus, *, ack: int) -> tuple[str, bool] | None:
    """Return what keeps a DPU from passing its wave, and whether it is a failure; None: nothing.

    A DPU without hardware offload before the wave is not judged, and neither is one that has no traffic now.

    Args:
        before: As in `Intent.hw_before`; None: not known.
        status: What the DPU reports; it has applied `ack`.
        ack: The generation whose megaflows are judged.
    """
    if before is None or Fraction(before, _SCALE) <= TOLERANCE:
        return None
    if status.sampled < ack:
        return f"has not reported the megaflows of generation {ack}", False
    share = hw_share(status.verdicts)
    if share is None or share >= Fraction(before, _SCALE) - TOLERANCE:
        return None
    software = [(each.value, count) for each in _SOFTWARE if (count := status.verdicts.get(each.value, 0))]
    return (
        f"{percent(share)} of its megaflows are in hardware, {percent(Fraction(before, _SCALE))} before ("
        f"{', '.join(f'{count} {name}' for name, count in software)}); run `xenoovs verify-offload` and `xenoovs why` "
        "there",
        True,
    )
