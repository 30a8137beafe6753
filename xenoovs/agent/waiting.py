"""Lets whoever asked for a change wait for the round that makes it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from xenoovs.engine.change import Change
from xenoovs.errors import XenoovsError

Outcome = Change | XenoovsError


@contextmanager
def told_if_late(late: Callable[[], None], *, after_s: float) -> Iterator[None]:
    """Call `late` if the `with` is not over after this time; within an event loop."""
    timer = asyncio.get_running_loop().call_later(after_s, late)
    try:
        yield
    finally:
        timer.cancel()


class Waiting:
    """Futures of rounds to come; within one event loop."""

    def __init__(self) -> None:
        self._next: list[asyncio.Future[Outcome]] = []
        self._now: list[asyncio.Future[Outcome]] = []

    def ticket(self) -> asyncio.Future[Outcome]:
        """What the next round that begins comes to."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._next.append(future)
        return future

    def begin(self) -> None:
        """A round begins: it knows all that was asked until now, and nothing that is asked later."""
        self._now, self._next = self._now + self._next, []

    def settle(self, outcome: Outcome) -> None:
        """The round that began is over. Those who gave up waiting are left out."""
        settled, self._now = self._now, []
        for future in settled:
            if not future.done():
                future.set_result(outcome)
