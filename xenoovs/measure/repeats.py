"""The repeats of a point: which of them count, and the value of each. Tables and pictures show the means of these."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from xenoovs.measure.samples import BedKind, Point, RecordedRun, Sample, point_key
from xenoovs.measure.verdict import number, number_list


def trusted(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Return the samples of a point that count: the suspect ones only where there are no others."""
    return [sample for sample in samples if not sample.suspect] or samples


def repeat_values(samples: Sequence[Sample], key: str) -> list[float]:
    """Return the value of each sample that has it; of a list, its median."""
    values = list[float]()
    for sample in samples:
        single = number(sample.values, key)
        if single is None and (several := number_list(sample.values, key)):
            single = statistics.median(several)
        if single is not None:
            values.append(single)
    return values


def offloaded_share(recorded: RecordedRun, samples: Sequence[Sample]) -> float | None:
    """Return which share of the packets the NIC forwarded; None: there is no NIC, or Open vSwitch was not asked."""
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
    """Return the mean of the repeats of a point that count; None: none of them has the value."""
    values = repeat_values(trusted(samples), key)
    return statistics.fmean(values) if values else None
