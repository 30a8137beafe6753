"""Asks the backends at their times, and keeps what they answered last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from xenoovs.agent.check import Check, Probe
from xenoovs.agent.clock import Clock
from xenoovs.agent.log import tell, warn
from xenoovs.agent.watch import Transition, Watch
from xenoovs.agent.workers import Workers

_LOOK_S = 0.2
"""Longest sleep: a config may bring checks that are due sooner than any known one."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The last result of a check. `transitions`: how often it changed the state; `changed_s`: when last, monotonic."""

    reason: str
    latency_s: float
    transitions: int = 0
    changed_s: float | None = None


class Asker:
    """Probes by the schedule of a `Watch`. `answers`: the last of each check.

    heard: called for each result with check, whether it was good, and the latency in seconds.
    """

    def __init__(
        self, probe: Probe, watch: Watch, clock: Clock, workers: Workers, *, changed: Callable[[], None]
    ) -> None:
        """`changed`: called when a backend has come in or gone out."""
        self.watch = watch
        self.answers: dict[Check, Answer] = {}
        self.heard: list[Callable[[Check, bool, float], None]] = []
        self._probe, self._clock, self._workers, self._changed = probe, clock, workers, changed
        self._wake, self._next_s = asyncio.Event(), 0.0

    async def forever(self) -> None:
        """Ask whoever is due, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            now_s = self._clock.now_s()
            for check in self.watch.take_due(now_s):
                self._workers.start(self._ask(check))
            due_s = self.watch.next_due_s()
            pause_s = _LOOK_S if due_s is None else min(_LOOK_S, max(0.001, due_s - now_s))
            self._next_s = now_s + pause_s
            timer = loop.call_later(pause_s, self._wake.set)
            try:
                await self._wake.wait()
            finally:
                timer.cancel()

    async def _ask(self, check: Check) -> None:
        asked_s = self._clock.now_s()
        result = await self._probe(check.target, timeout_s=check.health.timeout_ms / 1000)
        now_s = self._clock.now_s()
        changed = self.watch.record(check, ok=result.ok, asked_s=asked_s, now_s=now_s)
        due_s = self.watch.next_due_s()
        if due_s is not None and due_s < self._next_s:
            # While all were on their way nothing was due; now something is sooner than the next look.
            self._wake.set()
        before = self.answers.get(check)
        count, changed_s = (before.transitions, before.changed_s) if before is not None else (0, None)
        if changed is not None and not changed.is_again:
            count, changed_s = count + 1, now_s
        self.answers[check] = Answer(result.reason, result.latency_s, count, changed_s)
        self._forget()
        for listener in self.heard:
            listener(check, result.ok, result.latency_s)
        if changed is not None:
            _say(changed, result.reason)
            self._changed()

    def _forget(self) -> None:
        """Checks that the config no longer has."""
        if len(self.answers) > 2 * self.watch.checks:
            known = self.answers.items()
            self.answers = {check: answer for check, answer in known if self.watch.standing_of(check) is not None}


def _say(changed: Transition, reason: str) -> None:
    names = ",".join(changed.names)
    if changed.is_up:
        tell("backend up", backends=names, reason=reason)
    elif changed.is_again:
        warn("backend still down, and others may have its clients now", backends=names, reason=reason)
    else:
        kept = {"kept": ",".join(changed.kept)} if changed.kept else {}
        warn("backend down", backends=names, **kept, reason=reason)
