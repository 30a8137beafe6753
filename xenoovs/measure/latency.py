"""Round trips of DNS requests during a base load that is split over two backends: XenoFlow's second experiment."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import cast

from xenoovs.compile.program import compile_config
from xenoovs.display import percent
from xenoovs.errors import MeasureError
from xenoovs.measure.bed import Bed, last_line, restored_flows, set_program
from xenoovs.measure.frames import other_half, sources
from xenoovs.measure.load import LoadBench, TrialResult
from xenoovs.measure.samples import BedKind, Point, Value
from xenoovs.measure.schedule import Basis, Experiment, Measurement
from xenoovs.measure.throughput import TrialSettings, base_rate, options_of
from xenoovs.model.balancer import Balancer

SPLITS = ("0/100", "50/50", "70/30", "100/0")
BASE_LOADS = tuple(number / 10 for number in range(10))
BASIS = "partial_drop_pps"

_SOURCE = Path(__file__).with_name("echo_requests.py")
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
    argv = ["python3", "-I", "-c", _SOURCE.read_text()]
    done = bed.client.try_run(*argv, stdin=f"{json.dumps(job)}\n", timeout_s=requests / _REQUESTS_PPS + _TIMEOUT_S)
    if done.exit_code:
        raise MeasureError(f"the client on {bed.client.place.name} ended: {last_line(done)}")
    answers: dict[str, object] = json.loads(done.stdout)
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
        return {BASIS: base_rate(bench, settings, frame_bytes=_FRAME_BYTES)}

    def warm_up() -> None:
        bench.learn(frame_bytes=_FRAME_BYTES)
        _ask(bench, requests=20)

    def measure(point: Point, basis: Basis) -> Measurement:
        split, rate = str(point["split"]), cast(float, basis[BASIS]) * float(point["base_load"])
        set_program(bed, compile_config(balancer_of(bed, split)).flows, before=flows)
        bench.announce_backends()
        if not point["base_load"]:
            return _measurement(bed, _ask(bench, requests=requests), None, split)
        before = bench.read()
        running = bench.start(_FRAME_BYTES, offered_pps=rate, seconds_s=seconds_s)
        try:
            answers = _ask(bench, requests=requests, after_s=margin_s)
        except BaseException:
            running.end()
            raise
        elsewhere, beside = (0, requests) if is_shared else (requests, 0)
        result = bench.result(before, running, offered_pps=rate, elsewhere=elsewhere, beside=beside)
        return _measurement(bed, answers, result, split)

    options = {**options_of(bench.profile, settings), "frame_bytes": _FRAME_BYTES}
    with restored_flows(bed) as flows:
        yield Experiment("latency", points, repeats, seconds_s + 1.0, measure, options, prepare, warm_up)
