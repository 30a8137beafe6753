"""A roll-out in waves: when the next wave of DPUs begins, and why a roll-out is taken back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil

from xenoovs.errors import counted, first_names
from xenoovs.fleet.baseline import is_unfit, lost_targets
from xenoovs.fleet.change import completion, next_wave, refusal, rolling_intent
from xenoovs.fleet.hardware import hw_problem
from xenoovs.store.view import ACK_THIS, Changes, Dpu, DpuStatus, FleetView, lacks

CANARY, _SECOND_WAVE = 1, 2
LAST_WAVE = 3
SOAK_S = 60
"""How long a wave is watched by default."""
PATIENCE_S = 120
"""How long the DPUs of a wave may lack it after that."""
_GRACE_S = 10
"""Until then a problem may have been reported before the wave began."""
_MAX_SILENT = Fraction(1, 20)
_CANARIES, _SECOND = Fraction(1, 100), Fraction(1, 10)


@dataclass(frozen=True, slots=True)
class WaveStep:
    """What a roll-out does next.

    Attributes:
        changes: To write now; None: the wave goes on.
        reason: Why the roll-out is refused; an empty text: it is not.
        silent: DPUs that the next step does without; they follow by themselves.
    """

    changes: Changes | None = None
    reason: str = ""
    silent: tuple[str, ...] = ()


def next_step(view: FleetView, statuses: Mapping[str, DpuStatus] | None, *, watched_s: float) -> WaveStep:
    """Return what follows from the reports of the DPUs whose wave has begun.

    It is judged when the soak time has passed. A wave passes if all of them have what is staged, without an error or
    drift, fit, and with as large a share of megaflows in hardware; at most 5 % may lack it in the end without an error.
    Backends of its services must not have gone down. A problem that is there after 10 s ends the roll-out.

    Args:
        view: What `change.next_change` has nothing to add to.
        statuses: What DPUs report, by their names; None: not known.
        watched_s: Since when the caller knows this wave and `view.ack`, in seconds.
    """
    intent = rolling_intent(view)
    if intent is None or not view.wave:
        return WaveStep()
    waits = waits_for(view, statuses)
    members = len(_members(view, statuses))
    failed = {name: reason for name, (reason, is_failed) in waits.items() if is_failed}
    if failed and watched_s >= min(intent.soak_s, _GRACE_S):
        name, reason = next(iter(failed.items()))
        return _refused(view, f"{name}: {reason}" + _others(failed))
    lost = lost_targets(view, statuses)
    if lost and watched_s >= min(intent.soak_s, _GRACE_S):
        return _refused(view, next(iter(lost.values())) + _others(lost, "other target"))
    if watched_s < intent.soak_s:
        return WaveStep()
    if waits:
        if watched_s < intent.soak_s + PATIENCE_S:
            return WaveStep()
        if len(waits) > members * _MAX_SILENT:
            name, (reason, _) = next(iter(waits.items()))
            return _refused(view, f"{name}: {reason} after {PATIENCE_S} s" + _others(waits))
    if not members and any(not dpu.is_out for dpu in view.concerned.values()):
        return _refused(view, "none of its DPUs is in service any more, so nothing shows what the config does")
    wave = next_wave(view)
    changes = completion(view, intent) if wave is None else Changes(wave=wave, ack=ACK_THIS)
    return WaveStep(changes, silent=tuple(waits))


def waits_for(view: FleetView, statuses: Mapping[str, DpuStatus] | None) -> dict[str, tuple[str, bool]]:
    """Return the DPUs that keep a wave from passing: the reason, and whether it is a failure.

    DPUs that serve nothing of the roll-out, that an operator took out of service, or that have not been fit since
    before their wave, do not count.
    """
    found = dict[str, tuple[str, bool]]()
    intent = rolling_intent(view)
    before = {} if intent is None else intent.hw_before
    for name, dpu in sorted(_members(view, statuses).items()):
        status = (statuses or {}).get(name)
        if status is None:
            found[name] = ("has not reported yet", False)
        elif status.error:
            found[name] = (status.error, True)
        elif status.drift:
            found[name] = (f"its bridge has other blocks of {first_names(sorted(status.drift), most=3)}", True)
        elif is_unfit(dpu, statuses):
            found[name] = ("has become unfit: it is cut off from most backends, or its bridge is not right", True)
        elif lack := lacks(view, status, least=view.ack):
            found[name] = (lack, False)
        elif problem := hw_problem(before.get(name), status, ack=view.ack):
            found[name] = problem
    return found


def uncompared(view: FleetView) -> tuple[str, ...]:
    """Return the sentence about DPUs whose share in hardware was not known when their wave began, if there are any."""
    intent = rolling_intent(view)
    begun = sorted(name for name, dpu in view.concerned.items() if dpu.wave <= view.wave and not dpu.is_out)
    unknown = [name for name in begun if intent is not None and name not in intent.hw_before]
    if not unknown:
        return ()
    return (f"share in hardware not compared, as unknown before the wave: {first_names(unknown, most=3)}",)


def _members(view: FleetView, statuses: Mapping[str, DpuStatus] | None) -> dict[str, Dpu]:
    """Return the DPUs whose wave has begun, by name, without those that show nothing."""
    intent = rolling_intent(view)
    before = frozenset[str]() if intent is None else intent.unfit_before
    return {
        name: dpu
        for name, dpu in view.concerned.items()
        if dpu.wave <= view.wave and not dpu.is_out and not (name in before and is_unfit(dpu, statuses))
    }


def early_dpus(dpus: Mapping[str, Dpu], *, canaries: int | None, second: int | None) -> dict[str, Dpu]:
    """Return the DPUs to change so that so many are in the first two waves, by name from those of the last one.

    DPUs that are out of service or not fit show nothing, so they do not count.

    Args:
        canaries: How many are to be in wave 1; None: 1 of 100 DPUs, at least one.
        second: How many are to be in wave 2; None: 1 of 10 DPUs, and none of fewer than 10.
    """
    dpus = {name: dpu for name, dpu in dpus.items() if not dpu.is_out and not dpu.is_unfit}
    wanted = ceil(len(dpus) * _CANARIES) if canaries is None else canaries
    early = _moved_to(CANARY, dpus, wanted)
    wanted = int(len(dpus) * _SECOND) if second is None else second
    return early | _moved_to(_SECOND_WAVE, {name: early.get(name, dpu) for name, dpu in dpus.items()}, wanted)


def _moved_to(wave: int, dpus: Mapping[str, Dpu], wanted: int) -> dict[str, Dpu]:
    """Return the DPUs of later waves that join this one."""
    lacking = max(0, wanted - sum(dpu.wave == wave for dpu in dpus.values()))
    later = sorted((dpu for dpu in dpus.values() if dpu.wave > wave), key=lambda dpu: (-dpu.wave, dpu.name))
    return {dpu.name: replace(dpu, wave=wave) for dpu in later[:lacking]}


def _refused(view: FleetView, reason: str) -> WaveStep:
    intent = rolling_intent(view)
    assert intent is not None  # noqa: S101  # as `next_step` has looked
    return WaveStep(refusal(view, intent, f"wave {view.wave}: {reason}"), reason)


def _others(found: Mapping[str, object], noun: str = "other DPU") -> str:
    return f", and {counted(len(found) - 1, noun)}" if len(found) > 1 else ""
