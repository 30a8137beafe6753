"""The figures of each design in each scene of a completion run, and verdicts on adaptive routing.

The limits of the claims were set before the measurements. They apply to ratios of medians, with intervals by the
bootstrap of repeats. TCP's time-outs dominate ECMP's time, so its ratio to ours depends on the size of the flows, and
only some sizes have a limit.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from xenoovs.dataclass import dataclass
from xenoovs.errors import counted
from xenoovs.measure.completion import CompletionCase, Scene
from xenoovs.measure.routing_designs import RoutingDesign
from xenoovs.measure.samples import Point, Sample
from xenoovs.measure.statistics import FEWEST_REPEATS, Interval, Statistic, change, interval
from xenoovs.measure.verdict import ClaimOutcome, ClaimVerdict, number, numbers, trusted


@dataclass(frozen=True, slots=True)
class CompletionFigures:
    """The figures of one design in one scene.

    Attributes:
        times_s: Completion time of each sample; the time limit if a flow did not end.
        unfinished: Number of samples with a flow that did not end.
        undisturbed_s: Median of the same flows by ECMP without a disturbance; None if not measured.
        ecmp_s: Median of ECMP in the same scene; None if not measured.
        moves: Median of the block moves in a sample; None if the design has no blocks.
        emptied_s: Median of the times until a path had no block; None if no path became empty in any sample.
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
        """Return whether flows had not ended in most samples: the median is then the time limit, a lower bound."""
        return self.unfinished * 2 > len(self.times_s)

    @property
    def greatest_s(self) -> float:
        return max(self.times_s)

    @property
    def mean_s(self) -> float:
        return statistics.fmean(self.times_s)

    @property
    def gain(self) -> float | None:
        """Return the median of ECMP divided by that of this design; None if ECMP was not measured."""
        return None if self.ecmp_s is None else self.ecmp_s / self.median_s


def scene_title(scene: Scene) -> str:
    load = f" {scene.load:g}" if scene.case is CompletionCase.STEADY else ""
    return f"{scene.case.value}{load}, {scene.flows} x {scene.size / 1000:g} kB"


def figures_of(points: Iterable[Point], samples: Iterable[Sample]) -> dict[Scene, tuple[CompletionFigures, ...]]:
    """Return the figures of all scenes and designs that have samples, in the order of the points."""
    counting = {key: trusted(group) for key, group in _grouped(samples).items()}
    found = defaultdict[Scene, list[CompletionFigures]](list)
    for scene, design in dict.fromkeys(map(_key, points)):
        if samples_of := counting.get((scene, design)):
            ecmp = [counting.get((each, RoutingDesign.ECMP), ()) for each in (_undisturbed(scene), scene)]
            found[scene].append(_figures(design.value, samples_of, *ecmp))
    return {scene: tuple(figures) for scene, figures in found.items()}


def _key(point: Point) -> tuple[Scene, RoutingDesign]:
    return Scene.of(point), RoutingDesign(point["design"])


def _grouped(samples: Iterable[Sample]) -> _Groups:
    found = defaultdict[tuple[Scene, RoutingDesign], list[Sample]](list)
    for sample in samples:
        found[_key(sample.point)].append(sample)
    return dict(found)


def _undisturbed(scene: Scene) -> Scene:
    """Return the scene of the same flows without a disturbance."""
    return Scene(CompletionCase.ALONE, scene.flows, scene.size, 0.0)


def _figures(design: str, samples: _Group, ecmp_alone: _Group, ecmp_here: _Group) -> CompletionFigures:
    return CompletionFigures(
        design,
        times_s=tuple(numbers(samples, "completion_s")),
        unfinished=sum((number(one.values, "completed") or 0) < (number(one.values, "flows") or 0) for one in samples),
        undisturbed_s=_median(ecmp_alone, "completion_s"),
        ecmp_s=_median(ecmp_here, "completion_s"),
        completed=int(sum(numbers(samples, "completed"))),
        flows=int(sum(numbers(samples, "flows"))),
        moves=_median(samples, "moves"),
        emptied_s=_median(samples, "emptied_s"),
    )


