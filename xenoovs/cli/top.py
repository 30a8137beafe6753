"""`xenoovs top`: who gets what, live."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from xenoovs.cli.agent_client import Where, agent_options
from xenoovs.cli.options import duration

if TYPE_CHECKING:
    from xenoovs.agent.control.client import Client
    from xenoovs.agent.snapshot import Snapshot
    from xenoovs.cli.top_terminal import Terminal

_RATES_PATIENCE_S = 6.0
"""For `--once`: an agent that nobody asks does not look at the hardware, and rates take two looks."""
_RETRY_S = 0.5
_WIDTH_OF_PIPES = 120
_LONGEST_S = 60.0
"""Without a key and without an answer; then it is shown anew."""
_REST = 9
"""Times as long as a look took there is none: a look at 16,000 backends takes half a second of CPU."""


@click.command("top")
@agent_options
@click.option("--interval", "interval_s", type=duration, default="2s", show_default=True, help="Between two looks.")
@click.option("--once", is_flag=True, help="Print one frame and end, as without a terminal.")
def command(*, interval_s: float, once: bool, **where: Any) -> None:
    """Show live who gets what: for each backend of a running agent its state, shares, packets, and where they run.

    WANTED: share by weight. SEEN: share of the packets between the last two looks at the datapath. NIC: of its packets,
    those that the NIC forwards. SINCE: how long its state has lasted.

    Keys: arrows choose, d drains the chosen backend and u undrains it (both ask first), s sorts, q ends. With thousands
    of backends it looks less often, so that looks take no more than a tenth of the time.
    """
    from xenoovs.cli.agent_client import find_client

    client = find_client(Where(**where))
    if once or not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM", "dumb") == "dumb":
        _print_once(client)
        return
    from xenoovs.cli.top_terminal import raw_terminal

    first = _ask(client)
    with raw_terminal() as terminal:
        Screen(client, terminal, interval_s, first).run()


class Screen:
    """The loop: look, show, wait for a key."""

    def __init__(self, client: Client, terminal: Terminal, interval_s: float, first: Snapshot) -> None:
        from xenoovs.cli.top_asking import Asking
        from xenoovs.cli.top_view import View

        self._terminal, self._interval_s = terminal, interval_s
        self._asking = Asking(client, done=terminal.wake)
        self._snapshot, self._view = first, View()
        self._next_s = time.monotonic() + interval_s

    def run(self) -> None:
        """Until q."""
        while True:
            self._show()
            key = self._terminal.key(_LONGEST_S if self._asking.is_looking else self._next_s - time.monotonic())
            if key is not None and not self._pressed(key):
                return
            self._hear()
            if time.monotonic() >= self._next_s:
                self._asking.look()

    def _show(self) -> None:
        from xenoovs.cli.top_frame import frame

        self._terminal.show(frame(self._snapshot, self._view, self._terminal.size))

    def _pressed(self, key: str) -> bool:
        """Whether to go on."""
        from xenoovs.cli.top_view import Order, Quit, pressed

        if key == "ctrl-z":
            self._terminal.suspend()
            return True
        page = max((self._terminal.size.height or 0) - 6, 1)
        self._view, wanted = pressed(self._view, key, self._snapshot, page=page)
        if isinstance(wanted, Order):
            self._view = replace(self._view, message=f"{wanted.task.value} {'/'.join(wanted.names)} …")
            self._asking.give(wanted)
        return not isinstance(wanted, Quit)

    def _hear(self) -> None:
        """Take what the agent has answered. One that is restarted is what whoever watches wants to see come back."""
        from xenoovs.cli.top_asking import Given

        while (heard := self._asking.answer()) is not None:
            if isinstance(heard, Given):
                self._view = replace(self._view, message=heard.message)
                self._next_s = time.monotonic()
                continue
            self._snapshot = heard.snapshot or self._snapshot
            self._view = replace(self._view, silence=heard.silence)
            self._next_s = time.monotonic() + max(self._interval_s, heard.cost_s * _REST)


def _ask(client: Client) -> Snapshot:
    from xenoovs.agent.document import from_document

    return from_document(client.ask("status")["snapshot"])


def _print_once(client: Client) -> None:
    from xenoovs.cli.output import is_terminal
    from xenoovs.cli.top_frame import Size, frame
    from xenoovs.cli.top_line import text_of
    from xenoovs.cli.top_view import View

    deadline_s = time.monotonic() + _RATES_PATIENCE_S
    snapshot = _ask(client)
    while not _has_rates(snapshot) and time.monotonic() < deadline_s:
        time.sleep(_RETRY_S)
        snapshot = _ask(client)
    if is_terminal():
        import shutil

        from xenoovs.cli.top_terminal import painted

        for line in frame(snapshot, View(), Size(shutil.get_terminal_size().columns)):
            click.echo(painted(line))
        return
    for line in frame(snapshot, View(), Size(_WIDTH_OF_PIPES)):
        click.echo(text_of(line))


def _has_rates(snapshot: Snapshot) -> bool:
    return any(backend.rate is not None for service in snapshot.services for backend in service.backends)
