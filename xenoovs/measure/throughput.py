"""The experiments on packet rates: throughput over frame size, and loss over offered load."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import cast

from xenoovs.dataclass import dataclass
from xenoovs.errors import MeasureError
from xenoovs.measure.frames import LoadProfile
from xenoovs.measure.load import LoadBench, TrialResult
from xenoovs.measure.samples import Plain, Point, Value
from xenoovs.measure.schedule import Basis, Experiment, Measurement

PARTIAL_DROP_SHARE = 0.001
"""Highest loss at the partial drop rate."""

_TRIAL_S = {False: 2.0, True: 0.5}
_HARDWARE_TRIAL_S = {False: 10.0, True: 1.0}
_RESOLUTION = {False: 0.02, True: 0.1}
_MOST_TRIALS = {False: 12, True: 5}
_OVERHEAD_S = 0.6
_TRICKLE_SHARE = 0.01
"""Share of the generator's full speed for a second trial, if nothing arrives at full speed."""
BASIS = "partial_drop_pps_by_frame_bytes"


@dataclass(frozen=True, slots=True)
class TrialSettings:
    """Settings of a search for throughput, which ends when good and bad rate differ by the share `resolution`."""

    trial_s: float
    resolution: float
    most_trials: int

    @property
    def options(self) -> dict[str, Plain]:
        return {"trial_s": self.trial_s, "resolution": self.resolution}

    @property
    def search_s(self) -> float:
        """Return the longest duration of a search, roughly."""
        return (self.trial_s + _OVERHEAD_S) * self.most_trials


def trial_settings(*, is_hardware: bool, quick: bool, trial_s: float | None = None) -> TrialSettings:
    """Return the usual settings. `trial_s`: The user's choice, or None."""
    usual_s = (_HARDWARE_TRIAL_S if is_hardware else _TRIAL_S)[quick]
    return TrialSettings(usual_s if trial_s is None else trial_s, _RESOLUTION[quick], _MOST_TRIALS[quick])


@dataclass(frozen=True, slots=True)
class SearchResult:
    """All trials of a search for throughput, in order. The first `coarse` searched the partial drop rate."""

    trials: tuple[TrialResult, ...]
    coarse: int

    @property
    def lossless(self) -> TrialResult | None:
        """Return the trial with the throughput; None if every trial had a loss."""
        return _highest(self.trials, loss_share=0.0)

    @property
    def partial(self) -> TrialResult | None:
        """Return the trial with the partial drop rate. A frame lost later at a low rate does not change it."""
        return _highest(self.trials[: self.coarse], loss_share=PARTIAL_DROP_SHARE)

    @property
    def measurement(self) -> Measurement:
        best, partial = self.lossless, self.partial
        shown = best or min(self.trials, key=lambda trial: trial.sent_pps)
        lists: dict[str, Value] = {
            "trial_offered_pps": [cast(float, trial.values["offered_pps"]) for trial in self.trials],
            "trial_sent_pps": [trial.sent_pps for trial in self.trials],
            "trial_received_pps": [trial.received_pps for trial in self.trials],
            "trial_loss_share": [trial.frames.loss_share for trial in self.trials],
        }
        values: dict[str, Value] = {
            **shown.values,
            "throughput_pps": 0.0 if best is None else best.sent_pps,
            "partial_drop_pps": 0.0 if partial is None else partial.sent_pps,
            "forwarding_pps": max(trial.received_pps for trial in self.trials),
            "generator_pps": max(trial.sent_pps for trial in self.trials),
            **lists,
        }
        suspect = dict.fromkeys(reason for trial in self.trials for reason in trial.suspect)
        return Measurement(values, tuple(suspect))


def _highest(trials: Sequence[TrialResult], *, loss_share: float) -> TrialResult | None:
    """Return the trial with the highest rate that has at most this loss and is below all rates with more."""
    too_much = min((trial.sent_pps for trial in trials if trial.frames.loss_share > loss_share), default=None)
    good = [
        trial
        for trial in trials
        if trial.frames.loss_share <= loss_share and (too_much is None or trial.sent_pps < too_much)
    ]
    return max(good, key=lambda trial: trial.sent_pps, default=None)


