"""The experiment about the paths of a bed: rate and latency of each alone, and rates of pairs at the same time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import combinations, combinations_with_replacement
from typing import cast

from xenoovs.measure.bed import Bed
from xenoovs.measure.bed_paths import PathBench, PathDirection, PathLoad, PathTrial, bed_paths, path_bench
from xenoovs.measure.path_figures import KIND_OPTION
from xenoovs.measure.samples import BedKind, Plain, Point, Value
from xenoovs.measure.schedule import Measurement

BASIS = "offered_pps_by_load"
FRAME_BYTES = 64
"""The shortest: paths are compared by packets, and short ones cost the most for each byte."""

_OVERLOAD = 1.25
"""Loads are that much above the rate that passed at first, so that a path is full also when it is faster now."""

_RAISE, _MOST_RAISES = 1.6, 4
_LOSS_SHARE = 0.02

_TRIAL_S = {
    (BedKind.LAB, True): 0.4,
    (BedKind.LAB, False): 1.5,
    # Reading counters takes an emulated processor a second.
    (BedKind.EMULATED, True): 1.0,
    (BedKind.EMULATED, False): 4.0,
    (BedKind.MACHINES, True): 0.5,
    (BedKind.MACHINES, False): 10.0,
}
"""By kind of the bed, and whether the run is a quick one."""
_OVERHEAD_S = 1.0
_QUICK_SAMPLES = 40
_REPEATS = 5
_ROUND_TRIPS = {False: 200, True: 50}


@dataclass(slots=True)
class PathsExperiment:
    """Each path alone in each direction, and pairs: both inward, one inward beside another outward."""

    bench: PathBench
    points: Sequence[Point]
    repeats: int
    round_trips: int
    trial_s: float
    name: str = "paths"
    options: Mapping[str, Plain] = field(init=False)
    point_s: float = field(init=False)

    def __post_init__(self) -> None:
        bed = self.bench.bed
        self.options = {
            "service": bed.service.name,
            "frame_bytes": self.bench.frame_bytes,
            "trial_s": self.trial_s,
            "round_trips": self.round_trips,
            **{KIND_OPTION.format(path.name): path.kind.value for path in self.bench.paths if path.kind is not None},
        }
        self.point_s = self.trial_s + _OVERHEAD_S

    def prepare(self, bed: Bed) -> Mapping[str, Value]:
        """Return the load of each path and direction: a bit more than what passes."""
        self.warm_up(bed, {})
        return {BASIS: {load.name: self._overload(load) for load in self._alone()}}

    def _overload(self, load: PathLoad) -> float:
        """Return a rate of which some is lost; where there is none, the highest that the generator sends."""
        seconds_s = min(self.trial_s, 1.0)
        flood = self.bench.run([load], seconds_s=seconds_s).trials[0]
        offered = flood.received_pps * _OVERLOAD
        # A switch in software that shares its processors with the generator forwards more of a lesser load.
        for _ in range(_MOST_RAISES):
            if offered >= flood.sent_pps:
                break
            trial = self.bench.run([replace(load, offered_pps=offered)], seconds_s=seconds_s).trials[0]
            if trial.received_pps < trial.sent_pps * (1 - _LOSS_SHARE):
                break
            offered *= _RAISE
        return max(1.0, min(offered, flood.sent_pps))

    def warm_up(self, bed: Bed, basis: Mapping[str, Value]) -> None:
        loads = list(self._alone())
        for load in loads:
            self.bench.prepare(load)
        self.bench.learn(loads)

    def _alone(self) -> Iterator[PathLoad]:
        for point in self.points:
            if "beside" not in point:
                yield self._load(point, "path", "direction")

    def _load(self, point: Point, path: str, direction: str) -> PathLoad:
        return PathLoad(self.bench.path(str(point[path])), PathDirection(point[direction]))

    def measure(self, bed: Bed, point: Point, basis: Mapping[str, Value]) -> Measurement:
        offered = cast("Mapping[str, float]", basis[BASIS])
        loads = [self._load(point, "path", "direction")]
        if "beside" in point:
            loads.append(self._load(point, "beside", "beside_direction"))
        loads = [replace(load, offered_pps=offered[load.name]) for load in loads]
        values: dict[str, Value] = {}
        # In both directions a round trip is the same.
        is_asked = len(loads) == 1 and loads[0].direction is PathDirection.IN
        if is_asked:
            values["rtt_us"] = self.bench.round_trips(loads[0].path, count=self.round_trips)
        window = self.bench.run(loads, seconds_s=self.trial_s, reads_switch=is_asked)
        for prefix, load, trial in zip(("", "beside_"), loads, window.trials, strict=False):
            values |= _values(prefix, load, trial)
        values |= window.by_switch.values
        suspect = list(dict.fromkeys(reason for trial in window.trials for reason in trial.suspect))
        if window.first is not None and window.last is not None:
            packets = window.trials[0].received_pps * (window.last.at_s - window.first.at_s)
            values |= window.last.since(window.first, packets=max(1.0, packets))
        if values.get("rtt_us") == []:
            suspect.append(f"no frame came back on path {loads[0].path.name}")
        return Measurement(values, tuple(suspect))


def _values(prefix: str, load: PathLoad, trial: PathTrial) -> dict[str, Value]:
    return {
        f"{prefix}sent": trial.sent,
        f"{prefix}received": trial.received,
        f"{prefix}lost": trial.lost,
        f"{prefix}seconds_s": trial.seconds_s,
        f"{prefix}offered_pps": cast(float, load.offered_pps),
        f"{prefix}sent_pps": trial.sent_pps,
        f"{prefix}received_pps": trial.received_pps,
        f"{prefix}loss_share": trial.lost / trial.sent if trial.sent else 0.0,
    }


def path_points(names: Sequence[str], directions: Sequence[PathDirection]) -> tuple[Point, ...]:
    """Return the points of paths: each alone, pairs in the same direction, and pairs in opposite directions."""
    inward, outward = PathDirection.IN.value, PathDirection.OUT.value
    points: list[Point] = [{"path": name, "direction": direction.value} for direction in directions for name in names]
    points += [
        {"path": one, "direction": inward, "beside": other, "beside_direction": inward}
        for one, other in combinations(names, 2)
    ]
    if PathDirection.OUT in directions:
        points += [
            {"path": one, "direction": inward, "beside": other, "beside_direction": outward}
            for one, other in combinations_with_replacement(names, 2)
        ]
    return tuple(points)


@contextmanager
def paths_experiment(
    bed: Bed,
    *,
    directions: Sequence[PathDirection],
    quick: bool,
    seed: int,
    frame_bytes: int | None = None,
    repeats: int | None = None,
) -> Iterator[PathsExperiment]:
    """Prepare the experiment; the end undoes everything. Raises MeasureError. `repeats` None: 5; quick: what fits."""
    paths = bed_paths(bed)
    points = path_points([path.name for path in paths], directions)
    usual = max(1, min(_REPEATS, math.floor(_QUICK_SAMPLES / len(points)))) if quick else _REPEATS
    shortest = FRAME_BYTES if paths[0].inward.version == 4 else 66
    with path_bench(bed, paths, directions, frame_bytes=frame_bytes or shortest, seed=seed) as bench:
        yield PathsExperiment(bench, points, repeats or usual, _ROUND_TRIPS[quick], _TRIAL_S[bed.kind, quick])
