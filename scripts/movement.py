"""How many clients changes move, and how many blocks they leave: each `churn`, over random streams of changes.

    python scripts/movement.py [seeds]

Prints one Markdown table. Movement is relative to the least possible, blocks to those of `partition` for the same
weights; both are means over the streams.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from random import Random
from typing import NamedTuple

from xenoovs.errors import ToleranceUnreachable
from xenoovs.partition.block import MAX_WIDTH, Assignment, moved
from xenoovs.partition.change import Goal, renumbered, start, update
from xenoovs.partition.solve import partition

_CHANGES = 12
_TOLERANCES = Fraction(1, 100), Fraction(1, 20), Fraction(1, 10)
_BACKENDS = 17, 24, 32
_PRICES: dict[str, Fraction | None] = {
    "least": Fraction(0),
    "balanced": None,
    "compact": Fraction(1 << MAX_WIDTH),
}


class Change(NamedTuple):
    """`weights`: after the change; `owners`: for each backend before, its new index, None if it is gone."""

    weights: tuple[Fraction, ...]
    owners: list[int | None]


Step = Callable[[Random, tuple[Fraction, ...]], Change]


def remove(random: Random, weights: tuple[Fraction, ...]) -> Change:
    """Take one backend away."""
    gone = random.randrange(len(weights))
    owners = [None if index == gone else index - (index > gone) for index in range(len(weights))]
    return Change(weights[:gone] + weights[gone + 1 :], owners)


def add(random: Random, weights: tuple[Fraction, ...]) -> Change:
    """Add a backend with the weight of another."""
    return Change((*weights, random.choice(weights)), [*range(len(weights))])


def weigh(random: Random, weights: tuple[Fraction, ...]) -> Change:
    """Change one weight to between a half and double."""
    index = random.randrange(len(weights))
    factor = random.choice([Fraction(1, 2), Fraction(3, 4), Fraction(5, 4), Fraction(3, 2), Fraction(2)])
    changed = (*weights[:index], weights[index] * factor, *weights[index + 1 :])
    return Change(changed, [*range(len(weights))])


def mixed(random: Random, weights: tuple[Fraction, ...]) -> Change:
    """Make one of the three changes."""
    return random.choice([remove, add, weigh])(random, weights)


def like(_: Random, backends: int) -> tuple[Fraction, ...]:
    """Return equal weights."""
    return (Fraction(1),) * backends


def unlike(random: Random, backends: int) -> tuple[Fraction, ...]:
    """Return weights between 1 and 10."""
    return tuple(Fraction(random.randint(1, 10)) for _ in range(backends))


class Cost(NamedTuple):
    """`movement`, `blocks`: relative to the least possible."""

    movement: Fraction
    blocks: Fraction


def run(step: Step, weights: tuple[Fraction, ...], tolerance: Fraction, price: Fraction | None, seed: int) -> Cost:
    """Return what a stream of changes costs."""
    random = Random(seed)
    live = partition(weights, tolerance=tolerance).assignment
    units = least = Fraction(0)
    blocks: list[Fraction] = []
    for _ in range(_CHANGES):
        change = step(random, weights)
        goal = Goal(change.weights, tolerance, block_price=price)
        try:
            begin = start(live, goal, owners=change.owners)
            fewest = len(partition(change.weights, tolerance=tolerance).assignment.blocks)
        except ToleranceUnreachable:
            continue
        new = update(live, goal, owners=change.owners)
        units += share_moved(live, new, change)
        least += Fraction(begin.least_moved, 1 << begin.table.width)
        blocks.append(Fraction(len(new.blocks), fewest))
        live, weights = new, change.weights
    return Cost(units / least if least else Fraction(1), sum(blocks) / Fraction(len(blocks)))


def share_moved(old: Assignment, new: Assignment, change: Change) -> Fraction:
    """Return the share of the clients whose backend differs."""
    indices = renumbered(old, len(change.weights), change.owners)
    backends = max(indices) + 1
    before = Assignment(old.width, tuple((block, indices[owner]) for block, owner in old.blocks), backends)
    return Fraction(moved(before, new), 1 << max(before.width, new.width))


def mean(step: Step, first: Callable[[Random, int], tuple[Fraction, ...]], price: Fraction | None, seeds: int) -> Cost:
    """Return the mean over backends, tolerances and seeds."""
    costs = [
        run(step, first(Random(seed), backends), tolerance, price, seed)
        for backends, tolerance, seed in product(_BACKENDS, _TOLERANCES, range(seeds))
    ]
    return Cost(*(sum(values) / len(costs) for values in zip(*costs, strict=True)))


def main() -> None:
    """Measure and print."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    print("| Changes | " + " | ".join(f"`{churn}` moved | blocks" for churn in _PRICES) + " |")
    print("|---" * (1 + 2 * len(_PRICES)) + "|")
    streams = {"like": like, "unlike": unlike}
    steps = {"removals": remove, "new backends": add, "weights": weigh, "mixed": mixed}
    for (kind, first), (name, step) in product(streams.items(), steps.items()):
        costs = [mean(step, first, price, seeds) for price in _PRICES.values()]
        cells = " | ".join(f"{float(cost.movement):.2f} | {float(cost.blocks):.2f}" for cost in costs)
        print(f"| {name}, {kind} backends | {cells} |", flush=True)


if __name__ == "__main__":
    main()
