"""Lets whoever asked for a change wait for the round that makes it."""

from __future__ import annotations

import asyncio

from xenoovs.agent.reconcile import Round
from xenoovs.errors import XenoovsError

Outcome = Round | XenoovsError


class Waiting:
    """Futures of rounds to come; within one event loop."""

    def __init__(self) -> None:
        self._next: list[asyncio.Future[Outcome]] = []

    def ticket(self) -> asyncio.Future[Outcome]:
        """What the next round that begins comes to."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._next.append(future)
        return future

    def take(self) -> list[asyncio.Future[Outcome]]:
        """Those who wait for the round that begins now."""
        waiting, self._next = self._next, []
        return waiting


def settle(waiting: list[asyncio.Future[Outcome]], outcome: Outcome) -> None:
    """Tell them; those who gave up are left out."""
    for future in waiting:
        if not future.done():
            future.set_result(outcome)
