"""Figures from samples of paths: capacity, latency, and pairs that share a bottleneck."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from fractions import Fraction

import yaml

from xenoovs.dataclass import dataclass
from xenoovs.display import decimal, percent
from xenoovs.errors import MeasureError, counted, first_names, worded
from xenoovs.measure.path_plan import TOLERANCE, PairVerdict, PathKind
from xenoovs.measure.samples import Plain, RecordedRun, Sample
from xenoovs.measure.statistics import FEWEST_REPEATS, Interval, interval
from xenoovs.measure.verdict import by_point, number, numbers, offloaded_share, repeat_values, trusted

_TOLERANCE = float(TOLERANCE)
_FULL_LOSS_SHARE = 0.01
"""Below this loss a path is not full: it may carry more than was offered."""


@dataclass(frozen=True, slots=True)
class PathEnd:
    """A path in one direction: `in` to the backend, `out` from the backend."""

    path: str
    direction: str

    def __str__(self) -> str:
        return self.path if self.direction == "in" else f"{self.path} {self.direction}"


@dataclass(frozen=True, slots=True)
class PathFigures:
    """One path alone. Values are None if not measured; `offloaded_share` is None if there is no NIC.

    `is_full`: Whether some of the load was lost; if not, the path may carry more. `rtt_us`: Median of the round trips
    without load. `cpu_us`: CPU time of the switch for a packet, equal to the cores for 1 Mpps.
    """

    end: PathEnd
    rate_pps: Interval
    is_full: bool
    rtt_us: Interval | None
    cpu_us: Interval | None
    kind: PathKind | None
    offloaded_share: float | None
    is_suspect: bool


@dataclass(frozen=True, slots=True)
class PairFigures:
    """Two paths at the same time.

    `reached`: Sum of both rates, each as a share of the rate alone: 2 if they share nothing, 1 if they share
    everything. `reason`: Why the verdict is undecided; empty if it is decided.
    """

    one: PathEnd
    other: PathEnd
    one_pps: Interval
    other_pps: Interval
    reached: Interval
    verdict: PairVerdict
    reason: str
    offloaded_share: float | None
    is_suspect: bool

    @property
    def name(self) -> str:
        return f"{self.one} + {self.other}"

    @property
    def is_same_direction(self) -> bool:
        return self.one.direction == self.other.direction


def judge_pair(reached: Sequence[float], reachable: Sequence[float]) -> tuple[PairVerdict, str]:
    """Return whether two paths share a bottleneck, and the reason if that is undecided. `reached`: For each repeat the
    sum of both received rates, each as a share of the rate alone. `reachable`: The same for the sent rates, each share
    at most 1; less than 2 if a generator was too slow."""
    if len(reached) < FEWEST_REPEATS:
        few = f"{counted(len(reached), 'repeat')} that can be trusted, and a verdict needs {FEWEST_REPEATS}"
        return PairVerdict.UNDECIDED, few
    found, possible = interval(reached), interval(reachable)
    if found.low >= 2 * (1 - _TOLERANCE):
        return PairVerdict.APART, ""
    if found.high < possible.low * (1 - _TOLERANCE):
        return PairVerdict.SHARED, ""
    if possible.estimate < 2 * (1 - _TOLERANCE):
        sent = f"the generators sent only {percent(possible.estimate / 2)} of what both carry alone, and that arrived"
        return PairVerdict.UNDECIDED, sent
    return PairVerdict.UNDECIDED, f"the interval {found.low:.2f} to {found.high:.2f} is on both sides"


@dataclass(frozen=True, slots=True)
class MeasuredPaths:
    """The figures of a run's paths and pairs, in the order of its points."""

    paths: tuple[PathFigures, ...]
    pairs: tuple[PairFigures, ...]