def _median(samples: Iterable[Sample], key: str) -> float | None:
    values = numbers(samples, key)
    return statistics.median(values) if values else None


_Group = Sequence[Sample]
_Groups = Mapping[tuple[Scene, RoutingDesign], _Group]

_UNDISTURBED_MOST = {CompletionCase.ELEPHANT: 1.25, CompletionCase.DEAD: 1.5}
_ECMP_LEAST: Mapping[tuple[CompletionCase, int, int], float] = {
    (CompletionCase.ELEPHANT, 10, 50_000): 2.5,
    (CompletionCase.ELEPHANT, 10, 250_000): 2.0,
    (CompletionCase.ELEPHANT, 50, 50_000): 1.6,
    (CompletionCase.LATER, 10, 1_000_000): 2.5,
}
_PROBED_LEAST = {CompletionCase.ELEPHANT: 1.0, CompletionCase.LATER: 1.8}
_ALIKE = (0.85, 1.15)
_EMPTY_MOST_S = 0.4


@dataclass(frozen=True, slots=True)
class _Finding:
    outcome: ClaimOutcome
    text: str


def acceptance(samples: Iterable[Sample]) -> tuple[ClaimVerdict, ...]:
    """Return the verdicts on all claims that the scenes of a run test, without suspect samples."""
    groups = _grouped(sample for sample in samples if not sample.suspect)
    # Samples are in random order.
    scenes = sorted({scene for scene, design in groups if design is RoutingDesign.BLOCKS}, key=_place)
    return tuple(
        verdict for claim, judge in _CLAIMS if (verdict := _verdict(claim, (judge(groups, each) for each in scenes)))
    )


def _place(scene: Scene) -> tuple[int, int, int, float]:
    """Return the sort key of a scene: by disturbance, then from small to large."""
    return [*CompletionCase].index(scene.case), scene.flows * scene.size, scene.flows, scene.load


def _verdict(claim: str, found: Iterable[_Finding | None]) -> ClaimVerdict | None:
    """Return the worst verdict of several scenes; None if no scene tests the claim."""
    findings = [each for each in found if each is not None]
    if not findings:
        return None
    order = (ClaimOutcome.REFUTED, ClaimOutcome.UNDECIDED, ClaimOutcome.CONFIRMED)
    outcome = min((each.outcome for each in findings), key=order.index)
    return ClaimVerdict(claim, outcome, f"{'; '.join(each.text for each in findings)}.")


def _near_undisturbed(groups: _Groups, scene: Scene) -> _Finding | None:
    most = _UNDISTURBED_MOST.get(scene.case)
    undisturbed = groups.get((_undisturbed(scene), RoutingDesign.ECMP))
    return None if most is None else _ratio(scene, undisturbed, _ours(groups, scene), most=most)


def _ahead_of_ecmp(groups: _Groups, scene: Scene) -> _Finding | None:
    least = _ECMP_LEAST.get((scene.case, scene.flows, scene.size))
    ecmp = groups.get((scene, RoutingDesign.ECMP))
    return None if least is None else _ratio(scene, _ours(groups, scene), ecmp, least=least)


def _not_behind_probes(groups: _Groups, scene: Scene) -> _Finding | None:
    least, other = _PROBED_LEAST.get(scene.case), groups.get((scene, RoutingDesign.DOCA_AR))
    if least is None:
        return None
    found = _ratio(scene, _ours(groups, scene), other, least=least)
    # In the published scene an undecided ratio is noise, and confirms the claim.
    is_noise = scene.case is CompletionCase.ELEPHANT and found is not None and found.outcome is ClaimOutcome.UNDECIDED
    enough = min(len(_ours(groups, scene)), len(other or ())) >= FEWEST_REPEATS
    return _Finding(ClaimOutcome.CONFIRMED, found.text) if found is not None and is_noise and enough else found


