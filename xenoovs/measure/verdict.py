"""Verdicts on the three claims that the talk about XenoFlow tested.

A claim is confirmed or refuted if a confidence interval of 95 % lies wholly on one side, otherwise undecided. The
statistical unit is the repeat: packets of one repeat are not independent.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum

from xenoovs.dataclass import dataclass
from xenoovs.display import percent, quantity
from xenoovs.errors import counted
from xenoovs.measure.samples import BedKind, Point, RecordedRun, Sample, Value, point_key
from xenoovs.measure.statistics import FEWEST_REPEATS, Interval, Statistic, change, interval

LINE_RATE_SHARE = 0.99
"""Share that counts as line rate: clocks of two NICs differ by up to 200 ppm (IEEE 802.3)."""
LATENCY_MARGIN = 0.10
"""Largest relative difference of medians with and without load that counts as independent of load."""
WIRE_OVERHEAD_BYTES = 20
"""Preamble, start of frame and interframe gap (IEEE 802.3, sections 3.2.1 and 4.4.2)."""


class ClaimOutcome(Enum):
    """A verdict on a claim."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class ClaimVerdict:
    """A claim, the verdict, and the deciding figures as a sentence."""

    claim: str
    outcome: ClaimOutcome
    reason: str


def line_rate_pps(link_bps: float, frame_bytes: float) -> float:
    """Return how many frames of this size, with FCS, a link carries in a second."""
    return link_bps / 8 / (frame_bytes + WIRE_OVERHEAD_BYTES)


Judged = tuple[ClaimOutcome, str]
"""A verdict and its reason."""


def judge(experiment: str, samples: Sequence[Sample], *, link_bps: float | None) -> ClaimVerdict | None:
    """Return the verdict on the claim that an experiment tests; None if it tests none."""
    if experiment not in _CLAIMS:
        return None
    claim, judged = _CLAIMS[experiment]
    return ClaimVerdict(claim, *judged([sample for sample in samples if not sample.suspect], link_bps))


def number(values: Mapping[str, Value], key: str) -> float | None:
    """Return a value that is a number; None if there is none."""
    value = values.get(key)
    return float(value) if isinstance(value, (int, float)) else None


def number_list(values: Mapping[str, Value], key: str) -> list[float]:
    """Return a value that is a list of numbers; empty if there is none."""
    value = values.get(key)
    return [float(each) for each in value] if isinstance(value, Sequence) and not isinstance(value, str) else []


def numbers(samples: Iterable[Sample], key: str) -> list[float]:
    """Return the numbers with this key; samples without one are left out."""
    return [value for sample in samples if (value := number(sample.values, key)) is not None]


def by_point(samples: Iterable[Sample], *keys: str) -> dict[tuple[object, ...], list[Sample]]:
    """Return the samples grouped by these keys of their points, and sorted by them and by repeat."""
    groups = dict[tuple[object, ...], list[Sample]]()
    for sample in sorted(samples, key=lambda sample: sample.repeat):
        groups.setdefault(tuple(sample.point.get(key) for key in keys), []).append(sample)
    return dict(sorted(groups.items(), key=lambda item: _sortable(item[0])))


def _sortable(key: tuple[object, ...]) -> tuple[tuple[bool, float, str], ...]:
    return tuple((False, float(part), "") if isinstance(part, (int, float)) else (True, 0.0, str(part)) for part in key)


_NO_LINE_RATE = "; the links have no rate, so that every load counts as below line rate"


