"""`xenoovs measure load`: throughput over frame size, loss over load, and latency: XenoFlow's experiments."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import cast

import click

from xenoovs.compile.program import compile_config
from xenoovs.dataclass import dataclass
from xenoovs.display import percent
from xenoovs.errors import MeasureError
from xenoovs.measure.bed import Bed, restored_flows, set_program
from xenoovs.measure.bench import LoadBench, TrialResult, load_bench
from xenoovs.measure.frames import FRAME_BYTES, LoadProfile, other_half, sources
from xenoovs.measure.run import (
    Basis,
    Experiment,
    MeasureSettings,
    PointColumn,
    PointTable,
    mean_of,
    measure_options,
    microseconds,
    repeats_option,
    sizes_option,
)
from xenoovs.measure.samples import BedKind, Measurement, Plain, Point, RecordedRun, Sample, Value
from xenoovs.measure.statistics import quantile
from xenoovs.measure.verdict import number_list, trusted
from xenoovs.model.balancer import Balancer
from xenoovs.terminal.options import time_option

PARTIAL_DROP_SHARE = 0.001
"""Highest loss at the partial drop rate."""

_OVERHEAD_S = 0.6
_TRICKLE_SHARE = 0.01
"""Share of the generator's full speed for a second trial, if nothing arrives at full speed."""
_RATES = "partial_drop_pps_by_frame_bytes"


@dataclass(frozen=True, slots=True)
class TrialSettings:
    """Settings of a search for throughput, which ends when good and bad rate differ by the share `resolution`."""

    trial_s: float
    resolution: float
    most_trials: int


_SETTINGS = {
    (False, False): TrialSettings(2.0, 0.02, 12),
    (False, True): TrialSettings(0.5, 0.1, 5),
    (True, False): TrialSettings(10.0, 0.02, 12),
    (True, True): TrialSettings(1.0, 0.1, 5),
}
"""By whether the bed is of real machines, and whether the run is quick."""


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
    # The longest duration of a search, roughly.
    point_s = (settings.trial_s + _OVERHEAD_S) * settings.most_trials
    return Experiment("rate", points, repeats, point_s, measure, options, warm_up=warm_up)


def loss_experiment(bench: LoadBench, settings: TrialSettings, repeats: int, points: Sequence[Point]) -> Experiment:
    """Return the experiment on loss over offered load: XenoFlow's third one."""

    def prepare() -> Basis:
        sizes = sorted({int(point["frame_bytes"]) for point in points})
        return {_RATES: {str(size): base_rate(bench, settings, frame_bytes=size) for size in sizes}}

    def measure(point: Point, basis: Basis) -> Measurement:
        size = int(point["frame_bytes"])
        offered_pps = cast("Mapping[str, float]", basis[_RATES])[str(size)] * float(point["offered_share"])
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
    return {
        "service": profile.service.name,
        "clients": profile.clients,
        "trial_s": settings.trial_s,
        "resolution": settings.resolution,
    }


SPLITS = ("0/100", "50/50", "70/30", "100/0")
BASE_LOADS = tuple(number / 10 for number in range(10))
_RATE = "partial_drop_pps"

_SOURCE = Path(__file__).with_name("echo_requests.py").read_text()
_FRAME_BYTES = 64
_REQUESTS_PPS = 100.0
_SOURCES = 64
_MOST_MARGIN_S = 1.0
_TIMEOUT_S = 60.0
_CLOCK_JUMP_S = 0.005
_SPLIT_SLACK = 0.05
_MIN_FRAMES = 200


def _ask(bench: LoadBench, *, requests: int, after_s: float = 0.0) -> dict[str, object]:
    bed, profile = bench.bed, bench.profile
    few = replace(profile, net=other_half(profile), clients=_SOURCES)
    is_lab = bed.kind is not BedKind.MACHINES
    job = {
        "vip": str(profile.vip),
        "port": profile.port,
        "sources": [str(address) for address, _ in sources(few)] if is_lab else [bed.client.address],
        "requests": requests,
        "pps": _REQUESTS_PPS,
        "after_s": after_s,
    }
    text, timeout_s = f"{json.dumps(job)}\n", requests / _REQUESTS_PPS + _TIMEOUT_S
    failure = f"the client on {bed.client.place.name} ended"
    answers: dict[str, object] = bed.client.ask(_SOURCE, failure=failure, stdin=text, timeout_s=timeout_s)
    if answers["error"]:
        raise MeasureError(f"requests to {profile.vip} cannot be sent from {bed.client.place.name}: {answers['error']}")
    return answers


