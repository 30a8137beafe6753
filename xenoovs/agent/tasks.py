"""Tasks that run in parallel to the rounds of an agent: probes, the control socket, watches. All end with the agent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from contextlib import suppress
from threading import Lock
from typing import Any, ParamSpec, TypeVar

from xenoovs.errors import SHORTAGES, fault_text
from xenoovs.log import warn

Running = Coroutine[None, None, None]
TaskFactory = Callable[[], Running]
"""Returns the coroutine of a task, which may run for ever. It is cancelled when the agent ends."""

_RETRY_S = 1.0
_ON_TIME_S = 0.005
"""Largest lateness of an event loop that is not overloaded."""
_MAX_EXTENSIONS = 3
_Facts = ParamSpec("_Facts")
_Result = TypeVar("_Result")


class Overdue(asyncio.TimeoutError):
    """What was awaited took too long."""


async def within(timeout_s: float, awaitable: Awaitable[_Result]) -> _Result:
    """Return what `awaitable` returns. Raises Overdue after `timeout_s`.

    It replaces asyncio.wait_for(), which before Python 3.12 loses a cancellation that comes together with the result,
    so that a task that waits in a loop never ends (cpython, Lib/asyncio/tasks.py). And if a busy event loop reaches the
    end of the time late, the kernel may already have the answer. So the time is extended by this lateness.
    """
    loop, waiting = asyncio.get_running_loop(), asyncio.ensure_future(awaitable)
    try:
        due_s = loop.time() + timeout_s
        for _ in range(1 + _MAX_EXTENSIONS):
            await asyncio.wait({waiting}, timeout=due_s - loop.time())
            late_s = loop.time() - due_s
            if waiting.done() or late_s <= _ON_TIME_S:
                break
            due_s = loop.time() + min(late_s, timeout_s)
        if not waiting.done():
            # Answers that the loop has just read wake their tasks now.
            await asyncio.sleep(0)
        if not waiting.done():
            raise Overdue
        return waiting.result()
    finally:
        if waiting.cancel():
            await asyncio.wait({waiting})
        _ = waiting.cancelled() or waiting.exception()  # otherwise asyncio logs it with a traceback


def call_each(listeners: Iterable[Callable[_Facts, object]], *facts: _Facts.args, **named: _Facts.kwargs) -> None:
    """Call all listeners. An exception of a listener is only logged."""
    for listener in listeners:
        try:
            listener(*facts, **named)
        except Exception as error:  # noqa: BLE001 - a listener must not end the agent.
            warn("internal error in a listener", reason=fault_text(error))


def run_loop(loop: asyncio.AbstractEventLoop, main: Awaitable[_Result]) -> _Result:
    """Return what `main` returns, cancel what still runs then, and close the loop, as asyncio.run() does."""
    try:
        return loop.run_until_complete(main)
    finally:
        loop.run_until_complete(_end(asyncio.all_tasks(loop)))
        loop.close()


async def _end(tasks: Collection[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class LoopCall:
    """Calls a function in an event loop, from any thread. Calls before the function has run are merged into one.

    Each call_soon_threadsafe() writes a byte to the pipe of the loop, which also reports signals. If the pipe is full,
    signals are lost (asyncio/selector_events.py, _write_to_self; signal.set_wakeup_fd).
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> None:
        self._loop, self._function = loop, function
        self._lock, self._is_due = Lock(), False

    def __call__(self) -> None:
        with self._lock:
            if self._is_due:
                return
            self._is_due = True
        with suppress(RuntimeError):
            # The loop may have ended.
            self._loop.call_soon_threadsafe(self._run)

    def _run(self) -> None:
        self._is_due = False
        self._function()


async def kept_running(factory: TaskFactory) -> None:
    """Run a task, and start it again after an exception, which does not affect other tasks."""
    while True:
        try:
            return await factory()
        except Exception as error:  # noqa: BLE001
            is_shortage = isinstance(error, OSError) and error.errno in SHORTAGES
            warn("a task failed; starting it again", reason=str(error) if is_shortage else fault_text(error))
        await asyncio.sleep(_RETRY_S)


class BackgroundTasks:
    """Tasks of one event loop. An exception in a task is logged, and does not affect other tasks."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, coroutine: Running) -> None:
        """Run a coroutine in parallel to all others."""
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def stop(self) -> None:
        """Cancel all tasks and wait for their end."""
        await _end(tuple(self._tasks))

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            warn("a task failed", reason=fault_text(failure))


async def run_all(coroutines: Iterable[Running], *, beside: Iterable[Running] = ()) -> None:
    """Run coroutines to their end. The first that fails cancels all others, and its exception is raised. `beside`:
    coroutines that are cancelled when `coroutines` have ended."""
    awaited = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    tasks = (*awaited, *map(asyncio.ensure_future, beside))
    try:
        await asyncio.gather(*awaited)
    finally:
        await _end(tasks)