def no_loss(samples: Sequence[Sample], link_bps: float | None) -> Judged:
    """Judge the loss: refuted if it is above 0 at a point, confirmed if no packet was lost."""
    below = [sample for sample in samples if _is_below_line_rate(sample, link_bps)]
    if not samples:
        return ClaimOutcome.UNDECIDED, _few([()])
    if not below:
        return ClaimOutcome.UNDECIDED, "no sample was below line rate."
    points = by_point(below, "frame_bytes", "offered_share")
    sent = sum(number(sample.values, "sent") or 0 for sample in below)
    lost = sum(_lost(sample) for sample in below)
    limit = "" if link_bps is None else " below line rate"
    worst: tuple[Interval, list[Sample]] | None = None
    for group in points.values():
        found = interval([number(sample.values, "loss_share") or 0.0 for sample in group])
        if found.count >= FEWEST_REPEATS and found.low > 0 and (worst is None or found.low > worst[0].low):
            worst = found, group
    if worst is not None:
        found, group = worst
        at = quantity(mean_value(group, "sent_pps"))
        size = group[0].point.get("frame_bytes")
        frames = f" of {size} bytes" if size is not None else ""
        lost_there = f"{percent(found.estimate)} of the frames were lost ({_range(found)}) at {at}pps{frames}{limit}"
        return ClaimOutcome.REFUTED, f"{lost_there}{_NO_LINE_RATE if link_bps is None else ''}."
    if few := _few(points.values()):
        return ClaimOutcome.UNDECIDED, few
    if lost == 0:
        # The rule of three: no event in n trials means at most 3/n with 95 % confidence (Hanley, JAMA 1983).
        most = f"{3 / max(sent, 1):.1g}"
        reason = f"none of {quantity(sent)} frames was lost{limit}; with 95% confidence the loss share is below {most}."
        return ClaimOutcome.CONFIRMED, reason
    times = sum(_lost(sample) > 0 for sample in below)
    happened = f"{quantity(lost)} of {quantity(sent)} frames were lost, in {times} of {counted(len(below), 'sample')}"
    return ClaimOutcome.UNDECIDED, f"{happened}; at each load, other repeats lost none."


def line_rate_at_every_size(samples: Sequence[Sample], link_bps: float | None) -> Judged:
    """Judge the throughput: refuted if it is below line rate for a size although the generator sent more."""
    points = by_point(samples, "frame_bytes")
    if not points:
        return ClaimOutcome.UNDECIDED, "there is no sample."
    if link_bps is None:
        return (
            ClaimOutcome.UNDECIDED,
            "the links have no rate, as those of labs and virtual machines, so there is no line rate: measure on "
            "machines (--bed) whose links have one.",
        )
    reached = list[bool]()
    held_back = list[str]()
    for (size,), group in points.items():
        line = line_rate_pps(link_bps, float(str(size)))
        found = interval([number(sample.values, "throughput_pps") or 0 for sample in group])
        if found.count < FEWEST_REPEATS:
            continue
        reached.append(found.low >= LINE_RATE_SHARE * line)
        if found.high < LINE_RATE_SHARE * line:
            offered = max((number(sample.values, "generator_pps") or 0 for sample in group), default=0.0)
            share = f"{percent(found.estimate / line)} of line rate"
            if offered > found.high / LINE_RATE_SHARE:
                reason = (
                    f"with {size} bytes {quantity(found.estimate)}pps passed without loss ({_rates(found)}), {share}."
                )
                return ClaimOutcome.REFUTED, reason
            held_back.append(f"with {size} bytes the generator sent no more than {quantity(offered)}pps, {share}")
    if held_back:
        return ClaimOutcome.UNDECIDED, f"{held_back[0]}, and all of it passed."
    if few := _few(points.values()):
        return ClaimOutcome.UNDECIDED, few
    if all(reached):
        share = percent(LINE_RATE_SHARE)
        reason = f"at least {share} of line rate passed with each of {counted(len(points), 'size')}."
        return ClaimOutcome.CONFIRMED, reason
    return ClaimOutcome.UNDECIDED, "the interval of a size holds line rate and less."


def latency_independent_of_load(samples: Sequence[Sample], _link_bps: float | None) -> Judged:
    """Judge the latency: refuted if a median under load lies wholly above the margin, confirmed if all lie within."""
    changes = list[tuple[Interval, str]]()
    for (split,), group in by_point(samples, "split").items():
        loads = {load: repeat_values(of_load, "rtt_us") for (load,), of_load in by_point(group, "base_load").items()}
        idle = loads.pop(next((load for load in loads if load == 0), None), [])
        for load, medians in loads.items():
            if min(len(idle), len(medians)) >= FEWEST_REPEATS:
                where = f"split {split}, {percent(float(str(load)))} of the throughput as base load"
                changes.append((change(idle, medians, Statistic.MEDIAN), where))
    few = _few(by_point(samples, "split", "base_load").values())
    outside = [each for each in changes if each[0].low > LATENCY_MARGIN or each[0].high < -LATENCY_MARGIN]
    widest = max(outside or changes, key=lambda each: abs(each[0].estimate), default=None)
    if widest is None:
        reason = few or "no split has samples both with and without base load."
        return ClaimOutcome.UNDECIDED, reason
    found, where = widest
    changed = f"{found.estimate:+.1%} ({found.low:+.1%} to {found.high:+.1%} with 95% confidence) at {where}"
    if outside:
        return ClaimOutcome.REFUTED, f"the median changes by {changed}."
    if few:
        return ClaimOutcome.UNDECIDED, few
    if all(each.low >= -LATENCY_MARGIN and each.high <= LATENCY_MARGIN for each, _ in changes):
        reason = f"the median changes by at most {percent(LATENCY_MARGIN)}; the most is {changed}."
        return ClaimOutcome.CONFIRMED, reason
    return ClaimOutcome.UNDECIDED, f"the median changes by {changed}; more repeats would decide."