def _measurement(bed: Bed, answers: Mapping[str, object], result: TrialResult | None, split: str) -> Measurement:
    rtt_us = cast("list[float]", answers["rtt_us"])
    sent = cast(int, answers["sent"])
    none = dict.fromkeys(bed.backends, 0)
    values: dict[str, Value] = {
        "sent": sent,
        "received": len(rtt_us),
        "loss_share": max(0.0, 1 - len(rtt_us) / sent),
        "rtt_us": rtt_us,
        "timestamps": str(answers["timestamps"]),
        "base_offered_pps": 0.0 if result is None or result.offered_pps is None else result.offered_pps,
        "base_sent": 0 if result is None else result.frames.sent,
        "base_received": 0 if result is None else result.frames.received,
        "base_received_by_backend": none if result is None else dict(result.frames.received_by_backend),
        "base_loss_share": 0.0 if result is None else result.frames.loss_share,
        **({} if result is None or result.by_switch is None else result.by_switch.values),
    }
    suspect = [] if result is None else [*result.suspect, *_split_doubts(bed, split, result)]
    if not rtt_us:
        suspect.append("no request was answered: does a DNS or echo server listen at the VIP of each backend?")
    if abs(jump_s := cast(float, answers["clock_jump_s"])) > _CLOCK_JUMP_S and values["timestamps"] != "program":
        suspect.append(f"the clock of the client's machine was set by {jump_s:+.3f} s during the measurement")
    return Measurement(values, tuple(suspect))


def _split_doubts(bed: Bed, split: str, result: TrialResult) -> Iterator[str]:
    """Yield the deviations from the split, which an agent that reverts the flows may cause."""
    received = result.frames.received
    for name, share in split_shares(bed, split).items():
        found = result.frames.received_by_backend[name] / max(1, received)
        if received >= _MIN_FRAMES and abs(found - share) > _SPLIT_SLACK:
            yield (
                f"{name} received {percent(found)} of the load, and split {split} gives it {percent(share)}: does an "
                "agent or a controller manage the bridge?"
            )


def ratio_of(split: str) -> tuple[int, int]:
    """Return the two numbers of a split such as "70/30". Raises ValueError for other text."""
    found = re.fullmatch(r"([0-9]{1,3})/([0-9]{1,3})", split)
    if found is None or not int(found[1]) + int(found[2]):
        raise ValueError(f"{split!r} is not a split such as 70/30 or 1/3: two numbers, of which one is above 0")
    return int(found[1]), int(found[2])


def split_shares(bed: Bed, split: str) -> dict[str, float]:
    """Return the share of each backend. Raises MeasureError if there is only one, ValueError for an invalid split."""
    if len(bed.backends) < 2:
        raise MeasureError(f"service {bed.service.name} has one backend; a split needs two: add one to the config")
    weights = [*ratio_of(split), *[0] * (len(bed.backends) - 2)]
    return {name: weight / sum(weights) for name, weight in zip(bed.backends, weights, strict=True)}


def balancer_of(bed: Bed, split: str) -> Balancer:
    """Return the config with the weights of a split for the service under test."""
    shares = split_shares(bed, split)
    backends = tuple(
        replace(backend, weight=Fraction(shares[backend.name]).limit_denominator(1000), is_backup=False)
        for backend in bed.service.backends
    )
    service = replace(bed.service, backends=backends)
    services = tuple(service if one is bed.service else one for one in bed.balancer.services)
    return replace(bed.balancer, services=services)


