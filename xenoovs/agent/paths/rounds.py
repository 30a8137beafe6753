"""Rounds under way: probes that wait for their answers. Pure: time and numbers are handed in.

An answer counts if it carries what was sent, from the remote it was sent to, once, and in time. Times are those of one
clock, in microseconds: when a probe was sent, and when the kernel received its answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import IPv4Address

from xenoovs.agent.paths.frame import Answer, Token


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
    """A round of which every probe was answered, or lost.

    Attributes:
        answers: The answer time of each path in microseconds; None: lost.
    """

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
