"""What a long run of failures, recoveries and new weights costs: 16 backends, 10 bits, 10%.

The bounds are on means over the stream, relative to the least possible movement and the least possible blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import NamedTuple

from xenoovs.partition.block import Assignment, moved
from xenoovs.partition.change import Goal, failover, start, update
from xenoovs.partition.solve import block_count, feasible, partition, solve, windows

BACKENDS, WIDTH, TOLERANCE = 16, 10, Fraction(1, 10)


class Event(NamedTuple):
    weights: tuple[int, ...]
    down: frozenset[int]

    @property
    def goal(self) -> Goal:
        served = tuple(0 if index in self.down else weight for index, weight in enumerate(self.weights))
        return Goal(served, TOLERANCE, WIDTH)


def first_weights(random: Random) -> tuple[int, ...]:
    return tuple(max(1, round(1000 * max(0.05, random.gauss(4, 1)))) for _ in range(BACKENDS))


def mixed(random: Random, now: Event) -> Event:
    draw = random.random()
    if now.down and (draw < 0.4 or len(now.down) > 2):
        return now._replace(down=now.down - {random.choice(sorted(now.down))})
    if draw < 0.75:
        return now._replace(down=now.down | {random.choice(sorted(set(range(BACKENDS)) - now.down))})
    index = random.randrange(BACKENDS)
    weight = max(1, round(now.weights[index] * random.choice([0.5, 0.75, 1.25, 1.5, 2])))
    return now._replace(weights=(*now.weights[:index], weight, *now.weights[index + 1 :]))


def health(random: Random, now: Event) -> Event:
    if now.down and (random.random() < 0.5 or len(now.down) == 3):
        return now._replace(down=now.down - {random.choice(sorted(now.down))})
    return now._replace(down=now.down | {random.choice(sorted(set(range(BACKENDS)) - now.down))})


def stream(step: Callable[[Random, Event], Event], count: int) -> list[Event]:
    """The first event is the start, with all backends up; events that no table can meet are left out."""
    random = Random(1)
    events = [Event(first_weights(random), frozenset())]
    while len(events) <= count:
        event = step(random, events[-1])
        if feasible(windows(event.goal.weights, WIDTH, TOLERANCE), 1 << WIDTH):
            events.append(event)
    return events


class Cost(NamedTuple):
    moved: list[int]
    least_moved: list[int]
    blocks: list[Fraction]

    @property
    def movement(self) -> Fraction:
        return Fraction(sum(self.moved), sum(self.least_moved))

    @property
    def size(self) -> Fraction:
        return sum(self.blocks, Fraction(0)) / len(self.blocks)


def run(events: list[Event], change: Callable[[Assignment, Event], Assignment]) -> Cost:
    live = partition(events[0].weights, tolerance=TOLERANCE, width=WIDTH).assignment
    cost = Cost([], [], [])
    for event in events[1:]:
        allowed = windows(event.goal.weights, WIDTH, TOLERANCE)
        new = change(live, event)
        assert all(lo <= space <= hi for space, (lo, hi) in zip(new.spaces(), allowed, strict=True))
        cost.moved.append(moved(live, new))
        cost.least_moved.append(start(live, event.goal).least_moved)
        cost.blocks.append(Fraction(len(new.blocks), block_count(solve(allowed, 1 << WIDTH))))
        live = new
    return cost


def test_update_stays_near_the_least_of_both() -> None:
    cost = run(stream(mixed, 200), lambda live, event: update(live, event.goal))
    assert cost.movement <= Fraction(130, 100)
    assert cost.size <= Fraction(170, 100)


def test_a_price_chooses_another_point_between_movement_and_blocks() -> None:
    price = Fraction(1 << WIDTH, 4 * BACKENDS)
    cost = run(stream(mixed, 200), lambda live, event: update(live, replace(event.goal, block_price=price)))
    assert cost.movement <= Fraction(175, 100)
    assert cost.size <= Fraction(125, 100)


def test_without_a_price_of_blocks_the_least_moves_at_every_event() -> None:
    cost = run(stream(mixed, 200), lambda live, event: update(live, replace(event.goal, block_price=Fraction(0))))
    assert cost.moved == cost.least_moved


def test_failover_moves_little_more_than_what_fails_and_returns() -> None:
    events = stream(health, 120)
    plan = partition(events[0].weights, tolerance=TOLERANCE, width=WIDTH).assignment
    whole = Goal(events[0].weights, TOLERANCE, WIDTH)
    cost = run(events, lambda live, event: failover(plan, live, goal=whole, down=event.down))
    assert cost.movement <= Fraction(110, 100)
    assert cost.size <= Fraction(165, 100)


def test_a_fresh_optimum_would_move_most_clients() -> None:
    events = stream(mixed, 50)
    cost = run(events, lambda _, event: partition(event.goal.weights, tolerance=TOLERANCE, width=WIDTH).assignment)
    assert cost.movement > 4
    assert cost.size == 1
