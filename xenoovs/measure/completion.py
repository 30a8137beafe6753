"""`xenoovs measure completion`: flow completion times in a fabric lab, with ECMP and with adaptive designs.

Flows begin together, and the time until the last one ends is measured. An elephant on one path, or a spine that drops
every packet, disturbs the fabric. The designs are measured in random order in one lab: the times of ECMP depend on the
time-outs of TCP, so figures of different labs cannot be compared. The reference is the undisturbed time, that of ECMP
without an elephant.

The scenes are those of DOCA-AR's README (10 and 50 flows, with and without an elephant) and the cases after them.
"""

from __future__ import annotations

import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from functools import partial
from typing import TypeVar

import click

from xenoovs.dataclass import dataclass
from xenoovs.errors import counted
from xenoovs.measure.fabric_bed import (
    FabricBed,
    RoutingDesign,
    dying_spine,
    elephant,
    flow_group,
    open_fabric_bed,
    prepared,
    running_design,
)
from xenoovs.measure.run import Basis, Experiment, MeasureSettings, measure_options, repeats_option
from xenoovs.measure.samples import Measurement, Plain, Point, RecordedRun, Sample
from xenoovs.measure.statistics import FEWEST_REPEATS, Interval, Statistic, change, interval
from xenoovs.measure.verdict import ClaimOutcome, ClaimVerdict, Judged, number, numbers, trusted
from xenoovs.terminal.options import data_size
from xenoovs.terminal.output import echo, print_table

ELEPHANT_LOAD = 1.2
"""Rate of the elephant as a share of a link's; above 1 the queue stays full."""

LIMIT_S = 30.0
"""Time limit of flows: some never end if a spine drops packets."""

STEADY_LIMIT_S = 120.0
"""Time limit of the long flows of the case `steady`."""

_LEAD_S = 1.2
"""Time from the start of the elephant to the start of the flows, in the case `elephant`."""

_LATER_S = 0.6
"""Time from the start of the flows to the disturbance, in the cases `later` and `dead`."""

_BEGIN_S = 0.3
"""Time from the command to the start of the flows, in which all senders read it."""


class CompletionCase(Enum):
    """The disturbance of the flows."""

    ALONE = "alone"
    """Nothing."""
    ELEPHANT = "elephant"
    """An elephant on one path, from 1.2 s before the flows."""
    LATER = "later"
    """An elephant that begins 0.6 s after the flows."""
    DEAD = "dead"
    """A spine that drops every packet from 0.6 s after the start of the flows."""
    REVERSE = "reverse"
    """An elephant on the way back of one path."""
    STEADY = "steady"
    """Long flows beside an elephant that does not overload its link, or none: which blocks move, how often."""


@dataclass(frozen=True, slots=True)
class Scene:
    """One setting. `load`: Rate of the elephant as a share of a link's; 0 if none. `size`: Bytes of each flow."""

    case: CompletionCase
    flows: int
    size: int
    load: float

    def point(self, design: RoutingDesign) -> Point:
        return {
            "case": self.case.value,
            "flows": self.flows,
            "bytes": self.size,
            "load": self.load,
            "design": design.value,
        }

    @classmethod
    def of(cls, point: Point) -> Scene:
        return cls(CompletionCase(point["case"]), int(point["flows"]), int(point["bytes"]), float(point["load"]))


Size = tuple[int, int]
"""Number of flows of each sender, and bytes of each flow."""

_SIZES: Mapping[CompletionCase, Sequence[Size]] = {
    CompletionCase.ALONE: ((10, 12_500), (10, 50_000), (10, 250_000), (50, 50_000), (10, 1_000_000)),
    CompletionCase.ELEPHANT: ((10, 12_500), (10, 50_000), (10, 250_000), (50, 50_000)),
    CompletionCase.LATER: ((10, 1_000_000),),
    CompletionCase.DEAD: ((10, 1_000_000),),
    CompletionCase.REVERSE: ((10, 250_000),),
    CompletionCase.STEADY: ((8, 12_000_000),),
}
_STEADY_LOADS = (0.0, 0.5, 0.9, 1.0)
QUICK_SIZE: Size = (10, 50_000)


