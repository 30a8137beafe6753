"""Random streams of changes, each change carried on from the blocks before it, and what they cost.

Movement is counted against the least that any assignment within the tolerance moves, blocks against the fewest that the
same weights need when nothing is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from random import Random
from typing import NamedTuple

from xenoovs.errors import ToleranceUnreachable
from xenoovs.partition.block import Assignment, moved
from xenoovs.partition.change import Goal, failover, start, update
from xenoovs.partition.solve import Weight, partition


class Step(Enum):
    """What changes from one assignment to the next."""

    REMOVAL = "removals"
    ADDITION = "additions"
    WEIGHT = "weights"
    DEATH = "deaths"
    RETURN = "returns"


CONFIG = (Step.REMOVAL, Step.ADDITION, Step.WEIGHT)


@dataclass(frozen=True, slots=True)
class Kind:
    """Streams of one kind: between `fewest` and `most` backends with random weights from 1 to `heaviest`."""

    name: str
    fewest: int
    most: int
    heaviest: int
    steps: tuple[Step, ...] = CONFIG


class Event(NamedTuple):
    """The weights after a step, and the new index of each backend before it."""

    step: Step
    weights: tuple[int, ...]
    owners: tuple[int | None, ...]


@dataclass(slots=True)
class Cost:
    """Sums over streams, as parts of the address space; `blocks`: after each event, in multiples of the fewest."""

    moved: dict[Step, Fraction] = field(default_factory=dict)
    least: dict[Step, Fraction] = field(default_factory=dict)
    blocks: list[Fraction] = field(default_factory=list)

    def add(self, step: Step, went: Fraction, least: Fraction, blocks: Fraction) -> None:
        self.moved[step] = self.moved.get(step, Fraction(0)) + went
        self.least[step] = self.least.get(step, Fraction(0)) + least
        self.blocks.append(blocks)

    def movement(self, *steps: Step) -> Fraction:
        """Return moved / least over the events of these steps, or of all."""
        chosen = steps or tuple(self.moved)
        least = sum((self.least[step] for step in chosen), Fraction(0))
        return sum((self.moved[step] for step in chosen), Fraction(0)) / least

    @property
    def mean_blocks(self) -> Fraction:
        return sum(self.blocks, Fraction(0)) / len(self.blocks)


Change = Callable[[Assignment, Goal, Sequence[int | None]], Assignment]


def by_update(old: Assignment, goal: Goal, owners: Sequence[int | None]) -> Assignment:
    """Change the blocks as the default does."""
    return update(old, goal, owners=owners)


def changes(kind: Kind, tolerance: Fraction, *, seed: int, events: int) -> Iterator[Event]:
    """Yield the start, with step ADDITION and no owners, and then `events` events that the tolerance allows.

    A stream with removals and without additions starts with the most backends.
    """
    random = Random(seed)
    only_fewer = Step.REMOVAL in kind.steps and Step.ADDITION not in kind.steps
    first = kind.most if only_fewer else random.randint(kind.fewest, kind.most)
    weights = tuple(random.randint(1, kind.heaviest) for _ in range(first))
    yield Event(Step.ADDITION, weights, ())
    left = events
    while left:
        event = _step(random, kind, weights)
        if event is not None and _blocks(event.weights, tolerance) is not None:
            yield event
            weights, left = event.weights, left - 1


def _step(random: Random, kind: Kind, weights: tuple[int, ...]) -> Event | None:
    """Return one random change; None: it would change nothing, or leave too few or too many backends."""
    step, index = random.choice(kind.steps), random.randrange(len(weights))
    weight = random.randint(1, kind.heaviest)
    every = tuple(range(len(weights)))
    match step:
        case Step.REMOVAL if len(weights) > kind.fewest:
            owners = (*every[:index], None, *every[index:-1])
            return Event(step, weights[:index] + weights[index + 1 :], owners)
        case Step.ADDITION if len(weights) < kind.most:
            return Event(step, (*weights, weight), every)
        case Step.WEIGHT if weight != weights[index]:
            return Event(step, (*weights[:index], weight, *weights[index + 1 :]), every)
    return None


def _blocks(weights: Sequence[Weight], tolerance: Fraction) -> Assignment | None:
    try:
        return partition(weights, tolerance=tolerance).assignment
    except ToleranceUnreachable:
        return None


def measure(kind: Kind, tolerance: Fraction, *, seeds: Sequence[int], events: int, change: Change = by_update) -> Cost:
    """Run one stream for each seed; blocks stay where they meet the weights, as `xenoovs plan` has it."""
    cost = Cost()
    for seed in seeds:
        stream = changes(kind, tolerance, seed=seed, events=events)
        live = partition(next(stream).weights, tolerance=tolerance).assignment
        for event in stream:
            goal = Goal(event.weights, tolerance)
            begin = start(live, goal, owners=event.owners)
            is_kept = not begin.least_moved
            new = begin.table.assignment(len(event.weights)) if is_kept else change(live, goal, event.owners)
            went = Fraction(moved(_renamed(live, event), new), 1 << max(live.width, new.width))
            least = Fraction(begin.least_moved, 1 << begin.table.width)
            cost.add(event.step, went, least, _ratio(new, event.weights, tolerance))
            live = _narrow(new)
    return cost


def _renamed(old: Assignment, event: Event) -> Assignment:
    """Return the old blocks under new indices; a backend that is gone gets one of its own."""
    count = len(event.weights)
    names = [count + index if owner is None else owner for index, owner in enumerate(event.owners)]
    return Assignment(old.width, tuple((block, names[owner]) for block, owner in old.blocks), count + old.backends)


def _ratio(blocks: Assignment, weights: Sequence[Weight], tolerance: Fraction) -> Fraction:
    return Fraction(len(blocks.blocks), len(partition(weights, tolerance=tolerance).assignment.blocks))


def _narrow(blocks: Assignment) -> Assignment:
    """Return the blocks as they are read back: no wider than the deepest."""
    return Assignment(max(block.depth for block, _ in blocks.blocks), blocks.blocks, blocks.backends)


def measure_health(kind: Kind, tolerance: Fraction, *, seeds: Sequence[int], events: int) -> Cost:
    """Run streams of deaths and returns; at most three backends are down at once. All are back at the end.

    Raises RuntimeError if the blocks of the beginning are not.
    """
    cost = Cost()
    for seed in seeds:
        random = Random(seed)
        weights = next(changes(kind, tolerance, seed=seed, events=0)).weights
        home = active = _narrow(partition(weights, tolerance=tolerance).assignment)
        down: frozenset[int] = frozenset()
        for _ in range(events):
            step, down = _next_health(random, len(weights), down)
            active = _health_event(cost, step, home, active, Goal(weights, tolerance), down)
        if failover(home, active, goal=Goal(weights, tolerance), down=()) != home:
            raise RuntimeError(f"seed {seed}: the blocks of the beginning are not given back")
    return cost


def _next_health(random: Random, count: int, down: frozenset[int]) -> tuple[Step, frozenset[int]]:
    if down and (random.random() < 0.5 or len(down) >= min(3, count - 1)):
        return Step.RETURN, down - {random.choice(sorted(down))}
    return Step.DEATH, down | {random.choice(sorted(set(range(count)) - down))}


def _health_event(
    cost: Cost, step: Step, home: Assignment, active: Assignment, goal: Goal, down: frozenset[int]
) -> Assignment:
    new = failover(home, active, goal=goal, down=down)
    weights = tuple(0 if index in down else weight for index, weight in enumerate(goal.weights))
    if _blocks(weights, goal.tolerance) is not None:
        begin = start(_at_width(active, new.width), Goal(weights, goal.tolerance))
        went = Fraction(moved(active, new), 1 << max(active.width, new.width))
        least = Fraction(begin.least_moved, 1 << begin.table.width)
        cost.add(step, went, least, _ratio(new, weights, goal.tolerance))
    return _narrow(new)


def _at_width(blocks: Assignment, width: int) -> Assignment:
    return Assignment(max(width, blocks.width), blocks.blocks, blocks.backends)