def measured_paths(recorded: RecordedRun) -> MeasuredPaths:
    """Return the figures of a run of `measure paths`, without points that have no sample yet.

    Suspect samples count only for points without others.
    """
    groups = {key: trusted(group) for key, group in by_point(recorded.samples, *_KEYS).items()}
    options = recorded.run.options
    paths, pairs = list[PathFigures](), list[PairFigures]()
    for point in recorded.run.points:
        group = groups.get(tuple(map(point.get, _KEYS)))
        if not group:
            continue
        end = PathEnd(str(point["path"]), str(point["direction"]))
        if "beside" not in point:
            paths.append(_path(end, group, options.get(KIND_OPTION.format(end.path)), offloaded_share(recorded, group)))
            continue
        other = PathEnd(str(point["beside"]), str(point["beside_direction"]))
        alone = [groups.get((each.path, each.direction, None, None), []) for each in (end, other)]
        if pair := _pair(end, other, group, alone, offloaded_share(recorded, group)):
            pairs.append(pair)
    return MeasuredPaths(tuple(paths), tuple(pairs))


_KEYS = ("path", "direction", "beside", "beside_direction")
KIND_OPTION = "kind of {}"
"""Name of a run's option with the kind of a path."""


def _path(end: PathEnd, group: Sequence[Sample], kind: Plain | None, offloaded: float | None) -> PathFigures:
    rates = [number(sample.values, "received_pps") or 0.0 for sample in group]
    losses = [number(sample.values, "loss_share") or 0.0 for sample in group]
    medians, cpu = repeat_values(group, "rtt_us"), numbers(group, "cpu_us")
    return PathFigures(
        end=end,
        rate_pps=interval(rates),
        is_full=statistics.median(losses) >= _FULL_LOSS_SHARE,
        rtt_us=interval(medians) if medians else None,
        cpu_us=interval(cpu) if cpu else None,
        kind=PathKind(kind) if kind else None,
        offloaded_share=offloaded,
        is_suspect=all(sample.suspect for sample in group),
    )


def _pair(
    one: PathEnd, other: PathEnd, group: Sequence[Sample], alone: Sequence[Sequence[Sample]], offloaded: float | None
) -> PairFigures | None:
    """Return the figures of a pair; None if one of its paths has no sample alone, or carries nothing."""
    rates = [{s.repeat: number(s.values, "received_pps") or 0.0 for s in samples} for samples in alone]
    means = [sum(each.values()) / len(each) if each else 0.0 for each in rates]
    if not all(means):
        return None
    reached, reachable = list[float](), list[float]()
    for sample in group:
        # Rates alone are of the same repeat, so that a drift of the machine cancels out.
        bases = [each.get(sample.repeat) or mean for each, mean in zip(rates, means, strict=True)]
        got, sent = (
            [number(sample.values, f"{prefix}{what}_pps") or 0.0 for prefix in ("", "beside_")]
            for what in ("received", "sent")
        )
        reached.append(sum(rate / base for rate, base in zip(got, bases, strict=True)))
        reachable.append(sum(min(1.0, rate / base) for rate, base in zip(sent, bases, strict=True)))
    counting = [index for index, sample in enumerate(group) if not sample.suspect]
    verdict, reason = judge_pair([reached[index] for index in counting], [reachable[index] for index in counting])
    one_pps, other_pps = (
        interval([number(sample.values, f"{prefix}received_pps") or 0.0 for sample in group])
        for prefix in ("", "beside_")
    )
    return PairFigures(one, other, one_pps, other_pps, interval(reached), verdict, reason, offloaded, not counting)


def lacking_samples(recorded: RecordedRun) -> str:
    """Return what a run lacks, as the end of a sentence; empty if it is complete."""
    run = recorded.run
    left = len(run.missing(recorded.samples))
    if not left:
        return ""
    planned = [str(point["path"]) for point in run.points if "beside" not in point and point["direction"] == "in"]
    measured = {str(s.point["path"]) for s in recorded.samples if "beside" not in s.point}
    without = [name for name in dict.fromkeys(planned) if name not in measured]
    none = f", and no path to {first_names(without)} is measured" if without else ""
    missing = f"{left} of {counted(len(run.points) * run.repeats, 'sample')} {worded(left, 'is', 'are')} missing"
    return f"{missing}{none}"


