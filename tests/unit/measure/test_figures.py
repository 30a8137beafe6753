"""Figures: loss and load from counters, the search for the throughput, intervals, and verdicts on claims."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, cast
from unittest.mock import MagicMock

import numpy as np
import pytest

from tests.judged import assert_recorded
from xenoovs.errors import MeasureError
from xenoovs.measure.bench import LoadBench, TrialResult
from xenoovs.measure.counters import (
    CountedFrames,
    InterfaceCounts,
    SwitchCounts,
    SwitchedFrames,
    SwitchReading,
    counted_frames,
    parse_counts,
    parse_reading,
    parse_switch_counts,
    switched_frames,
)
from xenoovs.measure.load import TrialSettings, search_throughput
from xenoovs.measure.samples import Plain, Sample, Value
from xenoovs.measure.statistics import Statistic, change, interval, quantiles
from xenoovs.measure.verdict import ClaimOutcome, judge, line_rate_pps

STATISTICS = "rx_packets 10\ntx_packets 20\nrx_dropped 0\ntx_dropped 0\n"


def counts(**numbers: tuple[int, int]) -> dict[str, InterfaceCounts]:
    return {role: InterfaceCounts(rx, tx) for role, (rx, tx) in numbers.items()}


BEFORE = {"generator": (0, 100), "dpu": (100, 0), "a": (5, 0), "b": (7, 0)}
AFTER = {"generator": (0, 1100), "dpu": (1100, 0), "a": (605, 0), "b": (307, 0)}


def counted(**seen: tuple[int, int]) -> CountedFrames:
    """What is counted where these interfaces show something else."""
    return counted_frames(counts(**BEFORE), counts(**{**AFTER, **seen}), backends=("a", "b"))


FRAMES = CountedFrames(1000, {"a": 900}, 1000, ())
COUNTED: dict[str, CountedFrames] = {
    "loss is what was sent and reached no backend": counted(),
    "a few frames of another kind are no reason": counted(dpu=(1105, 0), b=(419, 0)),
    "the counter of the generator went back": counted(generator=(0, 50)),
    "that of a backend went back": counted(b=(0, 0)),
    "backends received more than was sent": counted(a=(1505, 0), b=(7, 0)),
    "the switch received more than was sent": counted(dpu=(2100, 0)),
}
DOUBTS: dict[str, list[str]] = {
    "flows that matched what was sent": [*SwitchedFrames(1000, 1000, 0).doubts(FRAMES)],
    "flows that matched less than backends received": [*SwitchedFrames(500, 500, 0).doubts(FRAMES)],
    "flows that matched more than was sent": [*SwitchedFrames(1500, 1500, 0).doubts(FRAMES)],
}


TEXT = """\
OFPST_AGGREGATE reply (OF1.4) (xid=0x2): packet_count=32778 byte_count=1966680 flow_count=1
ufid:0c7a1bd5-0000-0000-0000-000000000001, skb_priority(0/0),in_port(p0),packet_type(ns=0,id=0),eth_type(0x0800),\
ipv4(src=0.0.0.0/0.0.0.1), packets:20000, bytes:920000, used:0.1s, offloaded:yes, dp:tc, actions:p1
ufid:0c7a1bd5-0000-0000-0000-000000000002, skb_priority(0/0),in_port(p0),packet_type(ns=0,id=0),eth_type(0x0800),\
ipv4(src=0.0.0.1/0.0.0.1), packets:12778, bytes:587788, used:0.1s, dp:ovs, actions:p1
"""
TEXT_SWITCH_LOAD = """\
100
cpu  1000 0 2000 90000 10 0 345 0 0 0
4711 (ovs-vswitchd) S 1 4711 4711 0 -1 4194560 900 0 0 0 1234 766 0 0 20 0 9 0 8800 1000000 5000 18446744073709551615
VmRSS:\t   20480 kB
netdev@ovs-netdev:
  lookups: hit:998 missed:2 lost:0
  flows: 2
system@ovs-system:
  lookups: hit:10 missed:40 lost:3
