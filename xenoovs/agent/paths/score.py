"""Rounds of probes, and the score of each path of a remote by the last rounds. Pure: time is an argument.

A round is one probe on each path, back to back. An answer time alone shows nothing, because all answers share the way
back and the two hosts. Its difference to the least answer time of the round, the *excess*, is the delay that the way
out adds. Likewise a path is to blame for lost answers only if random loss on the shared way back cannot explain them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address
from itertools import accumulate
from math import lgamma, log
from statistics import median_high

from xenoovs.agent.paths.frame import Answer, Token
from xenoovs.dataclass import dataclass, field, replace
from xenoovs.model.tunnel import ANSWER_SOURCE_PORTS

Answers = Sequence[float | None]
"""The answer time of each path in one round, in microseconds; None if lost, or later than the time-out."""

WINDOW = 9
"""A score is the median of this many answers, so that up to four late ones of a busy machine do not count."""

FAILED_AFTER = 8
"""Least number of lost probes in a row of a failed path. It is enough if three other paths answer."""

LOSS_WINDOW = 256
"""Rounds in which lost probes are counted. 10 % of loss on one of four paths is certain after half of them."""

_CERTAIN = log(1e-7)
"""Logarithm of the probability of chance below which a path is lossy: one error in hours, with 400 probes a second."""

_CLEARED = log(1e-3)
"""The same for a path that is lossy already: it stays so below this probability, so that it does not flap."""

_LOSSY_ROUNDS, _LOSSY_PART = 64, 1 / 16
"""If every path loses this part in this number of rounds, the next way back is tried."""

_WAY_STAYS = 1024
"""Number of rounds for which the best way back stays if all ways back lose answers."""

NEXT_WAY_AFTER = 4
"""Rounds in a row without any answer until the next way back is tried."""

UNKNOWN_AFTER = NEXT_WAY_AFTER * len(ANSWER_SOURCE_PORTS)
"""Rounds in a row without any answer until every way back was tried. No path is to blame then, but the remote, its
reflector, or all ways back."""

_CALM_ROUNDS = 64
_DEVIATIONS = 8
_LEAST_MARGIN_US = 20.0
"""The time of some ten packets of 9 kB at 100 Gbit/s, above the noise of kernel time stamps on an idle machine."""


@dataclass(frozen=True, slots=True)
class PathRecord:
    """The last rounds of one path. `excesses`: in microseconds, the newest last, at most WINDOW. `losses`: a bit for
    each of the last LOSS_WINDOW rounds, 1 for a lost probe, the newest lowest. `answers`, `lost`: counted since the
    start."""

    excesses: tuple[float, ...] = ()
    losses: int = 0
    answer_us: float | None = None
    answers: int = 0
    lost: int = 0

    @property
    def score(self) -> float | None:
        """Return the median of the last excesses, in microseconds; None after too few rounds."""
        return median_high(self.excesses) if len(self.excesses) == WINDOW else None

    @property
    def lost_in_row(self) -> int:
        """Return the number of lost probes since the last answer, LOSS_WINDOW at most."""
        return (~self.losses & self.losses + 1).bit_length() - 1

    def lost_of(self, rounds: int) -> int:
        """Return the number of lost probes in the last `rounds`."""
        return (self.losses & (1 << rounds) - 1).bit_count()

    @property
    def worst(self) -> float | None:
        """Return the largest of the last excesses, in microseconds; None after too few rounds."""
        return max(self.excesses) if len(self.excesses) == WINDOW else None


@dataclass(frozen=True, slots=True)
class Record:
    """The last rounds of a remote. `deviations`: of excesses between calm rounds, in microseconds, the newest last."""

    paths: tuple[PathRecord, ...]
    silent_rounds: int = 0
    deviations: tuple[float, ...] = ()
    rounds: int = 0

    @property
    def is_silent(self) -> bool:
        """Return whether the state of all paths is unknown."""
        return self.silent_rounds >= UNKNOWN_AFTER

    def has_failed(self, path: int) -> bool:
        """Return whether a path (index) has lost more probes in a row than loss on the way back can explain."""
        in_row = self.paths[path].lost_in_row
        return in_row >= FAILED_AFTER and self._chance(path, in_row) < _CERTAIN

    def is_lossy(self, path: int, *, was_out: bool) -> bool:
        """Return whether a path (index) loses more than the way back. `was_out`: whether it is lossy already."""
        return self._chance(path, min(self.rounds, LOSS_WINDOW)) < (_CLEARED if was_out else _CERTAIN)

    def loss(self, path: int) -> float:
        """Return the part of lost probes of a path (index) in the last rounds, 0..1."""
        rounds = min(self.rounds, LOSS_WINDOW)
        return self.paths[path].lost_of(rounds) / rounds if rounds else 0.0

    def shared_loss(self, rounds: int) -> float:
        """Return the part of the probes that every path has lost in the last rounds, 0..1: the loss of the way back."""
        return min((path.lost_of(rounds) / rounds for path in self.paths), default=0.0)

    def _chance(self, path: int, rounds: int) -> float:
        """Return the logarithm of the probability that a path loses so much more than others by chance.

        It is the probability of both counts under the one rate of loss that fits them best, against the best other
        path, the best two, and so on, because some of them may be dead too. The least one counts.
        """
        lost = self.paths[path].lost_of(rounds)
        others = sorted(each.lost_of(rounds) for index, each in enumerate(self.paths) if index != path)
        least = 0.0
        for number, theirs in enumerate(accumulate(others), start=1):
            if lost * number <= theirs:
                break
            all_lost, probes = lost + theirs, rounds * (number + 1)
            rate = all_lost / probes
            ways = _log_ways(rounds, lost) + _log_ways(rounds * number, theirs)
            rest = (probes - all_lost) * log(1 - rate) if rate < 1 else 0.0
            least = min(least, ways + all_lost * log(rate) + rest)
        return least

    @property
    def auto_margin_us(self) -> float:
        """Return the margin of `margin: auto`: eight times the median change of excesses while all paths were good."""
        found = median_high(self.deviations) if self.deviations else 0.0
        return max(_LEAST_MARGIN_US, _DEVIATIONS * found)

    def after(self, answers: Answers, *, is_calm: bool = True) -> Record:
        """Return the record after a round. `is_calm`: no path is bad, so that it counts for the automatic margin."""
        got = [answer for answer in answers if answer is not None]
        if not got:
            silent = self.silent_rounds + 1
            paths = tuple(replace(path, losses=_losses(path, is_lost=True)) for path in self.paths)
            if silent % NEXT_WAY_AFTER == 0:
                # The way back was dead, so that these rounds show nothing about a single path.
                paths = tuple(replace(path, losses=path.losses >> NEXT_WAY_AFTER) for path in paths)
            return replace(self, paths=paths, silent_rounds=silent, rounds=self.rounds + 1)
        least = min(got)
        paths = tuple(_after(path, answer, least) for path, answer in zip(self.paths, answers, strict=True))
        deviations = self.deviations
        if is_calm and (change := _change(self.paths, paths)) is not None:
            deviations = (*deviations[-_CALM_ROUNDS + 1 :], change)
        return Record(paths, 0, deviations, self.rounds + 1)


def _log_ways(of: int, chosen: int) -> float:
    """Return the logarithm of the binomial coefficient."""
    return lgamma(of + 1) - lgamma(chosen + 1) - lgamma(of - chosen + 1)


def _after(path: PathRecord, answer: float | None, least: float) -> PathRecord:
    losses = _losses(path, is_lost=answer is None)
    if answer is None:
        return replace(path, losses=losses, lost=path.lost + 1)
    excesses = (*path.excesses[-WINDOW + 1 :], answer - least)
    return PathRecord(excesses, losses, answer, path.answers + 1, path.lost)


def _losses(path: PathRecord, *, is_lost: bool) -> int:
    return (path.losses << 1 | is_lost) & (1 << LOSS_WINDOW) - 1


def _change(before: Sequence[PathRecord], after: Sequence[PathRecord]) -> float | None:
    """Return the median change of the excess of the paths that answered in both rounds; None if there are none."""
    pairs = zip(before, after, strict=True)
    changes = [
        abs(new.excesses[-1] - old.excesses[-1])
        for old, new in pairs
        if old.excesses and not (old.losses & 1 or new.losses & 1)
    ]
    return median_high(changes) if changes else None


class WaysBack:
    """Selects the way back of answers: the next one if answers of all paths are lost. `number`: from 0."""

    def __init__(self, count: int) -> None:
        self.number = self._rounds = 0
        self._count, self._losses = count, dict[int, float]()

    def count_round(self, record: Record) -> None:
        """Select the way after a round by the way in use. `record`: with this round."""
        self._rounds += 1
        if record.silent_rounds:
            if record.silent_rounds % NEXT_WAY_AFTER == 0:
                self._take((self.number + 1) % self._count)
            return
        if self._rounds < _LOSSY_ROUNDS or (loss := record.shared_loss(_LOSSY_ROUNDS)) < _LOSSY_PART:
            return
        self._losses[self.number] = loss
        untried = [way for way in range(self._count) if way not in self._losses]
        if untried:
            self._take(untried[0])
            return
        self._take(min(self._losses, key=lambda way: self._losses[way]))
        self._rounds = -_WAY_STAYS
        self._losses.clear()

    def _take(self, way: int) -> None:
        self.number, self._rounds = way, 0


# Open rounds: probes that wait for their answers. An answer counts once, if it has the token of the probe, is from its
# remote, and is in time. All times are of one clock, in microseconds.


@dataclass(slots=True)
class _Round:
    """An open round. `waiting`: path (index), nonce and time of each probe without an answer, by sequence number."""

    tos: int
    ends_us: float
    answers: list[float | None]
    waiting: dict[int, tuple[int, int, float]] = field(default_factory=dict)


class Rounds:
    """The open rounds of one remote. `forged`: number of answers with another token than was sent, or from another
    address. `tos`: the TOS of the last answer, and of its probe; None if there was none."""

    def __init__(self, number: int, source: IPv4Address, *, timeout_us: float) -> None:
        """Begin without rounds. `number`: of the remote, 32 bits. `source`: the source address of answers."""
        self.forged = 0
        self.tos: tuple[int, int] | None = None
        self._number, self._source, self._timeout_us = number, source, timeout_us
        self._open: list[_Round] = []
        self._sequence = 0

    def begin(self, paths: int, *, tos: int, now_us: float) -> None:
        """Begin a round of a probe for each of so many paths, with this TOS."""
        self._open.append(_Round(tos, now_us + self._timeout_us, [None] * paths))

    def token(self, *, nonce: int) -> Token:
        """Return the token for the next probe. Call `sent` when it was sent."""
        self._sequence = (self._sequence + 1) & 0xFFFFFFFF
        return Token(self._number, self._sequence, nonce)

    def sent(self, token: Token, path: int, *, sent_us: float) -> None:
        """Record when the probe of a path (index) of the newest round was sent. Call it before its answer is read."""
        newest = self._open[-1]
        newest.waiting[token.sequence] = path, token.nonce, sent_us
        newest.ends_us = max(newest.ends_us, sent_us + self._timeout_us)

    def abandon(self) -> None:
        """Drop the newest round, because a probe could not be sent: it shows nothing about any path."""
        self._open.pop()

    def answered(self, answer: Answer, *, received_us: float) -> bool:
        """Count an answer to a waiting probe. Return whether it is one."""
        sequence = answer.token.sequence
        asked = next((each for each in self._open if sequence in each.waiting), None)
        if asked is None and sequence <= self._sequence:
            # It is repeated, or after the time-out.
            return False
        if asked is None or asked.waiting[sequence][1] != answer.token.nonce or answer.source != self._source:
            self.forged += 1
            return False
        path, _, sent_us = asked.waiting.pop(sequence)
        self.tos = answer.tos, asked.tos
        took_us = received_us - sent_us
        # It is below 0 if the clock was set back.
        if 0 <= took_us <= self._timeout_us:
            asked.answers[path] = took_us
        return True

    def finished(self, *, now_us: float) -> Iterator[tuple[int, Answers]]:
        """Remove the rounds whose probes are all answered or too late, and yield their TOS and answers in order."""
        # More than the time-out is left if the clock was set back. Later rounds must not wait for that time.
        while self._open and not (self._open[0].waiting and 0 <= self._open[0].ends_us - now_us <= self._timeout_us):
            done = self._open.pop(0)
            yield done.tos, tuple(done.answers)