def search_throughput(trial: Callable[[float | None], TrialResult], settings: TrialSettings) -> SearchResult:
    """Search the highest rates with at most 0.1 % loss and with no loss: at full speed, then by bisection.

    The next rate is between the highest good rate and the lowest bad one (RFC 2544, section 26.1). `trial`: Sends at a
    rate; None for as fast as possible. Raises MeasureError if no frame ever arrives.
    """
    first = trial(None)
    if first.frames.went_back:
        raise MeasureError(f"{first.suspect[0]}, twice in a row")
    if not first.frames.sent:
        raise MeasureError("the generator sent no frame that its interface counted: is the interface up?")
    trials, coarse = [first], 1
    if not first.frames.received:
        trials.append(trial(first.sent_pps * _TRICKLE_SHARE))
        if not trials[-1].frames.received:
            raise MeasureError(
                "no frame reached a backend: are the flows of the config installed (`xenoovs apply`), and are cables "
                "and interfaces those of the bed?"
            )
    for limit in (PARTIAL_DROP_SHARE, 0.0):
        # The rate that arrives under overload is near the capacity of the switch.
        guess = min(first.received_pps, first.sent_pps * (1 - settings.resolution)) if len(trials) == 1 else None
        while len(trials) < settings.most_trials:
            bad = min((each.sent_pps for each in trials if each.frames.loss_share > limit), default=None)
            best = _highest(trials, loss_share=limit)
            good = 0.0 if best is None else best.sent_pps
            if bad is None or bad - good <= settings.resolution * bad or bad < 1:
                break
            trials.append(trial((good + bad) / 2 if guess is None else guess))
            guess = None
        coarse = len(trials) if limit else coarse
    return SearchResult(tuple(trials), coarse)


def rate_experiment(bench: LoadBench, settings: TrialSettings, repeats: int, points: Sequence[Point]) -> Experiment:
    """Return the experiment on throughput over frame size: XenoFlow's first one."""

    def measure(point: Point, _basis: Basis) -> Measurement:
        return _search(bench, settings, int(point["frame_bytes"])).measurement

    warm_up = partial(bench.learn, frame_bytes=int(points[0]["frame_bytes"]))
    options = options_of(bench.profile, settings)
    return Experiment("rate", points, repeats, settings.search_s, measure, options, warm_up=warm_up)


def loss_experiment(bench: LoadBench, settings: TrialSettings, repeats: int, points: Sequence[Point]) -> Experiment:
    """Return the experiment on loss over offered load: XenoFlow's third one."""

    def prepare() -> Basis:
        sizes = sorted({int(point["frame_bytes"]) for point in points})
        return {BASIS: {str(size): base_rate(bench, settings, frame_bytes=size) for size in sizes}}

    def measure(point: Point, basis: Basis) -> Measurement:
        size = int(point["frame_bytes"])
        offered_pps = cast("Mapping[str, float]", basis[BASIS])[str(size)] * float(point["offered_share"])
        result = bench.trial(frame_bytes=size, offered_pps=offered_pps, seconds_s=settings.trial_s)
        return Measurement(result.values, result.suspect)

    warm_up = partial(bench.learn, frame_bytes=int(points[0]["frame_bytes"]))
    point_s, options = settings.trial_s + _OVERHEAD_S, options_of(bench.profile, settings)
    return Experiment("loss", points, repeats, point_s, measure, options, prepare, warm_up)


def base_rate(bench: LoadBench, settings: TrialSettings, *, frame_bytes: int) -> float:
    """Return the partial drop rate, on which loads of other experiments are based. Raises MeasureError."""
    found = _search(bench, settings, frame_bytes)
    best = found.partial
    # A bed that loses frames at every rate still has a forwarding rate.
    return max(trial.received_pps for trial in found.trials) if best is None else best.sent_pps


def _search(bench: LoadBench, settings: TrialSettings, size: int) -> SearchResult:
    bench.learn(frame_bytes=size)

    def trial(offered_pps: float | None) -> TrialResult:
        return bench.trial(frame_bytes=size, offered_pps=offered_pps, seconds_s=settings.trial_s)

    return search_throughput(trial, settings)


def options_of(profile: LoadProfile, settings: TrialSettings) -> dict[str, Plain]:
    """Return the other settings that change the figures of an experiment with a load."""
    return {"service": profile.service.name, "clients": profile.clients, **settings.options}
