"""The experiment on flow completion times: flows begin together, and the time until the last one ends is measured.

An elephant on one path, or a spine that drops every packet, disturbs the fabric. The designs are measured in random
order in one lab: the times of ECMP depend on the time-outs of TCP, so figures of different labs cannot be compared. The
reference is the undisturbed time, that of ECMP without an elephant.

The scenes are those of DOCA-AR's README (10 and 50 flows, with and without an elephant) and the cases after them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from functools import partial

from xenoovs.dataclass import dataclass
from xenoovs.measure.fabric_bed import FabricBed, FlowGroup, dying_spine, elephant
from xenoovs.measure.routing_designs import RoutingDesign, running_design
from xenoovs.measure.samples import Plain, Point, Value
from xenoovs.measure.schedule import Basis, Experiment, Measurement

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
            FlowGroup(bed, flows=scene.flows, size=scene.size, limit_s=limit_s) as flows,
            _disturbance(bed, scene, path) as disturb,
        ):
            running.begin()
            disturbed_s, start_s = _times(scene)
            flows.begin_at(start_s)
            disturb.at(disturbed_s)

            def meanwhile() -> None:
                disturb.tick()
                running.watch()

            ended = flows.wait(meanwhile)
            counted = running.values(disturbed_s)
        values: dict[str, Value] = {
            "completion_s": ended.completion_s,
            "flow_s": list(ended.flow_s),
            "completed": len(ended.flow_s),
            "flows": scene.flows * len(bed.senders),
            "disturbed_path": path,
            **counted,
        }
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


@dataclass(slots=True)
class _Disturbance:
    """A disturbance at a set time. `schedule`: Sets the start of an elephant. `act`: Is called at that time."""

    schedule: Callable[[float], None] | None = None
    act: Callable[[], None] | None = None
    at_s: float = 0.0

    def at(self, at_s: float) -> None:
        self.at_s = at_s
        if self.schedule is not None:
            self.schedule(at_s)

    def tick(self) -> None:
        if self.act is not None and time.monotonic() >= self.at_s:
            self.act()
            self.act = None


@contextmanager
def _disturbance(bed: FabricBed, scene: Scene, path: int) -> Iterator[_Disturbance]:
    if scene.case is CompletionCase.DEAD:
        with dying_spine(bed, path) as die:
            yield _Disturbance(act=die)
    elif scene.load:
        with elephant(bed, path, load=scene.load, is_reverse=scene.case is CompletionCase.REVERSE) as schedule:
            yield _Disturbance(schedule)
    else:
        yield _Disturbance()