def scenes_of(cases: Iterable[CompletionCase], size: Size | None) -> tuple[Scene, ...]:
    """Return the scenes of some cases. `size`: None for the usual sizes of each case."""
    return tuple(
        Scene(case, *each, load)
        for case in cases
        for each in (_SIZES[case] if size is None else (size,))
        for load in _loads(case)
    )


def _loads(case: CompletionCase) -> tuple[float, ...]:
    if case is CompletionCase.STEADY:
        return _STEADY_LOADS
    return (0.0,) if case in (CompletionCase.ALONE, CompletionCase.DEAD) else (ELEPHANT_LOAD,)


def points_of(scenes: Sequence[Scene], designs: Sequence[RoutingDesign]) -> tuple[Point, ...]:
    """Return all points, and for each size the undisturbed point, which is the reference of all figures."""
    points = [
        scene.point(design)
        for scene in scenes
        for design in designs
        # Only moves are measured there, and only this design moves blocks.
        if scene.case is not CompletionCase.STEADY
        or design is RoutingDesign.BLOCKS
        or RoutingDesign.BLOCKS not in designs
    ]
    for scene in scenes:
        if scene.case is not CompletionCase.STEADY:
            alone = Scene(CompletionCase.ALONE, scene.flows, scene.size, 0.0).point(RoutingDesign.ECMP)
            points += [alone] if alone not in points else []
    return tuple(points)


def completion_experiment(
    bed: FabricBed, points: Sequence[Point], *, repeats: int, txrehash: bool, seed: int
) -> Experiment:
    """Return the experiment: flows during a disturbance, with each design.

    `txrehash`: Whether sockets of the hosts take another path after a time-out. `seed`: Of the choice of disturbed
    paths.
    """
    chance = random.Random(seed)  # noqa: S311 - a repeatable choice, no secret

    def measure(point: Point, _basis: Basis) -> Measurement:
        scene, path = Scene.of(point), chance.randint(1, bed.fabric.shape.paths)
        limit_s = STEADY_LIMIT_S if scene.case is CompletionCase.STEADY else LIMIT_S
        with (
            running_design(bed, RoutingDesign(point["design"])) as running,
            flow_group(bed, flows=scene.flows, size=scene.size, limit_s=limit_s) as flows,
            _disturbance(bed, scene, path) as disturb,
        ):
            running.begin()
            disturbed_s, start_s = _times(scene)
            flows.begin_at(start_s)
            disturb(disturbed_s)
            ended = flows.wait(running.watch)
            values = {**ended.values, "disturbed_path": path, **running.values(disturbed_s)}
        return Measurement(values, ended.suspect)

    warm_up = partial(measure, Scene(CompletionCase.ALONE, 2, 10_000, 0.0).point(RoutingDesign.ECMP), {})
    options: dict[str, Plain] = {"txrehash": int(txrehash), "limit_s": LIMIT_S, "elephant_load": ELEPHANT_LOAD}
    return Experiment("completion", points, repeats, 6.0, measure, options, warm_up=warm_up)


def _times(scene: Scene) -> tuple[float, float]:
    """Return the start times of disturbance and flows, by the monotonic clock."""
    first_s = time.monotonic() + _BEGIN_S
    if scene.case in (CompletionCase.LATER, CompletionCase.DEAD):
        return first_s + _LATER_S, first_s
    return first_s, first_s + (_LEAD_S if scene.load else 0.0)


@contextmanager
def _disturbance(bed: FabricBed, scene: Scene, path: int) -> Iterator[Callable[[float], None]]:
    """Prepare a disturbance. Yield the function that sets its start."""
    if scene.case is CompletionCase.DEAD:
        with dying_spine(bed, path) as die_at:
            yield die_at
    elif scene.load:
        is_reverse = scene.case is CompletionCase.REVERSE
        with elephant(bed, path, load=scene.load, is_reverse=is_reverse) as begin_at:
            yield begin_at
    else:
        yield lambda _at_s: None