_CLAIMS: Mapping[str, tuple[str, Callable[[Sequence[Sample], float | None], Judged]]] = {
    "loss": ("no packet is lost below line rate", no_loss),
    "rate": ("line rate at every packet size", line_rate_at_every_size),
    "latency": ("latency does not depend on load", latency_independent_of_load),
}
"""By experiment, the claim and what judges it by the trusted samples and the rate of the links."""


def _is_below_line_rate(sample: Sample, link_bps: float | None) -> bool:
    size, rate = number(sample.point, "frame_bytes"), number(sample.values, "sent_pps")
    return link_bps is None or size is None or rate is None or rate <= line_rate_pps(link_bps, size)


def _lost(sample: Sample) -> float:
    sent, received = number(sample.values, "sent") or 0.0, number(sample.values, "received") or 0.0
    return max(0.0, sent - received)


def _few(groups: Iterable[Sequence[Sample]]) -> str:
    """Return the sentence about points with too few repeats; empty if there are none."""
    fewest = min((len(group) for group in groups), default=0)
    if fewest >= FEWEST_REPEATS:
        return ""
    return f"a point has {counted(fewest, 'repeat')} that can be trusted, and a verdict needs {FEWEST_REPEATS}."


def _range(found: Interval) -> str:
    return f"{percent(found.low)} to {percent(found.high)} with 95% confidence"


def _rates(found: Interval) -> str:
    return f"{quantity(found.low)} to {quantity(found.high)}pps with 95% confidence"


# The repeats of a point that count, and their values, whose means tables and pictures show.


def trusted(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Return the samples of a point that count: suspect ones only if there are no others."""
    return [sample for sample in samples if not sample.suspect] or samples


def repeat_values(samples: Sequence[Sample], key: str) -> list[float]:
    """Return the value of each sample that has it; for a list, its median."""
    values = list[float]()
    for sample in samples:
        single = number(sample.values, key)
        if single is None and (several := number_list(sample.values, key)):
            single = statistics.median(several)
        if single is not None:
            values.append(single)
    return values


def offloaded_share(recorded: RecordedRun, samples: Sequence[Sample]) -> float | None:
    """Return the share of packets that the NIC forwarded; None if there is no NIC, or Open vSwitch was not read."""
    counts = [
        [number(each.values, key) for key in ("offloaded_packets", "matched", "megaflow_packets")] for each in samples
    ]
    known = [
        (offloaded, every)
        for offloaded, matched, of_megaflows in counts
        if offloaded is not None and (every := matched or of_megaflows)
    ]
    if recorded.run.kind is BedKind.LAB or not known:
        return None
    return min(1.0, sum(offloaded for offloaded, _ in known) / sum(every for _, every in known))


def measured_points(recorded: RecordedRun) -> list[tuple[Point, list[Sample]]]:
    """Return the points that have samples, in the order of the run."""
    groups = {point_key(point): (point, list[Sample]()) for point in recorded.run.points}
    for sample in recorded.samples:
        if group := groups.get(point_key(sample.point)):
            group[1].append(sample)
    return [(point, samples) for point, samples in groups.values() if samples]


def mean_value(samples: Sequence[Sample], key: str) -> float | None:
    """Return the mean of a point's repeats that count; None if none of them has the value."""
    values = repeat_values(trusted(samples), key)
    return statistics.fmean(values) if values else None
