"""The order of the measurements of a run, and what an experiment has to offer to be run."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

from xenoovs.dataclass import dataclass, field
from xenoovs.measure.samples import Plain, Point, Run, RunWriter, Sample, Value, point_key, utc_text


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one measurement of a point gave: values as in `samples.py`, and reasons why they may be wrong."""

    values: Mapping[str, Value]
    suspect: tuple[str, ...] = ()


Basis = Mapping[str, Value]
"""What an experiment measured once before its points, which refer to it."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """One experiment on a bed: what it varies, and how it measures one point.

    Attributes:
        point_s: About how long one sample takes, for the first estimate of the time left.
        measure: Measures a point once. Whatever ends it, also KeyboardInterrupt, the bed is afterwards as it was
            before. Raises MeasureError when no further point makes sense.
        options: What else changes the figures, by name; a run with other ones cannot be resumed.
        prepare: Measures the basis, which is stored for a resumed run too.
        warm_up: Runs the load for a moment before the first point of a session, so that no point pays for cold caches;
            None: that is a measurement of the first point.
    """

    name: str
    points: Sequence[Point]
    repeats: int
    point_s: float
    measure: Callable[[Point, Basis], Measurement]
    options: Mapping[str, Plain] = field(default_factory=dict)
    prepare: Callable[[], Basis] = dict
    warm_up: Callable[[], object] | None = None


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How far a run is. `left_s`: the time that the rest will take; `point`: the one that is measured now."""

    point: Point
    done: int
    total: int
    left_s: float


def order_of(run: Run) -> tuple[tuple[Point, int], ...]:
    """Return every point with every repeat: all points once in random order, then all of them again.

    So a drift of the machine is no effect of a point, and an interrupted run has about as many samples of each point.
    Points with the same `offload` follow each other, as Open vSwitch is restarted for each change of it. Their order is
    the same with each `offload`, so that a run which ends early has the same points of all of them.
    """
    chance = random.Random(run.seed)  # noqa: S311 - a repeatable order, no secret
    order: list[tuple[Point, int]] = []
    for repeat in range(run.repeats):
        points = list(run.points)
        chance.shuffle(points)
        offloads = dict.fromkeys(point.get("offload") for point in ([order[-1][0]] if order else []) + points)
        others = [*dict.fromkeys(map(_without_offload, points))]
        points.sort(key=lambda point: ([*offloads].index(point.get("offload")), others.index(_without_offload(point))))
        order += ((point, repeat) for point in points)
    return tuple(order)


def _without_offload(point: Point) -> str:
    return point_key({key: value for key, value in point.items() if key != "offload"})


def carry_out(
    experiment: Experiment,
    writer: RunWriter,
    *,
    progress: Callable[[RunProgress], None],
    within_s: float | None = None,
) -> None:
    """Measure what the run lacks, and store each sample at once. Samples that are stored stay, whatever happens.

    `within_s`: After the first point of each setting of `offload`, between which the time is divided, no measurement
    begins that would end later; the run then lacks samples.

    Raises MeasureError when the experiment cannot go on, or a sample cannot be stored.
    """
    missing = writer.run.missing(writer.samples)
    left = [(point, repeat) for point, repeat in order_of(writer.run) if (point_key(point), repeat) in missing]
    if not left:
        return
    begun_s, begun = time.monotonic(), time.time()
    total = len(writer.run.points) * writer.run.repeats
    done = total - len(left)

    def left_s(samples_s: float) -> float:
        """Return how long the rest takes: no longer than the run may."""
        return samples_s if within_s is None else max(0.0, min(samples_s, begun_s + within_s - time.monotonic()))

    progress(RunProgress(left[0][0], done, total, left_s(experiment.point_s * len(left))))
    if not writer.run.basis and (basis := experiment.prepare()):
        writer.set_basis(basis)
    if experiment.warm_up is not None:
        experiment.warm_up()
    else:
        experiment.measure(experiment.points[0], writer.run.basis)
    measured, measured_s = 0, 0.0
    rounds = [list(each) for _, each in groupby(left, key=lambda each: each[0].get("offload"))]
    for number, one_round in enumerate(rounds, start=1):
        end_s = None if within_s is None else begun_s + within_s * number / len(rounds)
        for index, (point, repeat) in enumerate(one_round):
            each_s = measured_s / measured if measured else experiment.point_s
            start_s = time.monotonic()
            if index and end_s is not None and start_s + each_s > end_s:
                break
            progress(RunProgress(point, done + measured, total, left_s(each_s * (len(left) - measured))))
            measurement = experiment.measure(point, writer.run.basis)
            at = utc_text(begun + start_s - begun_s)
            writer.append(Sample(experiment.name, point, repeat, at, measurement.values, measurement.suspect))
            measured_s += time.monotonic() - start_s
            measured += 1
