"""Decides which blocks of a remote move to which path. Pure: time and random choices are arguments.

The constants come from measurements in a network of 40 Mbit/s links with 20 ms of buffer, and from a simulation
(docs/explanation/adaptive-routing.md). If all blocks moved to the best path, they would congest it. So a block moves to
one of two random good paths, that with fewer blocks of this sender ("power of two choices", M. Mitzenmacher, 2001).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from xenoovs.agent.paths.score import FAILED_AFTER, Record
from xenoovs.dataclass import dataclass, field, replace
from xenoovs.show.paths import MoveReason, PathState

DECIDE_S = 0.05
"""Time between two decisions: five rounds at 10 ms, half of a window."""

RISE = 2
"""Decisions in a row above the limit until a path is bad. A single one is often a burst of the senders themselves."""

_AT_ONCE = 3
"""Number of margins above the best path from which one decision is enough."""

HOLD_S = 0.3
"""A block moves at most once in this time: its effect on a queue is visible only after a window and a decision."""

RESTORE_S = 1.0
"""How long a path must be good until blocks are restored."""

MAX_RESTORE_S = 60.0
"""Limit of that time, which is doubled each time a path becomes bad soon after blocks were restored."""

PROBATION_S = 10.0
"""If a path becomes bad within this time, the restored blocks are the reason."""

_RESTORE_PARTS = 8
"""One decision restores 1/8 of the difference in blocks between the fullest path and this one."""

_BUDGET_S = 60.0
"""In this time a remote moves at most as many blocks as it has, without those of failed paths and of operators."""


class Chance(Protocol):
    """A source of random choices: random.Random."""

    def choice(self, seq: Sequence[int], /) -> int: ...
    def sample(self, population: Sequence[int], k: int) -> list[int]: ...


_UNCOUNTED = (MoveReason.FAILED, MoveReason.OPERATOR)
"""Reasons of moves that do not count for the budget."""


@dataclass(frozen=True, slots=True)
class BlockShift:
    """A move of a block (its number) from one path to another (their indices)."""

    block: int
    old: int
    new: int
    reason: MoveReason


@dataclass(frozen=True, slots=True)
class PathVerdict:
    """The verdict on one path. `is_lossy`: bad because it loses packets on the way out. `over`: decisions in a row
    above the limit. `restore_s`: how long it must be good to get blocks back. `was_out`: bad or failed before."""

    state: PathState = PathState.UNKNOWN
    is_lossy: bool = False
    over: int = 0
    good_since_s: float | None = None
    restore_s: float = RESTORE_S
    was_out: bool = False

    @property
    def is_in_use(self) -> bool:
        """Return whether the path is neither bad nor failed."""
        return self.state not in (PathState.BAD, PathState.FAILED)

    def is_waiting(self, now_s: float) -> bool:
        """Return whether the path is good, but not for long enough to get blocks back."""
        return self.good_since_s is not None and now_s < self.good_since_s + self.restore_s


@dataclass(frozen=True, slots=True)
class RemoteVerdict:
    """The verdict on a remote. `moved_s`: when each block moved last, by its number. `counted_s`: the times of moves
    that count for the budget, the newest last."""

    paths: tuple[PathVerdict, ...]
    moved_s: dict[int, float] = field(default_factory=dict)
    counted_s: tuple[float, ...] = ()

    def moves_in_budget(self, now_s: float) -> int:
        """Return the number of counted moves within the last `_BUDGET_S`."""
        return sum(now_s < at_s + _BUDGET_S for at_s in self.counted_s)

    @property
    def is_calm(self) -> bool:
        """Return whether no path is bad or failed."""
        return all(path.is_in_use for path in self.paths)


@dataclass(frozen=True, slots=True)
class Placement:
    """The path of each block of a remote: now, and at home. `usable`: for each path, whether operators allow it."""

    owners: tuple[int, ...]
    home: tuple[int, ...]
    usable: tuple[bool, ...]


def judge(verdict: RemoteVerdict, record: Record, *, margin_us: float | None, now_s: float) -> RemoteVerdict:
    """Return the new state of each path, by the last rounds. `margin_us`: how much slower than the best one a path may
    be; None if the rounds determine it (`auto`)."""
    limits, paths = _limits(record, margin_us), list[PathVerdict]()
    for index, path in enumerate(verdict.paths):
        if record.is_silent:
            paths.append(_with_state(replace(path, over=0), PathState.UNKNOWN, now_s))
            continue
        judged = replace(path, is_lossy=record.is_lossy(index, was_out=path.is_lossy))
        if record.has_failed(index):
            paths.append(_with_state(judged, PathState.FAILED, now_s))
        elif judged.is_lossy:
            paths.append(_with_state(judged, PathState.BAD, now_s))
        else:
            paths.append(_by_score(judged, record.paths[index].score, *limits, now_s))
    return replace(verdict, paths=tuple(paths))


def limit_us(record: Record, *, margin_us: float | None) -> float:
    """Return the score above which a path is congested, in microseconds. `margin_us`: as in `judge`."""
    least, margin = _limits(record, margin_us)
    return least + max(margin, least)


def _limits(record: Record, margin_us: float | None) -> tuple[float, float]:
    """Return the least score of the remote and the margin, in microseconds."""
    scores = (path.score for path in record.paths if path.lost_in_row < FAILED_AFTER)
    least = min((score for score in scores if score is not None), default=0.0)
    return least, record.auto_margin_us if margin_us is None else margin_us


def _by_score(path: PathVerdict, score: float | None, least: float, margin: float, now_s: float) -> PathVerdict:
    if score is None:
        return path
    # If all paths are slow, the limit is higher.
    step = max(margin, least)
    if score > least + step:
        path = replace(path, over=path.over + 1)
        is_bad = path.over >= RISE or score > least + _AT_ONCE * step
        return _with_state(path, PathState.BAD, now_s) if is_bad else path
    path = replace(path, over=0)
    is_good = score < least + margin / 2 or path.state is PathState.UNKNOWN
    return _with_state(path, PathState.GOOD, now_s) if is_good else path


def _with_state(path: PathVerdict, state: PathState, now_s: float) -> PathVerdict:
    if state is path.state:
        return path
    if state is PathState.GOOD:
        return replace(path, state=state, good_since_s=now_s)
    if state is PathState.UNKNOWN or not path.is_in_use:
        return replace(path, state=state, good_since_s=None)
    return replace(path, state=state, good_since_s=None, restore_s=_next_restore_s(path, now_s), was_out=True)


def _next_restore_s(path: PathVerdict, now_s: float) -> float:
    """Return how long a path that becomes bad must be good next time: twice as long if blocks were just restored."""
    since_s = path.good_since_s
    is_soon = path.was_out and since_s is not None and now_s < since_s + path.restore_s + PROBATION_S
    return min(MAX_RESTORE_S, 2 * path.restore_s) if is_soon else RESTORE_S


def shifts(
    verdict: RemoteVerdict, record: Record, placement: Placement, chance: Chance, *, now_s: float
) -> tuple[BlockShift, ...]:
    """Return the moves of this decision, at most one for each block. Without a good path only operators cause some."""
    is_well = all(path.state is PathState.GOOD for path in verdict.paths) and all(placement.usable)
    if is_well and placement.owners == placement.home:
        return ()
    table = _BlockTable(verdict, record, placement, chance, now_s)
    return tuple([*table.leave()] or table.restore())


def moved(verdict: RemoteVerdict, found: Sequence[BlockShift], now_s: float) -> RemoteVerdict:
    """Return the verdict after these moves, which hold their blocks for a while."""
    recent = {block: at_s for block, at_s in verdict.moved_s.items() if now_s < at_s + HOLD_S}
    counted = sum(shift.reason not in _UNCOUNTED for shift in found)
    return replace(
        verdict,
        moved_s=recent | dict.fromkeys((shift.block for shift in found), now_s),
        counted_s=(*(at_s for at_s in verdict.counted_s if now_s < at_s + _BUDGET_S), *[now_s] * counted),
    )


def after_shifts(owners: Sequence[int], found: Iterable[BlockShift]) -> tuple[int, ...]:
    changed = list(owners)
    for shift in found:
        changed[shift.block] = shift.new
    return tuple(changed)


class _BlockTable:
    def __init__(
        self, verdict: RemoteVerdict, record: Record, placement: Placement, chance: Chance, now_s: float
    ) -> None:
        self._verdict, self._record, self._chance, self._now_s = verdict, record, chance, now_s
        self._placement, self._owners = placement, list(placement.owners)
        self._counts = Counter(self._owners)
        self._budget = len(self._owners) - verdict.moves_in_budget(now_s)

    def leave(self) -> Iterator[BlockShift]:
        """Yield the moves of blocks from bad, failed and unusable paths."""
        states = zip(self._verdict.paths, self._placement.usable, strict=True)
        for path, (found, is_usable) in enumerate(states):
            mine = self._blocks_of(path)
            if not mine:
                continue
            if not is_usable:
                yield from self._spread(mine, MoveReason.OPERATOR)
            elif found.state is PathState.FAILED:
                yield from self._spread(mine, MoveReason.FAILED)
            elif found.state is PathState.BAD:
                free = self._unheld(mine)
                leaving = self._chance.sample(free, min(len(free), (len(mine) + 1) // 2, max(0, self._budget)))
                self._budget -= len(leaving)
                yield from self._spread(leaving, MoveReason.LOSSY if found.is_lossy else MoveReason.CONGESTED)

    def restore(self) -> Iterator[BlockShift]:
        """Yield the moves of blocks back to paths that are good for long enough, one path after the other."""
        for path, found in enumerate(self._verdict.paths):
            if not self._placement.usable[path] or found.state is not PathState.GOOD or found.is_waiting(self._now_s):
                continue
            most = max(self._counts.values(), default=0)
            for _ in range(max(1, (most - self._counts[path]) // _RESTORE_PARTS)):
                if self._budget <= 0 or (shift := self._restored(path)) is None:
                    break
                self._budget -= 1
                yield shift

    def _restored(self, path: int) -> BlockShift | None:
        """Return the move of a block from the fullest path to one with fewer than at home; if possible of one of its
        own."""
        donor, most = max(self._counts.items(), key=lambda pair: (pair[1], -pair[0]))
        if self._counts[path] >= self._placement.home.count(path) or most - self._counts[path] < 2:
            return None
        free = self._unheld(self._blocks_of(donor))
        own = [block for block in free if self._placement.home[block] == path]
        return self._shift(self._chance.choice(own or free), path, MoveReason.RESTORED) if free else None

    def _spread(self, blocks: Sequence[int], reason: MoveReason) -> Iterator[BlockShift]:
        """Yield the moves of blocks, each to the emptier of two random good paths; none without a good path."""
        targets = self._targets(is_forced=reason is MoveReason.OPERATOR)
        for block in blocks:
            others = [path for path in targets if path != self._owners[block]]
            if not others:
                return
            pair = self._chance.sample(others, min(2, len(others)))
            yield self._shift(block, min(pair, key=self._fullness), reason)

    def _targets(self, *, is_forced: bool) -> list[int]:
        """Return the paths that may get blocks: good ones, if possible those that do not wait for their own. If
        `is_forced` and no path is good, return all that operators allow."""
        usable = [path for path, is_usable in enumerate(self._placement.usable) if is_usable]
        good = [path for path in usable if self._verdict.paths[path].state is PathState.GOOD]
        settled = [path for path in good if not self._verdict.paths[path].is_waiting(self._now_s)]
        return settled or good or (usable if is_forced else [])

    def _fullness(self, path: int) -> tuple[int, float, int]:
        score = self._record.paths[path].score
        return self._counts[path], 0.0 if score is None else score, path

    def _blocks_of(self, path: int) -> list[int]:
        return [block for block, owner in enumerate(self._owners) if owner == path]

    def _unheld(self, blocks: Sequence[int]) -> list[int]:
        moved_s = self._verdict.moved_s
        return [block for block in blocks if block not in moved_s or self._now_s >= moved_s[block] + HOLD_S]

    def _shift(self, block: int, new: int, reason: MoveReason) -> BlockShift:
        old, self._owners[block] = self._owners[block], new
        self._counts[old] -= 1
        self._counts[new] += 1
        return BlockShift(block, old, new, reason)
