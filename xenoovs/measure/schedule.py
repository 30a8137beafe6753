"""The definition of an experiment, and the order of the measurements of its run."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

from xenoovs.dataclass import dataclass, field
from xenoovs.measure.samples import Plain, Point, Run, RunWriter, Sample, Value, point_key, utc_text


@dataclass(frozen=True, slots=True)
class Measurement:
    """The result of one measurement of a point: values as in `samples.py`, and reasons why they may be wrong."""

    values: Mapping[str, Value]
    suspect: tuple[str, ...] = ()


Basis = Mapping[str, Value]
"""Values that an experiment measures once before its points, which are based on them."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """One experiment on a bed: its points, and how it measures one of them.

    Attributes:
        point_s: About how long one sample takes, for the first estimate of the time left.
        measure: Measures a point once. It restores the bed even after an exception such as KeyboardInterrupt. Raises
            MeasureError if the run cannot go on.
        options: Other settings that change the figures, by name; a run with different ones cannot be resumed.
        prepare: Measures the basis, which a resumed run reads from `run.json`.
        warm_up: Runs the load briefly before the first point of a session, so that caches are warm; None to measure
            the first point instead.
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
    """The progress of a run. `point`: The one that is measured now. `left_s`: Estimate of the time left."""

    point: Point
    done: int
    total: int
    left_s: float


def order_of(run: Run) -> tuple[tuple[Point, int], ...]:
    """Return every point with every repeat: all points once in random order, then all of them again.

    So a drift of the machine affects all points alike, and an interrupted run has about as many samples of each point.
    Points with the same `offload` follow each other, as each change of it restarts Open vSwitch. Their order is the
    same for each `offload`, so that a run that ends early has the same points for all of them.
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
    """Measure the missing samples of a run, and store each at once. Stored samples remain after any error.

    `within_s`: Time limit, divided between the settings of `offload`. After the first point of each setting, no
    measurement begins that would exceed it; the run then lacks samples.

    Raises MeasureError if the experiment cannot go on, or a sample cannot be stored.
    """
    missing = writer.run.missing(writer.samples)
    left = [(point, repeat) for point, repeat in order_of(writer.run) if (point_key(point), repeat) in missing]
    if not left:
        return
    begun_s, begun = time.monotonic(), time.time()
    total = len(writer.run.points) * writer.run.repeats
    done = total - len(left)

    def left_s(samples_s: float) -> float:
        """Return the time left, at most the rest of the time limit."""
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
