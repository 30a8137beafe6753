"""Tasks that run beside the rounds of an agent: probes, the control socket, watches. All end with the agent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable

Running = Coroutine[None, None, None]
TaskFactory = Callable[[], Running]
"""Returns the coroutine of a task, which may run for ever. It is cancelled when the agent ends."""


class BackgroundTasks:
    """Tasks of one event loop. An unexpected exception in one ends the agent: systemd starts it again.

    Attributes:
        failure: The first exception that ended a task.
    """

    def __init__(self, on_failure: Callable[[], None]) -> None:
        """Call `on_failure` when an exception has ended a task."""
        self.failure: BaseException | None = None
        self._on_failure = on_failure
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, coroutine: Running) -> None:
        """Run a coroutine beside all others."""
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def stop(self) -> None:
        """Cancel all tasks and wait for their end."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            self.failure = self.failure or failure
            self._on_failure()


async def run_all(coroutines: Iterable[Running], *, beside: Iterable[Running] = ()) -> None:
    """Run coroutines to their end. The first that fails ends all others, and its exception is raised.

    Args:
        coroutines: What to wait for.
        beside: These are cancelled when `coroutines` have ended.
    """
    awaited = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    pending = {*awaited, *map(asyncio.ensure_future, beside)}
    tasks = tuple(pending)
    try:
        while not all(task.done() for task in awaited):
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
