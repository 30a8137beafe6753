"""Figures of a run of the completion experiment, for each design in each scene."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence

from xenoovs.dataclass import dataclass
from xenoovs.measure.completion import CompletionCase, Scene
from xenoovs.measure.routing_designs import RoutingDesign
from xenoovs.measure.samples import Point, Sample
from xenoovs.measure.verdict import number, numbers


@dataclass(frozen=True, slots=True)
class CompletionFigures:
    """The figures of one design in one scene.

    Attributes:
        times_s: Completion time of each sample; the time limit where a flow did not end.
        unfinished: Number of those samples with a flow that did not end.
        undisturbed_s: Median of the same flows by ECMP when nothing disturbs them; None: not measured.
        ecmp_s: Median of ECMP in the same scene; None: not measured.
        moves: Median of the blocks that moved in a sample; None: the design has none.
        emptied_s: Median of the times until a path had no block; None: that did not happen in any sample.
    """

    design: str
    times_s: tuple[float, ...]
    unfinished: int
    undisturbed_s: float | None
    ecmp_s: float | None
    completed: int
    flows: int
    moves: float | None
    emptied_s: float | None

    @property
    def least_s(self) -> float:
        return min(self.times_s)

    @property
    def median_s(self) -> float:
        return statistics.median(self.times_s)

    @property
    def is_unfinished(self) -> bool:
        """Whether flows had not ended at the median: it is the time limit, and they take longer."""
        return self.unfinished * 2 > len(self.times_s)

    @property
    def greatest_s(self) -> float:
        return max(self.times_s)

    @property
    def mean_s(self) -> float:
        return statistics.fmean(self.times_s)

    @property
    def gain(self) -> float | None:
        """Median of ECMP, divided by that of this design."""
        return None if self.ecmp_s is None else self.ecmp_s / self.median_s


def scene_title(scene: Scene) -> str:
    load = f" {scene.load:g}" if scene.case is CompletionCase.STEADY else ""
    return f"{scene.case.value}{load}, {scene.flows} x {scene.size / 1000:g} kB"


def figures_of(points: Iterable[Point], samples: Iterable[Sample]) -> dict[Scene, tuple[CompletionFigures, ...]]:
    """Return the figures of all scenes and designs that have samples, in the order of the points."""
    groups = defaultdict[tuple[Scene, str], list[Sample]](list)
    for sample in samples:
        groups[Scene.of(sample.point), str(sample.point["design"])].append(sample)
    trusted = {key: [one for one in group if not one.suspect] or group for key, group in groups.items()}
    order = dict.fromkeys((Scene.of(point), str(point["design"])) for point in points)
    found = defaultdict[Scene, list[CompletionFigures]](list)
    for key in order:
        if key in trusted:
            found[key[0]].append(_figures(key[1], trusted[key], _reference(trusted, key[0])))
    return {scene: tuple(figures) for scene, figures in found.items()}


_Reference = tuple[float | None, float | None]


def _reference(groups: dict[tuple[Scene, str], list[Sample]], scene: Scene) -> _Reference:
    alone = Scene(CompletionCase.ALONE, scene.flows, scene.size, 0.0)
    ecmp = RoutingDesign.ECMP.value
    return _median(groups.get((alone, ecmp), ()), "completion_s"), _median(
        groups.get((scene, ecmp), ()), "completion_s"
    )


def _figures(design: str, samples: Sequence[Sample], reference: _Reference) -> CompletionFigures:
    undisturbed_s, ecmp_s = reference
    return CompletionFigures(
        design,
        times_s=tuple(numbers(samples, "completion_s")),
        unfinished=sum((number(one.values, "completed") or 0) < (number(one.values, "flows") or 0) for one in samples),
        undisturbed_s=undisturbed_s,
        ecmp_s=ecmp_s,
        completed=int(sum(numbers(samples, "completed"))),
        flows=int(sum(numbers(samples, "flows"))),
        moves=_median(samples, "moves"),
        emptied_s=_median(samples, "emptied_s"),
    )


def _median(samples: Iterable[Sample], key: str) -> float | None:
    values = numbers(samples, key)
    return statistics.median(values) if values else None