@contextmanager
def latency_experiment(
    bench: LoadBench, settings: TrialSettings, repeats: int, points: Sequence[Point]
) -> Iterator[Experiment]:
    """Prepare the experiment; restore the flows of the bridge at the end. Raises MeasureError."""
    bed = bench.bed
    for split in {str(point["split"]) for point in points}:
        split_shares(bed, split)
    # The time of base load before the first request, and after the last one.
    margin_s = min(_MOST_MARGIN_S, settings.trial_s)
    requests = max(20, round(settings.trial_s * _REQUESTS_PPS))
    seconds_s = settings.trial_s + 2 * margin_s
    is_shared = bed.client.is_at(bed.generator)

    def prepare() -> Basis:
        return {_RATE: base_rate(bench, settings, frame_bytes=_FRAME_BYTES)}

    def warm_up() -> None:
        bench.learn(frame_bytes=_FRAME_BYTES)
        _ask(bench, requests=20)

    def measure(point: Point, basis: Basis) -> Measurement:
        split, rate = str(point["split"]), cast(float, basis[_RATE]) * float(point["base_load"])
        set_program(bed, compile_config(balancer_of(bed, split)).flows, before=flows)
        bench.announce_backends()
        if not point["base_load"]:
            return _measurement(bed, _ask(bench, requests=requests), None, split)
        before, at_switch = bench.read()
        running = bench.start(_FRAME_BYTES, offered_pps=rate, seconds_s=seconds_s)
        try:
            answers = _ask(bench, requests=requests, after_s=margin_s)
        except BaseException:
            running.command.end()
            raise
        elsewhere, beside = (0, requests) if is_shared else (requests, 0)
        result = bench.result(
            before, running, offered_pps=rate, at_switch=at_switch, elsewhere=elsewhere, beside=beside
        )
        return _measurement(bed, answers, result, split)

    options = {**options_of(bench.profile, settings), "frame_bytes": _FRAME_BYTES}
    with restored_flows(bed) as flows:
        yield Experiment("latency", points, repeats, seconds_s + 1.0, measure, options, prepare, warm_up)


_QUICK_FRAME_BYTES = (64, 512, 1518)
_SHARES = tuple(number / 10 for number in range(1, 16))
_QUICK_SHARES = (0.5, 0.9, 1.0, 1.1, 1.3, 1.5)
_QUICK_BASE_LOADS = (0.0, 0.5, 0.9)


def _splits(_context: click.Context, _parameter: click.Parameter, given: str | None) -> tuple[str, ...] | None:
    splits = None if given is None else tuple(dict.fromkeys(given.split(",")))
    for split in splits or ():
        try:
            ratio_of(split)
        except ValueError as error:
            raise click.BadParameter(f"{error}.") from None
    return splits


def _latency_of(share: float) -> PointColumn:
    """Return the column with this quantile of the round-trip times."""

    def cell(_recorded: RecordedRun, samples: Sequence[Sample]) -> str:
        times = [time for sample in trusted(samples) for time in number_list(sample.values, "rtt_us")]
        return microseconds(quantile(times, share)) if times else "-"

    return cell


def _timestamps(recorded: RecordedRun) -> str:
    stamps = {str(sample.values["timestamps"]) for sample in recorded.samples}
    return f"time stamps of the {' and the '.join(sorted(stamps))}"


TABLES = {
    "rate": PointTable(
        {"BYTES": ("frame_bytes", str)},
        {
            "THROUGHPUT": mean_of("throughput_pps"),
            "AT 0.1% LOSS": mean_of("partial_drop_pps"),
            "FORWARDED": mean_of("forwarding_pps"),
            "GENERATOR": mean_of("generator_pps"),
        },
    ),
    "latency": PointTable(
        {"SPLIT": ("split", str), "BASE LOAD": ("base_load", percent)},
        {
            "FRAMES": mean_of("base_sent"),
            "MEDIAN": _latency_of(0.5),
            "P99": _latency_of(0.99),
            "ANSWERS": mean_of("received"),
        },
        note=_timestamps,
    ),
    "loss": PointTable(
        {"BYTES": ("frame_bytes", str), "OFFERED": ("offered_share", percent)},
        {"SENT": mean_of("sent_pps"), "RECEIVED": mean_of("received_pps"), "LOSS": mean_of("loss_share", percent)},
    ),
}