# The figures of each design in each scene, and verdicts on adaptive routing.

# The limits of the claims were set before the measurements. They apply to ratios of medians, with intervals by the
# bootstrap of repeats. TCP's time-outs dominate ECMP's time, so its ratio to ours depends on the size of the flows, and
# only some sizes have a limit.


@dataclass(frozen=True, slots=True)
class CompletionFigures:
    """The figures of one design in one scene.

    Attributes:
        times_s: Completion time of each sample; the time limit if a flow did not end.
        is_unfinished: Whether flows had not ended in most samples: the median is then the time limit, a lower bound.
        undisturbed_s: Median of the same flows by ECMP without a disturbance; None if not measured.
        ecmp_s: Median of ECMP in the same scene; None if not measured.
        moves: Median of the block moves in a sample; None if the design has no blocks.
        emptied_s: Median of the times until a path had no block; None if no path became empty in any sample.
    """

    design: str
    times_s: tuple[float, ...]
    is_unfinished: bool
    undisturbed_s: float | None
    ecmp_s: float | None
    completed: int
    flows: int
    moves: float | None
    emptied_s: float | None

    @property
    def median_s(self) -> float:
        return statistics.median(self.times_s)

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
    times_s = tuple(numbers(samples, "completion_s"))
    unfinished = sum((number(one.values, "completed") or 0) < (number(one.values, "flows") or 0) for one in samples)
    return CompletionFigures(
        design,
        times_s=times_s,
        is_unfinished=unfinished * 2 > len(times_s),
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


def _verdict(claim: str, found: Iterable[Judged | None]) -> ClaimVerdict | None:
    """Return the worst verdict of several scenes; None if no scene tests the claim."""
    findings = [each for each in found if each is not None]
    if not findings:
        return None
    order = (ClaimOutcome.REFUTED, ClaimOutcome.UNDECIDED, ClaimOutcome.CONFIRMED)
    outcome = min((outcome for outcome, _ in findings), key=order.index)
    return ClaimVerdict(claim, outcome, f"{'; '.join(text for _, text in findings)}.")


def _near_undisturbed(groups: _Groups, scene: Scene) -> Judged | None:
    most = _UNDISTURBED_MOST.get(scene.case)
    undisturbed = groups.get((_undisturbed(scene), RoutingDesign.ECMP))
    return None if most is None else _ratio(scene, undisturbed, _ours(groups, scene), most=most)


def _ahead_of_ecmp(groups: _Groups, scene: Scene) -> Judged | None:
    least = _ECMP_LEAST.get((scene.case, scene.flows, scene.size))
    ecmp = groups.get((scene, RoutingDesign.ECMP))
    return None if least is None else _ratio(scene, _ours(groups, scene), ecmp, least=least)


def _not_behind_probes(groups: _Groups, scene: Scene) -> Judged | None:
    least, other = _PROBED_LEAST.get(scene.case), groups.get((scene, RoutingDesign.DOCA_AR))
    if least is None:
        return None
    found = _ratio(scene, _ours(groups, scene), other, least=least)
    # In the published scene an undecided ratio is noise, and confirms the claim.
    is_noise = scene.case is CompletionCase.ELEPHANT and found is not None and found[0] is ClaimOutcome.UNDECIDED
    enough = min(len(_ours(groups, scene)), len(other or ())) >= FEWEST_REPEATS
    return (ClaimOutcome.CONFIRMED, found[1]) if found is not None and is_noise and enough else found


def _alike_alone(groups: _Groups, scene: Scene) -> Judged | None:
    if scene.case is not CompletionCase.ALONE:
        return None
    ecmp = groups.get((scene, RoutingDesign.ECMP))
    return _ratio(scene, ecmp, _ours(groups, scene), least=_ALIKE[0], most=_ALIKE[1])


def _nothing_moves(groups: _Groups, scene: Scene) -> Judged | None:
    is_idle = scene.case is CompletionCase.STEADY and not scene.load
    if scene.case not in (CompletionCase.ALONE, CompletionCase.REVERSE) and not is_idle:
        return None
    moves = numbers(_ours(groups, scene), "moves")
    if not moves:
        return None
    moved = sum(1 for each in moves if each)
    text = f"{scene_title(scene)}: {sum(moves):g} moves in {moved} of {counted(len(moves), 'sample')}"
    outcome = ClaimOutcome.CONFIRMED if len(moves) >= FEWEST_REPEATS else ClaimOutcome.UNDECIDED
    return ClaimOutcome.REFUTED if moved else outcome, text


def _dead_path_empty(groups: _Groups, scene: Scene) -> Judged | None:
    times = numbers(_ours(groups, scene), "emptied_s") if scene.case is CompletionCase.DEAD else []
    if not times:
        return None
    found = interval(times, Statistic.MEDIAN)
    text = f"{scene_title(scene)}: {found.estimate:.3f} s ({found.low:.3f} to {found.high:.3f})"
    return _judged(found, text, most=_EMPTY_MOST_S)


def _all_completed(groups: _Groups, scene: Scene) -> Judged | None:
    ours = _ours(groups, scene)
    completed, flows = sum(numbers(ours, "completed")), sum(numbers(ours, "flows"))
    if not flows or scene.case is CompletionCase.STEADY:
        return None
    outcome = ClaimOutcome.CONFIRMED if completed == flows else ClaimOutcome.REFUTED
    return outcome, f"{scene_title(scene)}: {completed:g} of {flows:g}"


_CLAIMS: tuple[tuple[str, Callable[[_Groups, Scene], Judged | None]], ...] = (
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
) -> Judged | None:
    """Return whether the ratio of two groups' medians is within the limits; None if one group was not measured."""
    one, two = numbers(base or (), "completion_s"), numbers(other or (), "completion_s")
    if not one or not two:
        return None
    found = change(one, two, Statistic.MEDIAN)
    ratio = Interval(found.estimate + 1, found.low + 1, found.high + 1, found.count)
    text = f"{scene_title(scene)}: {ratio.estimate:.2f}x ({ratio.low:.2f} to {ratio.high:.2f})"
    return _judged(ratio, text, least=least, most=most)


def _judged(found: Interval, text: str, *, least: float = 0.0, most: float = float("inf")) -> Judged:
    if found.count < FEWEST_REPEATS:
        return ClaimOutcome.UNDECIDED, f"{text}, from {counted(found.count, 'repeat')}"
    if found.low >= least and found.high <= most:
        return ClaimOutcome.CONFIRMED, text
    is_outside = found.high < least or found.low > most
    return ClaimOutcome.REFUTED if is_outside else ClaimOutcome.UNDECIDED, text


_REPEATS, _QUICK_REPEATS = 10, 2
_USUAL_CASES = tuple(case for case in CompletionCase if case is not CompletionCase.STEADY)
_QUICK_CASES = (CompletionCase.ELEPHANT,)

Choice = TypeVar("Choice", CompletionCase, RoutingDesign)


def _chosen(kind: type[Choice], given: str | None) -> tuple[Choice, ...]:
    """Return the members in a list of names, each once. Raises click.BadParameter."""
    if given is None:
        return ()
    try:
        return tuple(dict.fromkeys(kind(word.strip()) for word in given.split(",")))
    except ValueError:
        raise click.BadParameter(f"{given!r} is not a list of {', '.join(each.value for each in kind)}.") from None


@click.command("completion")
@measure_options(has_config=False)
@click.option(
    "--designs",
    callback=lambda _context, _parameter, given: _chosen(RoutingDesign, given),
    metavar="NAME,...",
    help="ecmp: the fabric alone. doca-ar: DOCA-AR's algorithm, a probe for each new flow. blocks: xenoovs.  "
    "[default: all]",
)
@click.option(
    "--cases",
    callback=lambda _context, _parameter, given: _chosen(CompletionCase, given),
    metavar="NAME,...",
    help="alone, elephant, later, dead, reverse, steady.  [default: all but steady; quick elephant]",
)
@click.option("--flows", type=click.IntRange(1, 1000), metavar="N", help="Flows of each sender; needs --bytes.")
@click.option("--bytes", "size", type=data_size, metavar="SIZE", help="Size of each flow, such as 50kb; needs --flows.")
@repeats_option("[default: 10]")
@click.option(
    "--txrehash/--no-txrehash",
    default=False,
    show_default=True,
    help="Whether a TCP socket takes another path after a time-out, as Linux does on a host, not in a virtual machine.",
)
def completion_command(
    settings: MeasureSettings,
    *,
    designs: tuple[RoutingDesign, ...],
    cases: tuple[CompletionCase, ...],
    flows: int | None,
    size: int | None,
    repeats: int | None,
    txrehash: bool,
) -> None:
    """Measure flow completion times during an elephant, in a lab of `lab up --topology fabric`.

    Several flows begin together, and the time of the slowest is measured. All designs run in random order in one lab.
    The reference is the undisturbed time. A spine or an elephant disturbs one path, chosen at random.

    \b
    alone     no disturbance
    elephant  an elephant of 1.2 times the rate of a link, from 1.2 s before the flows
    later     the same elephant, from 0.6 s after the start of the flows
    dead      a spine drops all packets, from 0.6 s after the start of the flows
    reverse   an elephant on the way back of one path
    steady    long flows, elephants of 0, 0.5, 0.9 and 1.0 times the rate: counts moves

    \b
    Example:
      xenoovs lab up --topology fabric --lab fabric
      xenoovs measure completion --lab fabric --quick
    """
    if (flows is None) != (size is None):
        raise click.UsageError("--flows and --bytes need each other.")
    if settings.lab is None:
        raise click.UsageError(
            "Name a fabric lab with --lab; `xenoovs lab up --topology fabric --lab NAME` builds one."
        )
    chosen = cases or (_QUICK_CASES if settings.quick else _USUAL_CASES)
    one_size = (flows, size) if flows is not None and size is not None else QUICK_SIZE if settings.quick else None
    points = points_of(scenes_of(chosen, one_size), designs or tuple(RoutingDesign))
    number = repeats or (_QUICK_REPEATS if settings.quick else _REPEATS)
    with open_fabric_bed(settings.lab) as bed, prepared(bed, txrehash=txrehash):
        made = completion_experiment(bed, points, repeats=number, txrehash=txrehash, seed=settings.seed)
        recorded = settings.measure(bed, made)
    settings.show(recorded, _show)


def _show(recorded: RecordedRun) -> None:
    for scene, figures in figures_of(recorded.run.points, recorded.samples).items():
        load = f", elephant of {scene.load:g} x link" if scene.load else ""
        echo(f"\n{scene.case.value}: {scene.flows} x {scene.size / 1000:g} kB{load}")
        print_table(_HEADER, [[*_cells(each)] for each in figures], right=range(1, len(_HEADER)))
    rehash = "with" if recorded.run.options.get("txrehash") else "without"
    echo(f"\nMAX and MEDIAN in ms; hosts {rehash} txrehash, TCP CUBIC")


_HEADER = ("DESIGN", "MIN", "MEDIAN", "MAX", "MEAN", "UNDISTURBED", "ECMP/IT", "DONE", "MOVES")


def _cells(one: CompletionFigures) -> Iterable[str]:
    yield one.design
    times_s = one.times_s
    for value in (min(times_s), one.median_s, max(times_s), statistics.fmean(times_s), one.undisturbed_s):
        yield "-" if value is None else f"{value * 1000:.0f}"
    yield "-" if one.gain is None else f"{one.gain:.2f}"
    yield f"{one.completed}/{one.flows}"
    yield "-" if one.moves is None else f"{one.moves:g}"
