"""Completes the drains of a change: plans and applies again at each step, until no drain is left."""

from __future__ import annotations

import time

from xenoovs.compile.drains import Draining
from xenoovs.display import duration
from xenoovs.engine.change import Change, PlanOptions
from xenoovs.engine.engine import Engine
from xenoovs.errors import XenoovsError
from xenoovs.model.balancer import Balancer
from xenoovs.terminal.output import echo, echo_over

_PATIENCE_S = 60.0
"""How long a round may fail with errors that pass: a busy Open vSwitch answers later, and nothing is lost meanwhile."""


class DrainRounds:
    """A change and the rounds that its drains need after it."""

    def __init__(self, engine: Engine, balancer: Balancer, options: PlanOptions, change: Change) -> None:
        self._engine, self._balancer, self._options, self._change = engine, balancer, options, change
        self._failed_s: float | None = None

    @property
    def drains(self) -> tuple[Draining, ...]:
        return self._change.drains

    @property
    def next_s(self) -> float | None:
        """Seconds until the next round; None: no drain is left."""
        return (self._change.next_s or 1.0) if self.drains else None

    def run_next(self) -> None:
        """Plan again and apply the difference. An error that passes is ignored for a minute.

        Raises as Engine.plan and Engine.apply.
        """
        try:
            self._run_next()
            self._failed_s = None
        except XenoovsError as error:
            now_s = time.monotonic()
            self._failed_s = now_s if self._failed_s is None else self._failed_s
            if not error.retryable or now_s - self._failed_s > _PATIENCE_S:
                raise

    def _run_next(self) -> None:
        self._engine.count_drains(now_s=time.monotonic())
        # Another process may change other services meanwhile, so the flows are read again.
        self._engine.forget()
        self._change = self._engine.plan(self._balancer, self._options, now_s=time.monotonic())
        # Also where nothing differs: the engine counts the packets of drains that it has applied.
        self._engine.apply(self._change)

    def wait(self) -> float:
        """Run all rounds, with the progress on the terminal. Returns the seconds that it took."""
        begun_s = time.monotonic()
        try:
            while (next_s := self.next_s) is not None:
                echo_over(f"waiting for {'; '.join(map(_progress, self.drains))}")
                time.sleep(next_s)
                self.run_next()
        except KeyboardInterrupt:
            echo("\ninterrupted: open connections stay; `xenoovs apply` continues the drain", err=True)
            raise
        echo_over("")
        return time.monotonic() - begun_s


def _progress(drain: Draining) -> str:
    if drain.is_settling:
        return f"{drain.service}: Open vSwitch revalidates its megaflows"
    return f"{drain.service}: {duration(drain.left_s)} left, {drain.connections} new connections"
