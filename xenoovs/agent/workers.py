"""What goes on beside the rounds: probes, the control socket, watchers. All of it ends with the agent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

Work = Callable[[], Coroutine[None, None, None]]
"""Makes the coroutine of one worker, which may go on for ever; it is cancelled at the end."""


class Workers:
    """Tasks of one event loop. A mistake of ours in one ends the agent: none may go on without its eyes."""

    def __init__(self, failed: Callable[[], None]) -> None:
        """`failed`: called after a task has ended by an exception, which is kept in `mistake`."""
        self.mistake: BaseException | None = None
        self._failed = failed
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[None, None, None]) -> None:
        """Let it run beside everything else."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    async def stop(self) -> None:
        """Cancel all and wait for their ends."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (mistake := task.exception()) is not None:
            self.mistake = self.mistake or mistake
            self._failed()
