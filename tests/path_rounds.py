"""Recorded rounds for the tests of adaptive routing: answers in, moves of blocks out, without a clock or a network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

from xenoovs.agent.paths.decide import (
    DECIDE_S,
    BlockShift,
    PathVerdict,
    Placement,
    RemoteVerdict,
    judge,
    moved,
    shifts,
)
from xenoovs.agent.paths.score import PathRecord, Record, WaysBack

INTERVAL_S = 0.01
MARGIN_US = 5_000.0

AnswersAt = Callable[[float], Sequence[float | None]]
"""The answers of the round at a time."""


class Sender:
    """One sender's blocks to one remote. Time goes on by `run`."""

    def __init__(self, *, paths: int = 4, blocks: int = 64, seed: int = 1, margin_us: float | None = MARGIN_US) -> None:
        self.now_s, self.margin_us, self.chance = 0.0, margin_us, Random(seed)
        self.record, self.verdict = Record((PathRecord(),) * paths), RemoteVerdict((PathVerdict(),) * paths)
        home = tuple(block % paths for block in range(blocks))
        self.placement = Placement(home, home, (True,) * paths)
        self.shifts: list[tuple[float, BlockShift]] = []
        self.ways = WaysBack(4)

    @property
    def counts(self) -> list[int]:
        """How many blocks each path has."""
        counts = Counter(self.placement.owners)
        return [counts[path] for path in range(len(self.record.paths))]

    def run(self, seconds: float, answers: AnswersAt) -> Sender:
        """Probe and decide for so long."""
        steps = round(DECIDE_S / INTERVAL_S)
        for number in range(round(seconds / INTERVAL_S)):
            self.now_s += INTERVAL_S
            self.record = self.record.after(answers(self.now_s), is_calm=self.verdict.is_calm)
            self.ways.count_round(self.record)
            if number % steps == steps - 1:
                self.decide()
        return self

    def decide(self) -> tuple[BlockShift, ...]:
        """Make one decision."""
        self.verdict = judge(self.verdict, self.record, margin_us=self.margin_us, now_s=self.now_s)
        found = shifts(self.verdict, self.record, self.placement, self.chance, now_s=self.now_s)
        self.verdict = moved(self.verdict, found, self.now_s)
        owners = list(self.placement.owners)
        for shift in found:
            owners[shift.block] = shift.new
        self.placement = Placement(tuple(owners), self.placement.home, self.placement.usable)
        self.shifts += ((self.now_s, shift) for shift in found)
        return found


def always(*answers: float | None) -> AnswersAt:
    """Return the same answers in each round."""
    return lambda _now_s: answers