@click.command("load")
@click.argument("experiment", type=click.Choice([*TABLES]))
@measure_options()
@sizes_option(
    "of rate 64,68,128,256,512,1024,1280,1518, quick 64,512,1518; of loss 64",
    least=FRAME_BYTES[0],
    most=FRAME_BYTES[-1],
    noun="frames, with FCS",
)
@click.option(
    "--splits",
    metavar="A/B,...",
    callback=_splits,
    help="With latency: ratios of load for the first two backends of the service; 1/3 is the same as 25/75.  "
    f"[default: {','.join(SPLITS)}]",
)
@repeats_option("[default: 5, quick 2, latency 1]")
@time_option("--trial", help="Length of each load.  [default: 2s in a lab, 10s on machines]")
@click.option(
    "--clients",
    type=click.IntRange(1, 65536),
    default=4096,
    show_default=True,
    metavar="N",
    help="Number of source addresses; every block gets its share of them.",
)
def load_command(
    settings: MeasureSettings,
    *,
    experiment: str,
    sizes: tuple[int, ...] | None,
    splits: tuple[str, ...] | None,
    repeats: int | None,
    trial_s: float | None,
    clients: int,
) -> None:
    """Measure the packet rate, the latency or the loss of a load.

    Sent and received frames are read from the counters of the interfaces. In a lab the backends drop the load instead
    of answering it. Sizes are those of frames with their FCS: the shortest is 64 bytes.

    rate: the packet rate over frame size. THROUGHPUT: the highest rate without loss, searched by bisection (RFC 2544,
    section 26.1). AT 0.1% LOSS: the highest rate with at most this loss. FORWARDED: the highest rate that arrived in
    any trial. GENERATOR: the highest rate that was sent; if it equals the throughput, the switch may be faster.

    latency: the round-trip time of DNS requests during loads of 0 % to 90 % of the highest rate with at most 0.1 %
    loss, which is searched first. Each split divides load and requests between the first two backends of the service;
    the others get none. The flows of the bridge are restored at the end, even if this command is killed. Stop agents of
    the bridge first, as they would revert the flows. Time stamps are those of the NIC if it makes them, otherwise those
    of the kernel; the samples name the source. A DNS or echo server must answer at the VIP; in a lab one does.

    loss: 1 - received / sent, for loads of 10 % to 150 % of the same rate.

    \b
    Examples:
      xenoovs measure load rate --lab --quick
      xenoovs measure load rate my.yaml --bed bed.yaml --sizes 64,1518
      xenoovs measure load latency my.yaml --bed bed.yaml --splits 50/50,100/0
    """
    if sizes and experiment == "latency":
        raise click.UsageError("--sizes is for rate and loss.")
    if splits and experiment != "latency":
        raise click.UsageError("--splits is for latency.")
    points = _points(experiment, sizes, splits or SPLITS, quick=settings.quick)
    number = repeats or (5 if not settings.quick else 1 if experiment == "latency" else 2)
    with settings.open_bed() as bed:
        profile = bed.profile(clients=clients, seed=settings.seed)
        usual = _SETTINGS[bed.kind is BedKind.MACHINES, settings.quick]
        trials = usual if trial_s is None else replace(usual, trial_s=trial_s)
        with load_bench(bed, profile) as bench, _experiment(experiment, bench, trials, number, points) as made:
            recorded = settings.measure(bed, made)
    settings.show(recorded, TABLES[experiment].show)


def _points(name: str, sizes: Sequence[int] | None, splits: Sequence[str], *, quick: bool) -> list[Point]:
    if name == "latency":
        loads = _QUICK_BASE_LOADS if quick else BASE_LOADS
        return [{"split": split, "base_load": load} for split in splits for load in loads]
    if name == "rate":
        return [{"frame_bytes": size} for size in sizes or (_QUICK_FRAME_BYTES if quick else FRAME_BYTES)]
    shares = _QUICK_SHARES if quick else _SHARES
    return [{"frame_bytes": size, "offered_share": share} for size in sizes or (64,) for share in shares]


def _experiment(
    name: str, bench: LoadBench, trials: TrialSettings, repeats: int, points: Sequence[Point]
) -> AbstractContextManager[Experiment]:
    if name == "latency":
        return latency_experiment(bench, trials, repeats, points)
    return nullcontext((rate_experiment if name == "rate" else loss_experiment)(bench, trials, repeats, points))