def measured_file(recorded: RecordedRun) -> str:
    """Return a run's figures as a file of paths, for `load_paths`.

    Its paths are those to the backends, over which a load can be split; the paths back only show what both directions
    share. Raises MeasureError if no path has a sample yet.
    """
    found = measured_paths(recorded)
    inward = [path for path in found.paths if path.end.direction == "in"]
    if not inward:
        raise MeasureError(f"{recorded.directory} has no sample of a path to a backend yet: go on with --resume")
    # The thousands of packets per second of a software path would be hard to read in Mpps.
    unit = "Mpps" if max(path.rate_pps.estimate for path in inward) >= 1e6 else "kpps"
    lines = (*_head(recorded, inward, unit), *_path_lines(inward, unit), *_pair_lines(found.pairs, unit))
    return "\n".join([*lines, ""])


def _rate(pps: float, unit: str) -> str:
    """Return a rate in a unit, rounded to a packet per second."""
    return decimal(Fraction(round(pps), _PPS[unit]))


_PPS = {"Mpps": 10**6, "kpps": 10**3}
"""Packets per second of each unit."""


def _head(recorded: RecordedRun, paths: Sequence[PathFigures], unit: str) -> Iterator[str]:
    yield f"# Measured: {json.dumps(recorded.run.datapath)[1:-1]}, {recorded.run.started}."
    if lacking := lacking_samples(recorded):
        yield f"# Incomplete: {json.dumps(lacking)[1:-1]}."
    repeats = min(path.rate_pps.count for path in paths)
    meaning = "95 % confidence" if repeats >= FEWEST_REPEATS else "the least and the greatest"
    yield f"# interval: {meaning}, of {counted(repeats, 'repeat')}."
    yield f"# latency_us: median round trip without load. cpu: cores of the switch for 1 {unit}."
    for path in paths:
        if not path.is_full:
            yield f"# {path.end.path} lost nothing: it may carry more than was sent."
    yield "version: 1"
    yield f"unit: {unit}"
    yield "paths:"


def _path_lines(paths: Sequence[PathFigures], unit: str) -> Iterator[str]:
    for path in paths:
        parts = [f"name: {_name(path.end.path)}"]
        if path.kind is not None:
            parts.append(f"kind: {path.kind.value}")
        parts.append(f"capacity: {_rate(path.rate_pps.estimate, unit)}")
        parts.append(f"interval: [{_rate(path.rate_pps.low, unit)}, {_rate(path.rate_pps.high, unit)}]")
        if path.rtt_us is not None:
            parts.append(f"latency_us: {_number(round(path.rtt_us.estimate, 1))}")
        if path.cpu_us is not None:
            parts.append(f"cpu: {_number(max(0.0, path.cpu_us.estimate) * _PPS[unit] / 1e6)}")
        yield f"  - {{{', '.join(parts)}}}"


def _pair_lines(pairs: Sequence[PairFigures], unit: str) -> Iterator[str]:
    # A split only has loads to backends; a pair in opposite directions shows nothing about them.
    same = [pair for pair in pairs if pair.is_same_direction and pair.one != pair.other]
    if same:
        yield "pairs:"
    for pair in same:
        rates = f"[{_rate(pair.one_pps.estimate, unit)}, {_rate(pair.other_pps.estimate, unit)}]"
        names = f"[{_name(pair.one.path)}, {_name(pair.other.path)}]"
        reason = f"  # {pair.reason}" if pair.reason else ""
        yield f"  - {{paths: {names}, rates: {rates}, verdict: {pair.verdict.value}}}{reason}"


def _name(name: str) -> str:
    """Return a name as YAML, in quotes if YAML would read a number or truth value."""
    return name if yaml.safe_load(name) == name else json.dumps(name)


def _number(value: float) -> str:
    """Return a number with six decimals."""
    return decimal(Fraction(round(value * 10**6), 10**6))
