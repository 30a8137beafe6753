"""`xenoovs top`: backends with their shares, live."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any

import click

from xenoovs.cli.status import agent_document
from xenoovs.errors import XenoovsError
from xenoovs.show.agent import parse_snapshot
from xenoovs.show.screen import Terminal, is_live, once_size, raw_terminal
from xenoovs.show.top import Order, Quit, View, frame, pressed
from xenoovs.terminal.agent_client import Where, agent_options, find_client, options_of
from xenoovs.terminal.options import OutputFormat, duration, output_option
from xenoovs.terminal.output import echo, print_json

if TYPE_CHECKING:
    from xenoovs.agent.control.client import Client
    from xenoovs.show.agent import Snapshot


# Requests to the agent, in threads: the loop that reads keys must not wait for the status of thousands of backends.


@dataclass(frozen=True, slots=True)
class StatusAnswer:
    """A snapshot, or why there is none, and how long it took."""

    snapshot: Snapshot | None
    silence: str
    cost_s: float


@dataclass(frozen=True, slots=True)
class OrderAnswer:
    """The answer of the agent to an order."""

    message: str


class Requests:
    """One request of the status at a time, and orders. `done`: called in another thread when there is an answer."""

    def __init__(self, client: Client, *, done: Callable[[], None]) -> None:
        self.is_pending = False
        self._client, self._done = client, done
        self._answers: SimpleQueue[StatusAnswer | OrderAnswer] = SimpleQueue()

    def refresh(self) -> None:
        """Request the status, unless a request is pending."""
        if not self.is_pending:
            self.is_pending = True
            self._begin(self._status)

    def send(self, order: Order) -> None:
        self._begin(lambda: self._send(order))

    def answer(self) -> StatusAnswer | OrderAnswer | None:
        """Return the next answer; None: there is none yet."""
        try:
            found = self._answers.get_nowait()
        except Empty:
            return None
        if isinstance(found, StatusAnswer):
            self.is_pending = False
        return found

    def _begin(self, ask: Callable[[], StatusAnswer | OrderAnswer]) -> None:
        def run() -> None:
            self._answers.put(ask())
            self._done()

        # `top` must end although the agent hangs.
        Thread(target=run, daemon=True).start()

    def _status(self) -> StatusAnswer:
        begun_s = time.monotonic()
        try:
            found = _ask(self._client)
        except XenoovsError as error:
            return StatusAnswer(None, str(error), time.monotonic() - begun_s)
        return StatusAnswer(found, "", time.monotonic() - begun_s)

    def _send(self, order: Order) -> OrderAnswer:
        service, backend = order.names
        try:
            done = self._client.ask(order.task.value, {"service": service, "backend": backend})
        except XenoovsError as error:
            return OrderAnswer(str(error))
        return OrderAnswer(str(done["message"]))


_RATES_PATIENCE_S = 6.0
"""For `--once`: an agent takes offload samples on request, and rates need two samples."""
_RETRY_S = 0.5
_LONGEST_S = 60.0
"""Longest time between two frames."""
_PAUSE_RATIO = 9
"""A pause is at least so many times as long as a request took: 16,000 backends take half a second of CPU."""


@click.command("top")
@agent_options
@click.option(
    "--interval",
    "interval_s",
    type=duration,
    metavar="TIME",
    default="2s",
    show_default=True,
    help="Time between two refreshes.",
)
@click.option("--once", is_flag=True, help="Print one frame and end, as without a terminal.")
@output_option
def top_command(*, interval_s: float, once: bool, where: Where, output: OutputFormat) -> None:
    """Show the backends of a running agent live: states, shares, packets, and how many are in hardware.

    TARGET: share of the clients by weight. TRAFFIC: share of the packets between the last two samples of the datapath.
    IN HW: share of its packets in hardware. SINCE: how long its state has lasted.

    Keys: arrows choose, d drains the chosen backend and u undrains it (both ask first), s sorts, q quits. With
    thousands of backends the view refreshes less often, so that it takes no more than a tenth of the time.

    --once -o json prints one document, that of `xenoovs status -o json`, as soon as there are rates, after 6 s at most.
    """
    is_once = once or not is_live()
    if output is OutputFormat.JSON and not is_once:
        raise click.UsageError("-o json prints one document and ends: add --once.")
    client = find_client(where)
    if is_once:
        _print_once(_with_rates(client), output, options=options_of(client, where))
        return

    first = _ask(client)
    with raw_terminal() as terminal:
        Screen(client, terminal, interval_s, first, options=options_of(client, where)).run()


class Screen:
    """The loop: request the status, draw, wait for a key."""

    def __init__(
        self, client: Client, terminal: Terminal, interval_s: float, first: Snapshot, *, options: str = ""
    ) -> None:
        """Begin with a snapshot. `options`: what suggested commands need to reach the agent, after a space."""
        self._terminal, self._interval_s = terminal, interval_s
        self._requests = Requests(client, done=terminal.wake)
        self._snapshot, self._view = first, View(options=options)
        self._next_s = time.monotonic() + interval_s

    def run(self) -> None:
        """Run until the user quits."""
        while True:
            self._show()
            key = self._terminal.key(_LONGEST_S if self._requests.is_pending else self._next_s - time.monotonic())
            if key is not None and not self._pressed(key):
                return
            self._receive()
            if time.monotonic() >= self._next_s:
                self._requests.refresh()

    def _show(self) -> None:
        self._terminal.show(frame(self._snapshot, self._view, self._terminal.size))

    def _pressed(self, key: str) -> bool:
        """Handle a key. Returns whether to go on."""
        if key == "ctrl-z":
            self._terminal.suspend()
            return True
        page = max((self._terminal.size.height or 0) - 6, 1)
        self._view, action = pressed(self._view, key, self._snapshot, page=page)
        if isinstance(action, Order):
            self._view = replace(self._view, message=f"{action.task.value} {'/'.join(action.names)} …")
            self._requests.send(action)
        return not isinstance(action, Quit)

    def _receive(self) -> None:
        """Process the answers of the agent. While it does not answer, as during a restart, the old data stays."""
        while (answer := self._requests.answer()) is not None:
            if isinstance(answer, OrderAnswer):
                self._view = replace(self._view, message=answer.message)
                self._next_s = time.monotonic()
                continue
            self._snapshot = answer.snapshot or self._snapshot
            self._view = replace(self._view, silence=answer.silence)
            self._next_s = time.monotonic() + max(self._interval_s, answer.cost_s * _PAUSE_RATIO)


def _ask(client: Client) -> Snapshot:
    return parse_snapshot(client.ask("status")["snapshot"])


def _with_rates(client: Client) -> dict[str, Any]:
    """Return the status with rates; without them if there are none in time."""
    deadline_s = time.monotonic() + _RATES_PATIENCE_S
    status: dict[str, Any] = client.ask("status")
    while not _has_rates(parse_snapshot(status["snapshot"])) and time.monotonic() < deadline_s:
        time.sleep(_RETRY_S)
        status = client.ask("status")
    return status


def _print_once(status: dict[str, Any], output: OutputFormat, *, options: str) -> None:
    if output is OutputFormat.JSON:
        print_json(agent_document(status))
        return
    for text in frame(parse_snapshot(status["snapshot"]), View(options=options), once_size()):
        echo(text)


def _has_rates(snapshot: Snapshot) -> bool:
    return any(backend.rate is not None for backend in snapshot.backends)
