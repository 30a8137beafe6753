"""Scores each path of a remote by the last rounds. Pure.

A round is one probe on each path, back to back. Answer times themselves are worth nothing: all answers share the way
back and the two hosts. The difference to the least answer time of the same round, the excess, is what the way out adds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from xenoovs.model.tunnel import ANSWER_SOURCE_PORTS

Answers = Sequence[float | None]
"""The answer time of each path in one round, in microseconds; None: lost, or later than the time-out."""

WINDOW = 9
"""Rounds that a score is the median of. Up to four late or lost probes of a busy machine do not count."""

LOST_EXCESS_US = 100_000.0
"""The excess of a lost probe: more than the longest queue that a switch has for one port, 20 to 50 ms."""

FAILED_AFTER = 8
"""Lost probes in a row, while another path answers: at 1 % of random loss, once in 10**16 rounds."""

NEXT_WAY_AFTER = 4
"""Rounds in a row without any answer until answers are asked for by the next way back."""

UNKNOWN_AFTER = NEXT_WAY_AFTER * len(ANSWER_SOURCE_PORTS)
"""Rounds in a row without any answer until every way back was tried: the remote, its reflector or all ways back are
gone, and no path is to blame."""

_CALM_ROUNDS = 64
_DEVIATIONS = 8
_LEAST_MARGIN_US = 20.0
"""Some ten packets of 9 kB at 100 Gbit/s; noise of time stamps of the kernel is below it on an idle machine."""


@dataclass(frozen=True, slots=True)
class PathRecord:
    """The last rounds of one path.

    Attributes:
        excesses: In microseconds, the newest last, at most WINDOW.
        lost_in_row: Lost probes since its last answer.
        answers, lost: Counted since the start.
    """

    excesses: tuple[float, ...] = ()
    lost_in_row: int = 0
    answer_us: float | None = None
    answers: int = 0
    lost: int = 0

    @property
    def score(self) -> float | None:
        """The median of the last excesses, in microseconds; None: there were too few rounds."""
        return median(self.excesses) if len(self.excesses) == WINDOW else None

    @property
    def is_silent(self) -> bool:
        """Whether so many probes were lost that the path has failed."""
        return self.lost_in_row >= FAILED_AFTER

    @property
    def worst(self) -> float | None:
        """The largest of the last excesses, in microseconds; None: there were too few rounds."""
        return max(self.excesses) if len(self.excesses) == WINDOW else None


@dataclass(frozen=True, slots=True)
class Record:
    """The last rounds of a remote.

    Attributes:
        paths: By path.
        silent_rounds: Rounds without any answer since the last one with some.
        deviations: How much excesses changed from one calm round to the next, in microseconds, the newest last.
        rounds: Counted since the start.
    """

    paths: tuple[PathRecord, ...]
    silent_rounds: int = 0
    deviations: tuple[float, ...] = ()
    rounds: int = 0

    @classmethod
    def empty(cls, paths: int) -> Record:
        """Return the record before the first round."""
        return cls((PathRecord(),) * paths)

    @property
    def is_silent(self) -> bool:
        """Whether nothing is known of any path."""
        return self.silent_rounds >= UNKNOWN_AFTER

    @property
    def auto_margin_us(self) -> float:
        """The margin of `margin: auto`: eight times the median change of excesses while all paths were good."""
        found = median(self.deviations) if self.deviations else 0.0
        return max(_LEAST_MARGIN_US, _DEVIATIONS * found)

    def after(self, answers: Answers, *, is_calm: bool = True) -> Record:
        """Return the record after a round.

        Args:
            answers: One for each path.
            is_calm: Whether no path is congested: only then does the round count for the automatic margin.
        """
        got = [answer for answer in answers if answer is not None]
        if not got:
            # Such a round shows nothing about a single path.
            return replace(self, silent_rounds=self.silent_rounds + 1, rounds=self.rounds + 1)
        least = min(got)
        paths = tuple(_after(path, answer, least) for path, answer in zip(self.paths, answers, strict=True))
        deviations = self.deviations
        if is_calm and (change := _change(self.paths, paths)) is not None:
            deviations = (*deviations[-_CALM_ROUNDS + 1 :], change)
        return Record(paths, 0, deviations, self.rounds + 1)


def _after(path: PathRecord, answer: float | None, least: float) -> PathRecord:
    kept = path.excesses[-WINDOW + 1 :]
    if answer is None:
        excesses = (*kept, LOST_EXCESS_US)
        return PathRecord(excesses, path.lost_in_row + 1, path.answer_us, path.answers, path.lost + 1)
    return PathRecord((*kept, answer - least), 0, answer, path.answers + 1, path.lost)


def _change(before: Sequence[PathRecord], after: Sequence[PathRecord]) -> float | None:
    """Return the median change of the excess of those paths that answered twice; None: of none."""
    pairs = zip(before, after, strict=True)
    changes = [
        abs(new.excesses[-1] - old.excesses[-1])
        for old, new in pairs
        if old.excesses and not (old.lost_in_row or new.lost_in_row)
    ]
    return median(changes) if changes else None


def median(values: Iterable[float]) -> float:
    """Return the middle value, of an even number the upper one. Raises IndexError where there is none."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2]
