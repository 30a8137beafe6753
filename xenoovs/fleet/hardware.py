"""The share of a DPU's megaflows that its NIC forwards, and whether a roll-out has lowered it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from xenoovs.datapath.megaflow import Verdict
from xenoovs.display import percent
from xenoovs.store.view import DpuStatus

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


def shares_before(names: Iterable[str], statuses: Mapping[str, DpuStatus]) -> dict[str, int]:
    """Return the share of each of these DPUs in thousandths, as `Intent.hw_before` has it; without unknown ones."""
    shares = {name: hw_share(statuses[name].verdicts) for name in names if name in statuses}
    return {name: int(share * _SCALE) for name, share in shares.items() if share is not None}


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
