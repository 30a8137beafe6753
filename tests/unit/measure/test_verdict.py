"""Verdicts on the three claims, for samples whose verdict is known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pytest

from xenoovs.measure.samples import Plain, Sample, Value
from xenoovs.measure.statistics import Statistic, change, interval, quantiles
from xenoovs.measure.verdict import ClaimOutcome, ClaimVerdict, judge, line_rate_pps

LINK = 1e9
LINE = line_rate_pps(LINK, 64)


def samples(
    experiment: str, point: dict[str, Plain], values: Iterable[dict[str, Value]], *, suspect: Sequence[int] = ()
) -> list[Sample]:
    return [
        Sample(experiment, point, number, "2026-01-01T00:00:00Z", each, ("wrong",) if number in suspect else ())
        for number, each in enumerate(values)
    ]


def loss(
    share: float, *lost: int, sent: int = 1_000_000, pps: float = 100_000, suspect: Sequence[int] = ()
) -> list[Sample]:
    values: list[dict[str, Value]] = [
        {"sent": sent, "received": sent - each, "loss_share": each / sent, "sent_pps": pps} for each in lost
    ]
    return samples("loss", {"frame_bytes": 64, "offered_share": share}, values, suspect=suspect)


def rate(size: int, *throughputs: float, generator: float) -> list[Sample]:
    values: list[dict[str, Value]] = [{"throughput_pps": each, "generator_pps": generator} for each in throughputs]
    return samples("rate", {"frame_bytes": size}, values)


def latency(split: str, load: float, *medians: float) -> list[Sample]:
    values: list[dict[str, Value]] = [{"rtt_us": [each * 0.9, each, each * 1.5]} for each in medians]
    return samples("latency", {"split": split, "base_load": load}, values)


def verdict(measured: Sequence[Sample], *, link_bps: float | None = LINK) -> ClaimVerdict:
    found = judge(measured[0].experiment, measured, link_bps=link_bps)
    assert found is not None
    return found


def test_no_lost_packet_confirms_no_loss_with_its_bound() -> None:
    found = verdict(loss(0.5, 0, 0, 0, 0, 0) + loss(1.0, 0, 0, 0, 0, 0))
    assert found.outcome is ClaimOutcome.CONFIRMED
    # The rule of three for ten million frames.
    assert (
        found.reason
        == "none of 10M frames was lost below line rate; with 95% confidence the loss share is below 3e-07."
    )


def test_loss_in_each_repeat_refutes_no_loss_with_the_worst_load() -> None:
    found = verdict(loss(0.5, 0, 0, 0, 0, 0) + loss(0.9, 50, 60, 70, 80, 90) + loss(1.1, *[100_000] * 5))
    assert found.outcome is ClaimOutcome.REFUTED
    assert (
        found.reason
        == "10% of the frames were lost (10% to 10% with 95% confidence) at 100kpps of 64 bytes below line rate."
    )


def test_loss_in_one_repeat_decides_nothing() -> None:
    found = verdict(loss(0.5, 0, 0, 0, 0, 0) + loss(1.0, 0, 0, 3, 0, 0))
    assert found.outcome is ClaimOutcome.UNDECIDED
    assert found.reason == "3 of 10M frames were lost, in 1 of 10 samples; at each load, other repeats lost none."


def test_loss_above_line_rate_is_not_counted() -> None:
    assert verdict(loss(1.0, 0, 0, 0, 0, 0) + loss(1.5, *[9] * 5, pps=LINE * 1.01)).outcome is ClaimOutcome.CONFIRMED
    assert verdict(loss(1.0, 0, 0, 0, 0, 0) + loss(1.5, *[9] * 5, pps=LINE * 0.99)).outcome is ClaimOutcome.REFUTED


def test_suspect_samples_are_not_judged() -> None:
    assert verdict(loss(1.0, 0, 0, 0, 0, 0, 900, suspect=[5])).outcome is ClaimOutcome.CONFIRMED
    few = verdict(loss(1.0, 0, 0, 0, 0, 0, suspect=[1]))
    assert few.outcome is ClaimOutcome.UNDECIDED
    assert few.reason == "a point has 4 repeats that can be trusted, and a verdict needs 5."


def test_line_rate_at_all_sizes_is_confirmed() -> None:
    large = line_rate_pps(LINK, 1518)
    found = verdict(rate(64, *[LINE * 0.995] * 5, generator=LINE) + rate(1518, *[large] * 5, generator=large))
    assert found.outcome is ClaimOutcome.CONFIRMED
    assert found.reason == "at least 99% of line rate passed with each of 2 sizes."


def test_a_size_below_line_rate_refutes_it() -> None:
    large = line_rate_pps(LINK, 1518)
    found = verdict(rate(64, *[LINE * 0.6] * 5, generator=LINE) + rate(1518, *[large] * 5, generator=large))
    assert found.outcome is ClaimOutcome.REFUTED
    assert (
        found.reason
        == "with 64 bytes 893kpps passed without loss (893k to 893kpps with 95% confidence), 60% of line rate."
    )


def test_a_generator_that_is_too_slow_decides_nothing() -> None:
    found = verdict(rate(64, *[LINE * 0.3] * 5, generator=LINE * 0.3))
    assert found.outcome is ClaimOutcome.UNDECIDED
    assert (
        found.reason == "with 64 bytes the generator sent no more than 446kpps, 30% of line rate, and all of it passed."
    )


def test_without_a_link_rate_there_is_no_line_rate() -> None:
    assert verdict(rate(64, *[1.0] * 5, generator=1.0), link_bps=None).outcome is ClaimOutcome.UNDECIDED


def test_an_interval_on_both_sides_of_line_rate_decides_nothing() -> None:
    found = verdict(rate(64, LINE * 0.95, LINE, LINE, LINE * 0.96, LINE, generator=LINE))
    assert found.outcome is ClaimOutcome.UNDECIDED


def test_equal_medians_confirm_that_latency_is_independent() -> None:
    found = verdict(latency("50/50", 0, 20, 21, 20, 20, 21) + latency("50/50", 0.9, 21, 20, 21, 21, 20))
    assert found.outcome is ClaimOutcome.CONFIRMED
    assert found.reason.startswith("the median changes by at most 10%; the most is +5.0% (")


def test_one_split_that_changes_refutes_it_whatever_the_others_do() -> None:
    quiet = latency("50/50", 0, *[20] * 5) + latency("50/50", 0.9, *[20] * 5)
    found = verdict(quiet + latency("0/100", 0, *[21] * 5) + latency("0/100", 0.9, *[30] * 5))
    assert found.outcome is ClaimOutcome.REFUTED
    assert found.reason == (
        "the median changes by +42.9% (+42.9% to +42.9% with 95% confidence) at split 0/100, 90% of the throughput as "
        "base load."
    )


def test_a_noisy_change_around_the_margin_decides_nothing() -> None:
    found = verdict(latency("50/50", 0, 20, 20, 20, 20, 20) + latency("50/50", 0.9, 20, 23, 21, 24, 22))
    assert found.outcome is ClaimOutcome.UNDECIDED


def test_latency_without_an_idle_point_decides_nothing() -> None:
    assert verdict(latency("50/50", 0.9, *[20] * 5)).outcome is ClaimOutcome.UNDECIDED


@pytest.mark.parametrize("experiment", ["echo", "designs", "paths"])
def test_other_experiments_test_no_claim(experiment: str) -> None:
    assert judge(experiment, (), link_bps=LINK) is None


def test_line_rate_of_known_links() -> None:
    # The well-known figures of 10 and 100 Gbit/s Ethernet.
    assert round(line_rate_pps(10e9, 64)) == 14_880_952
    assert round(line_rate_pps(100e9, 1518)) == 8_127_438


def test_intervals_of_few_values() -> None:
    same, one = interval([7.0] * 5), interval([3.5])
    assert (same.estimate, same.low, same.high, same.count) == (7, 7, 7, 5)
    assert (one.low, one.high, one.bounds) == (3.5, 3.5, (None, None))
    few, enough = interval([1, 2, 9, 4]), interval([1, 2, 9, 4, 5])
    assert (few.estimate, few.low, few.high, few.is_confidence) == (4, 1, 9, False)
    assert enough.is_confidence
    assert 1 < enough.low < enough.high < 9
    # The same samples give the same digits.
    assert enough == interval([1, 2, 9, 4, 5])
    # The median ignores an outlier.
    found = interval([10, 10, 10, 10, 10, 10, 1000], Statistic.MEDIAN)
    assert (found.estimate, found.low) == (10, 10)


def test_the_mean_of_many_values_has_the_interval_of_the_normal_distribution() -> None:
    values = list(np.random.default_rng(7).normal(100, 10, size=400))
    found = interval(values)
    # 1.96 standard errors on each side; 4000 resamples are good for some percent of that.
    half = 1.96 * float(np.std(values, ddof=1)) / 20
    assert found.low == pytest.approx(found.estimate - half, abs=0.1)
    assert found.high == pytest.approx(found.estimate + half, abs=0.1)


def test_intervals_hold_the_true_mean_as_often_as_their_confidence() -> None:
    rng = np.random.default_rng(11)
    held = 0
    for _ in range(200):
        found = interval(list(rng.normal(50, 5, size=30)))
        held += found.low <= 50 <= found.high
    # 95 % of 200 is 190, with a standard deviation of 3; of 30 values the bootstrap gives slightly less.
    assert 176 <= held <= 199


def test_a_change_is_relative_to_the_base() -> None:
    found = change([100.0] * 5, [110.0] * 5)
    assert (found.estimate, found.low, found.high) == pytest.approx((0.1, 0.1, 0.1))
    noisy = change([98, 99, 100, 101, 102], [148, 149, 150, 151, 152])
    assert noisy.low < 0.5 < noisy.high


def test_quantiles_of_a_known_list() -> None:
    found = quantiles([float(number) for number in range(101)])
    assert (found.p1, found.p25, found.median, found.p75, found.p99, found.count) == (1, 25, 50, 75, 99, 101)


@pytest.mark.parametrize(
    "call", [lambda: interval([]), lambda: quantiles([]), lambda: change([], [1]), lambda: change([0], [1])]
)
def test_nothing_to_judge_is_an_error(call: object) -> None:
    with pytest.raises(ValueError, match="values"):
        call()  # type: ignore[operator]