limit 7
sw_flow              1000   1200    768   42    8 : tunables    0    0    0
nf_conntrack           10     64    256   16    1 : tunables    0    0    0
"""
# What some kernels do not show.
LACKING = "\n".join(
    line for line in TEXT_SWITCH_LOAD.splitlines() if not line.startswith(("sw_flow", "nf_conn", "limit"))
)
PHYSICAL = f"{STATISTICS}     rx_packets_phy: 11\n     tx_packets_phy: 22\n"
FIRST, LATER = (
    SwitchCounts(100, {"a": 90, "b": 10}, {"a": 90}),
    SwitchCounts(160, {"a": 20, "b": 50, "c": 5}, {"a": 20}),
)
READING = parse_reading(TEXT_SWITCH_LOAD, at_s=5.0)
GROWN = TEXT_SWITCH_LOAD.replace("1234 766", "1244 776").replace(" 345 ", " 355 ").replace("missed:40", "missed:90")
TWO_LATER = parse_reading(GROWN, at_s=7.0)
READ: dict[str, object] = {
    "counters at the wire are preferred": parse_counts(f"== generator\n{STATISTICS}== a b\n{PHYSICAL}"),
    "packets of flows, of megaflows and of the NIC": parse_switch_counts(TEXT),
    "a recreated megaflow counts from zero": switched_frames(FIRST, LATER),
    "so do flows": switched_frames(LATER, FIRST),
    "all datapaths are added up": READING,
    "what a kernel does not show is none": parse_reading(LACKING, at_s=5.0),
    "the cost of a packet is CPU time of switch and kernel": {
        name: f"{value:g}" for name, value in TWO_LATER.since(READING, packets=1000).items()
    },
}


def test_counters_are_read_and_those_that_cannot_be_right_make_a_sample_suspect(*, update_golden: bool) -> None:
    shown = {title: str(found) for title, found in READ.items()}
    shown |= {title: f"{found}\nloss {found.loss_share:g}" for title, found in COUNTED.items()}
    shown |= {title: "\n".join(reasons) for title, reasons in DOUBTS.items()}
    assert_recorded("measure/counters.txt", shown, update=update_golden)


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (parse_counts, f"== a\n{STATISTICS}== b\n", "the interface of b shows no rx_packets"),
        *(
            (parse_switch_counts, text, "dump-aggregate printed no counters")
            for text in ("", "OFPST_AGGREGATE reply (OF1.4) (xid=0x2): flow_count=1\n", "Killed\n")
        ),
    ],
)
def test_an_answer_without_counters_is_an_error(parse: Callable[[str], object], text: str, message: str) -> None:
    with pytest.raises(MeasureError, match=message):
        parse(text)


def _reading(text: str) -> SwitchReading:
    return parse_reading(text, at_s=5.0)


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        *((_reading, text) for text in ("", "100\n", TEXT_SWITCH_LOAD.partition(")")[0])),
        *((_reading, TEXT_SWITCH_LOAD.replace("100", word, 1)) for word in ("x", "0")),
        (_reading, TEXT_SWITCH_LOAD.replace("1234", "-")),
        (parse_counts, f"== a\n{STATISTICS}".replace("rx_packets ", f"rx_packets {'9' * 5000}")),
        (parse_switch_counts, TEXT.replace("32778", "9" * 5000)),
    ],
)
def test_bug_a_damaged_line_of_counters_was_no_plain_error(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(MeasureError):
        parse(text)


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
    assert 0.97 * limit_pps <= found.values["throughput_pps"] <= limit_pps  # type: ignore[operator]
    assert found.values["forwarding_pps"] == limit_pps
    assert found.values["received"] == found.values["sent"]


def test_a_switch_faster_than_the_generator_has_the_rate_of_the_generator() -> None:
    found = search_throughput(switch(2e6, generator_pps=1e6), SETTINGS)
    assert len(found.trials) == 1
    assert found.measurement.values["throughput_pps"] == found.measurement.values["generator_pps"] == 1e6


def test_a_switch_that_always_loses_a_little_has_a_partial_drop_rate_alone() -> None:
    found = search_throughput(switch(100_000, generator_pps=1e6, tail_share=0.0005), SETTINGS).measurement
    assert found.values["throughput_pps"] < found.values["partial_drop_pps"] > 90_000  # type: ignore[operator]


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


def test_what_gives_no_throughput_is_one_sentence() -> None:
    with pytest.raises(MeasureError, match="no frame reached a backend: are the flows of the config installed"):
        search_throughput(switch(0.0, generator_pps=1e6), SETTINGS)
    reason = "the tx counter of generator went back from 9 to 0: it wrapped, or was reset"
    broken = TrialResult(None, CountedFrames(0, {"a": 0}, 0, (reason,), went_back=True), 1.0, (reason,))
    with pytest.raises(MeasureError, match=f"{reason}, twice in a row"):
        search_throughput(lambda _: broken, SETTINGS)


def test_a_load_is_sent_again_when_a_counter_went_back(monkeypatch: pytest.MonkeyPatch) -> None:
    good = TrialResult(None, CountedFrames(5, {"a": 5}, 5, ()), 1.0, ())
    bad = replace(good, frames=CountedFrames(0, {"a": 5}, 5, ("went back",), went_back=True))
    for results, wanted in (([bad, good], good), ([bad, bad], bad), ([good], good)):
        left = iter(results)
        for name in ("announce_backends", "read", "start"):
            monkeypatch.setattr(LoadBench, name, lambda *_, **__: (None, None))
        monkeypatch.setattr(LoadBench, "result", lambda *_, left=left, **__: next(left))
        bench = LoadBench(*[cast(Any, MagicMock())] * 4)
        assert bench.trial(frame_bytes=64, offered_pps=None, seconds_s=1.0) is wanted
        assert not [*left]


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


LARGE = line_rate_pps(LINK, 1518)
LOSSLESS, FULL = loss(0.5, 0, 0, 0, 0, 0), rate(1518, *[LARGE] * 5, generator=LARGE)
QUIET = latency("50/50", 0, *[20] * 5) + latency("50/50", 0.9, *[20] * 5)
MEASURED = {
    "no loss": LOSSLESS + loss(1.0, 0, 0, 0, 0, 0),
    "loss in each repeat": LOSSLESS + loss(0.9, 50, 60, 70, 80, 90) + loss(1.1, *[100_000] * 5),
    "loss in one repeat": LOSSLESS + loss(1.0, 0, 0, 3, 0, 0),
    "loss above line rate": LOSSLESS + loss(1.5, *[9] * 5, pps=LINE * 1.01),
    "loss just below line rate": LOSSLESS + loss(1.5, *[9] * 5, pps=LINE * 0.99),
    "a suspect sample": loss(1.0, 0, 0, 0, 0, 0, 900, suspect=[5]),
    "too few others": loss(1.0, 0, 0, 0, 0, 0, suspect=[1]),
    "line rate": rate(64, *[LINE * 0.995] * 5, generator=LINE) + FULL,
    "a size below line rate": rate(64, *[LINE * 0.6] * 5, generator=LINE) + FULL,
    "a slow generator": rate(64, *[LINE * 0.3] * 5, generator=LINE * 0.3),
    "around line rate": rate(64, LINE * 0.96, LINE, LINE, LINE, LINE, generator=LINE),
    "equal medians": latency("50/50", 0, 20, 21, 20, 20, 21) + latency("50/50", 0.9, 21, 20, 21, 21, 20),
    "one split changes": QUIET + latency("0/100", 0, *[21] * 5) + latency("0/100", 0.9, *[30] * 5),
    "around the margin": latency("50/50", 0, *[20] * 5) + latency("50/50", 0.9, 20, 23, 21, 24, 22),
    "no idle point": latency("50/50", 0.9, *[20] * 5),
}


def test_claims_are_judged_with_a_reason(*, update_golden: bool) -> None:
    """Of ten million frames without loss the bound is that of the rule of three."""
    found = {name: judge(measured[0].experiment, measured, link_bps=LINK) for name, measured in MEASURED.items()}
    said = {name: f"{one.outcome.value}: {one.reason}" for name, one in found.items() if one is not None}
    assert_recorded("measure/verdicts.txt", said, update=update_golden)


@pytest.mark.parametrize("experiment", ["echo", "designs", "paths"])
def test_other_experiments_test_no_claim(experiment: str) -> None:
    assert judge(experiment, (), link_bps=LINK) is None
    # Without the rate of the link there is no line rate.
    found = judge("rate", rate(64, *[1.0] * 5, generator=1.0), link_bps=None)
    assert found is not None
    assert found.outcome is ClaimOutcome.UNDECIDED


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


def test_a_change_is_relative_to_the_base() -> None:
    found = change([100.0] * 5, [110.0] * 5)
    assert (found.estimate, found.low, found.high) == pytest.approx((0.1, 0.1, 0.1))
    noisy = change([98, 99, 100, 101, 102], [148, 149, 150, 151, 152])
    assert noisy.low < 0.5 < noisy.high


@pytest.mark.parametrize(
    "call", [lambda: interval([]), lambda: quantiles([]), lambda: change([], [1]), lambda: change([0], [1])]
)
def test_nothing_to_judge_is_an_error(call: object) -> None:
    with pytest.raises(ValueError, match="values"):
        call()  # type: ignore[operator]
