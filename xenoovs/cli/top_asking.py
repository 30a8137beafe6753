"""Asks the agent for `xenoovs top` beside the loop that reads keys, which must not wait for thousands of backends."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

from xenoovs.agent.document import from_document
from xenoovs.errors import XenoovsError

if TYPE_CHECKING:
    from xenoovs.agent.control.client import Client
    from xenoovs.agent.snapshot import Snapshot
    from xenoovs.cli.top_view import Order


@dataclass(frozen=True, slots=True)
class Looked:
    """What a look came to: a snapshot, or why there is none; and how many seconds it took."""

    snapshot: Snapshot | None
    silence: str
    cost_s: float


@dataclass(frozen=True, slots=True)
class Given:
    """What the agent said to an order."""

    message: str


class Asking:
    """One look at a time, and orders beside it. `done`: called in another thread when there is an answer."""

    def __init__(self, client: Client, *, done: Callable[[], None]) -> None:
        self.is_looking = False
        self._client, self._done = client, done
        self._answers: SimpleQueue[Looked | Given] = SimpleQueue()

    def look(self) -> None:
        """Begin, unless a look is under way."""
        if not self.is_looking:
            self.is_looking = True
            self._begin(self._look)

    def give(self, order: Order) -> None:
        self._begin(lambda: self._give(order))

    def answer(self) -> Looked | Given | None:
        """The next that has come; None: none has."""
        try:
            found = self._answers.get_nowait()
        except Empty:
            return None
        if isinstance(found, Looked):
            self.is_looking = False
        return found

    def _begin(self, ask: Callable[[], Looked | Given]) -> None:
        def run() -> None:
            self._answers.put(ask())
            self._done()

        # An agent that hangs must not keep the end of `top` waiting.
        Thread(target=run, daemon=True).start()

    def _look(self) -> Looked:
        begun_s = time.monotonic()
        try:
            found = from_document(self._client.ask("status")["snapshot"])
        except XenoovsError as error:
            return Looked(None, str(error), time.monotonic() - begun_s)
        return Looked(found, "", time.monotonic() - begun_s)

    def _give(self, order: Order) -> Given:
        service, backend = order.names
        try:
            done = self._client.ask(order.task.value, {"service": service, "backend": backend})
        except XenoovsError as error:
            return Given(str(error))
        return Given(str(done["message"]))
