"""The search for the throughput, on a switch whose limit is known."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from xenoovs.errors import MeasureError
from xenoovs.measure.counters import CountedFrames
from xenoovs.measure.load import LoadBench, TrialResult
from xenoovs.measure.throughput import TrialSettings, search_throughput

SETTINGS = TrialSettings(trial_s=1.0, resolution=0.02, most_trials=20)


def switch(limit_pps: float, *, generator_pps: float, tail_share: float = 0.0) -> Callable[[float | None], TrialResult]:
    """A switch that forwards `limit_pps` at most, and below that loses a share that grows with the load."""

    def trial(offered_pps: float | None) -> TrialResult:
        sent = int(min(generator_pps, offered_pps or generator_pps))
        received = math.ceil(min(sent, limit_pps) * (1 - (tail_share and tail_share * sent / limit_pps)))
        return TrialResult(offered_pps, CountedFrames(sent, {"a": received}, sent, ()), 1.0, ())

    return trial


@pytest.mark.parametrize("limit_pps", [1_000, 50_000, 999_999])
def test_the_highest_rate_without_loss_is_found(limit_pps: float) -> None:
    found = search_throughput(switch(limit_pps, generator_pps=1_000_000), SETTINGS).measurement
    throughput = found.values["throughput_pps"]
    assert isinstance(throughput, float)
    assert 0.97 * limit_pps <= throughput <= limit_pps
    assert found.values["forwarding_pps"] == limit_pps
    assert found.values["received"] == found.values["sent"]


def test_counters_that_go_back_again_and_again_are_one_sentence() -> None:
    reason = "the tx counter of generator went back from 9 to 0: it wrapped, or was reset"
    broken = TrialResult(None, CountedFrames(0, {"a": 0}, 0, (reason,), went_back=True), 1.0, (reason,))
    with pytest.raises(MeasureError, match=f"{reason}, twice in a row"):
        search_throughput(lambda _: broken, SETTINGS)


def test_a_switch_faster_than_the_generator_has_the_rate_of_the_generator() -> None:
    found = search_throughput(switch(2e6, generator_pps=1e6), SETTINGS)
    assert len(found.trials) == 1
    assert found.measurement.values["throughput_pps"] == found.measurement.values["generator_pps"] == 1e6


def test_a_switch_that_always_loses_a_little_has_a_partial_drop_rate_alone() -> None:
    found = search_throughput(switch(100_000, generator_pps=1e6, tail_share=0.0005), SETTINGS).measurement
    partial = found.values["partial_drop_pps"]
    assert isinstance(partial, float)
    assert partial > 90_000
    throughput = found.values["throughput_pps"]
    assert isinstance(throughput, float)
    assert throughput < partial


def test_a_loss_free_trial_above_a_rate_with_loss_is_no_throughput() -> None:
    losses = iter([0.5, 0.0, 0.2, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])

    def trial(offered_pps: float | None) -> TrialResult:
        sent = int(offered_pps or 1000)
        return TrialResult(offered_pps, CountedFrames(sent, {"a": int(sent * (1 - next(losses)))}, sent, ()), 1.0, ())

    found = search_throughput(trial, TrialSettings(1.0, 0.02, 6))
    lossy = min(trial.sent_pps for trial in found.trials if trial.frames.loss_share > 0)
    best = found.lossless
    assert best is not None
    assert best.sent_pps < lossy


def test_a_bed_on_which_nothing_arrives_is_an_error_that_names_what_to_check() -> None:
    with pytest.raises(MeasureError, match="no frame reached a backend: are the flows of the config installed"):
        search_throughput(switch(0.0, generator_pps=1e6), SETTINGS)


def test_a_load_is_sent_again_when_a_counter_went_back(monkeypatch: pytest.MonkeyPatch) -> None:
    good = TrialResult(None, CountedFrames(5, {"a": 5}, 5, ()), 1.0, ())
    bad = replace(good, frames=CountedFrames(0, {"a": 5}, 5, ("went back",), went_back=True))
    for results, wanted in (([bad, good], good), ([bad, bad], bad), ([good], good)):
        left = iter(results)
        for name in ("announce_backends", "read", "start"):
            monkeypatch.setattr(LoadBench, name, lambda *_, **__: None)
        monkeypatch.setattr(LoadBench, "result", lambda *_, left=left, **__: next(left))
        bench = LoadBench(*[cast(Any, MagicMock())] * 4)
        assert bench.trial(frame_bytes=64, offered_pps=None, seconds_s=1.0) is wanted
        assert not [*left]