def _alike_alone(groups: _Groups, scene: Scene) -> _Finding | None:
    if scene.case is not CompletionCase.ALONE:
        return None
    ecmp = groups.get((scene, RoutingDesign.ECMP))
    return _ratio(scene, ecmp, _ours(groups, scene), least=_ALIKE[0], most=_ALIKE[1])


def _nothing_moves(groups: _Groups, scene: Scene) -> _Finding | None:
    is_idle = scene.case is CompletionCase.STEADY and not scene.load
    if scene.case not in (CompletionCase.ALONE, CompletionCase.REVERSE) and not is_idle:
        return None
    moves = numbers(_ours(groups, scene), "moves")
    if not moves:
        return None
    moved = sum(1 for each in moves if each)
    text = f"{scene_title(scene)}: {sum(moves):g} moves in {moved} of {counted(len(moves), 'sample')}"
    outcome = ClaimOutcome.CONFIRMED if len(moves) >= FEWEST_REPEATS else ClaimOutcome.UNDECIDED
    return _Finding(ClaimOutcome.REFUTED if moved else outcome, text)


def _dead_path_empty(groups: _Groups, scene: Scene) -> _Finding | None:
    times = numbers(_ours(groups, scene), "emptied_s") if scene.case is CompletionCase.DEAD else []
    if not times:
        return None
    found = interval(times, Statistic.MEDIAN)
    text = f"{scene_title(scene)}: {found.estimate:.3f} s ({found.low:.3f} to {found.high:.3f})"
    return _judged(found, text, most=_EMPTY_MOST_S)


def _all_completed(groups: _Groups, scene: Scene) -> _Finding | None:
    ours = _ours(groups, scene)
    completed, flows = sum(numbers(ours, "completed")), sum(numbers(ours, "flows"))
    if not flows or scene.case is CompletionCase.STEADY:
        return None
    outcome = ClaimOutcome.CONFIRMED if completed == flows else ClaimOutcome.REFUTED
    return _Finding(outcome, f"{scene_title(scene)}: {completed:g} of {flows:g}")


_CLAIMS: tuple[tuple[str, Callable[[_Groups, Scene], _Finding | None]], ...] = (
    ("moving blocks are nearly as fast as undisturbed (elephant 1.25x, dead spine 1.5x)", _near_undisturbed),
    ("moving blocks are faster than ECMP (1.6x to 2.5x)", _ahead_of_ecmp),
    ("moving blocks are not behind a probe per flow; 1.8x ahead of it if the elephant comes later", _not_behind_probes),
    ("without an elephant moving blocks are as fast as ECMP (0.85x to 1.15x)", _alike_alone),
    ("no block moves without a congested way out", _nothing_moves),
    ("a dead path is empty within 0.4 s", _dead_path_empty),
    ("all flows end", _all_completed),
)


def _ours(groups: _Groups, scene: Scene) -> _Group:
    return groups.get((scene, RoutingDesign.BLOCKS), ())


def _ratio(
    scene: Scene, base: _Group | None, other: _Group | None, *, least: float = 0.0, most: float = float("inf")
) -> _Finding | None:
    """Return whether the ratio of two groups' medians is within the limits; None if one group was not measured."""
    one, two = numbers(base or (), "completion_s"), numbers(other or (), "completion_s")
    if not one or not two:
        return None
    found = change(one, two, Statistic.MEDIAN)
    ratio = Interval(found.estimate + 1, found.low + 1, found.high + 1, found.count)
    text = f"{scene_title(scene)}: {ratio.estimate:.2f}x ({ratio.low:.2f} to {ratio.high:.2f})"
    return _judged(ratio, text, least=least, most=most)


def _judged(found: Interval, text: str, *, least: float = 0.0, most: float = float("inf")) -> _Finding:
    if found.count < FEWEST_REPEATS:
        return _Finding(ClaimOutcome.UNDECIDED, f"{text}, from {counted(found.count, 'repeat')}")
    if found.low >= least and found.high <= most:
        return _Finding(ClaimOutcome.CONFIRMED, text)
    is_outside = found.high < least or found.low > most
    return _Finding(ClaimOutcome.REFUTED if is_outside else ClaimOutcome.UNDECIDED, text)
