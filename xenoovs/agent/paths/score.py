"""Rounds of probes, and the score of each path of a remote by the last of them. Pure: time is handed in.

A round is one probe on each path, back to back. Answer times themselves are worth nothing: all answers share the way
back and the two hosts. The difference to the least answer time of the same round, the excess, is what the way out adds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from ipaddress import IPv4Address

from xenoovs.agent.paths.frame import Answer, Token
from xenoovs.model.tunnel import ANSWER_SOURCE_PORTS
from xenoovs.records import dataclass, field, replace

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
        silent_rounds: Rounds without any answer since the last one with some.
        deviations: How much excesses changed from one calm round to the next, in microseconds, the newest last.
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

        `is_calm`: whether no path is congested: only then does the round count for the automatic margin.
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


# Rounds under way: probes that wait for their answers. An answer counts if it carries what was sent, from the remote it
# was sent to, once, and in time. Times are those of one clock, in microseconds.


@dataclass(slots=True)
class _Round:
    """A round under way. `missing`: how many probes wait; `probes`: the sequence numbers of all."""

    tos: int
    ends_us: float
    answers: list[float | None]
    missing: int
    probes: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Waiting:
    """A probe under way. `path`: its index."""

    round: _Round
    path: int
    nonce: int
    sent_us: float


@dataclass(frozen=True, slots=True)
class FinishedRound:
    """A round of which every probe was answered after so many microseconds, or lost (None)."""

    tos: int
    answers: tuple[float | None, ...]


class Rounds:
    """The rounds of one remote.

    Attributes:
        forged: Answers that do not carry what was sent, or come from elsewhere.
        late: Answers to probes that no longer wait: repeated, or after the time-out.
        tos: The TOS of the last answer, and that of its probe; None: there was none.
    """

    def __init__(self, number: int, source: IPv4Address, *, timeout_us: float) -> None:
        """Begin without rounds. `number`: of the remote, 32 bits; `source`: the address that answers come from."""
        self.forged = self.late = 0
        self.tos: tuple[int, int] | None = None
        self._number, self._source, self._timeout_us = number, source, timeout_us
        self._waiting: dict[int, _Waiting] = {}
        self._open: list[_Round] = []
        self._sequence = 0

    def begin(self, paths: int, *, tos: int, now_us: float) -> None:
        """Begin a round of so many probes with this TOS, each of which `probe` has to name."""
        self._open.append(_Round(tos, now_us + self._timeout_us, [None] * paths, paths))

    def probe(self, path: int, *, nonce: int) -> Token:
        """Return what the probe of a path carries in the newest round. It waits for its answer from `sent` on."""
        self._sequence = (self._sequence + 1) & 0xFFFFFFFF
        newest = self._open[-1]
        newest.probes.append(self._sequence)
        self._waiting[self._sequence] = _Waiting(newest, path, nonce, newest.ends_us)
        return Token(self._number, self._sequence, nonce)

    def abandon(self) -> None:
        """End the newest round, of which some probe could not be sent: it proves nothing about any path."""
        for sequence in self._open.pop().probes:
            self._waiting.pop(sequence, None)

    def sent(self, token: Token, *, sent_us: float) -> None:
        """Note when a probe was sent, before its answer is read."""
        waiting = self._waiting[token.sequence]
        waiting.sent_us = sent_us
        waiting.round.ends_us = max(waiting.round.ends_us, sent_us + self._timeout_us)

    def answered(self, answer: Answer, *, received_us: float) -> bool:
        """Count an answer, if it is one to a probe that waits. Return whether it is."""
        waiting = self._waiting.get(answer.token.sequence)
        if waiting is None and answer.token.sequence <= self._sequence:
            self.late += 1
            return False
        if waiting is None or waiting.nonce != answer.token.nonce or answer.source != self._source:
            self.forged += 1
            return False
        del self._waiting[answer.token.sequence]
        self.tos = answer.tos, waiting.round.tos
        took_us = received_us - waiting.sent_us
        waiting.round.missing -= 1
        # Below 0 a clock was set meanwhile.
        if 0 <= took_us <= self._timeout_us:
            waiting.round.answers[waiting.path] = took_us
        return True

    def finished(self, *, now_us: float) -> Iterator[FinishedRound]:
        """Yield, in their order, the rounds of which all probes are answered or too late."""
        while self._open and (not self._open[0].missing or now_us > self._open[0].ends_us):
            done = self._open.pop(0)
            for sequence in done.probes:
                self._waiting.pop(sequence, None)
            yield FinishedRound(done.tos, tuple(done.answers))
