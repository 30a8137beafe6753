"""The deadline of a probe, on the clock of the event loop, which forgives the loop its own lateness.

When the loop comes late to a deadline, as under a heavy computation, the answer may have been lying in the kernel for
long. `asyncio.timeout` would then cancel a probe that was answered in time: here a deadline that was met late is moved
by as much as it was late, and what is readable is read before any probe is given up.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

_ON_TIME_S = 0.005
"""Lateness of a loop that is not overloaded."""
_MOST_MOVES = 3


class Deadline:
    """A context in which the task works for `timeout_s`. Raises TimeoutError behind it."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._moves = 0
        self._loop = asyncio.get_running_loop()
        self.is_over = False

    async def __aenter__(self) -> Self:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a deadline needs a task")
        self._task, self._cancelled_before = task, task.cancelling()
        self._due_s = self._loop.time() + self._timeout_s
        self._handle: asyncio.Handle = self._loop.call_at(self._due_s, self._due)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._handle.cancel()
        if self.is_over and self._task.uncancel() <= self._cancelled_before and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _due(self) -> None:
        late_s = self._loop.time() - self._due_s
        if late_s > _ON_TIME_S and self._moves < _MOST_MOVES:
            self._moves += 1
            self._due_s = self._loop.time() + min(late_s, self._timeout_s)
            self._handle = self._loop.call_at(self._due_s, self._due)
            return
        # In this turn of the loop answers may have been read whose task runs in the next one.
        self._handle = self._loop.call_soon(self._last_turn)

    def _last_turn(self) -> None:
        self._handle = self._loop.call_soon(self._give_up)

    def _give_up(self) -> None:
        self.is_over = True
        self._task.cancel()
