"""`xenoovs top`: who gets what, live."""

from __future__ import annotations

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
    from xenoovs.cli.top_view import Order

_RATES_PATIENCE_S = 6.0
"""For `--once`: an agent that nobody asks does not look at the hardware, and rates take two looks."""
_RETRY_S = 0.5
_WIDTH_OF_PIPES = 120


@click.command("top")
@agent_options
@click.option("--interval", "interval_s", type=duration, default="2s", show_default=True, help="Between two looks.")
@click.option("--once", is_flag=True, help="Print one frame and end, as without a terminal.")
def command(*, interval_s: float, once: bool, **where: Any) -> None:
    """Show live who gets what: for each backend of a running agent its state, shares, packets, and where they run.

    WANTED: share by weight. SEEN: share of the packets between the last two looks at the datapath. NIC: of its packets,
    those that the NIC forwards. SINCE: how long its state has lasted.

    Keys: arrows choose, d drains the chosen backend and u undrains it (both ask first), s sorts, q ends.
    """
    from xenoovs.cli.agent_client import find_client

    client = find_client(Where(**where))
    if once or not (sys.stdin.isatty() and sys.stdout.isatty()):
        _print_once(client)
        return
    from xenoovs.cli.top_terminal import raw_terminal

    first = _ask(client)
    with raw_terminal() as terminal:
        Screen(client, terminal, interval_s, first).run()


class Screen:
    """The loop: look, show, wait for a key."""

    def __init__(self, client: Client, terminal: Terminal, interval_s: float, first: Snapshot) -> None:
        from xenoovs.cli.top_view import View

        self._client, self._terminal, self._interval_s = client, terminal, interval_s
        self._snapshot, self._view = first, View()

    def run(self) -> None:
        """Until q."""
        from xenoovs.cli.top_view import Order, Quit, pressed

        next_s = time.monotonic() + self._interval_s
        while True:
            self._show()
            key = self._terminal.key(next_s - time.monotonic())
            if key is None:
                self._look()
                next_s = time.monotonic() + self._interval_s
                continue
            page = max((self._terminal.size.height or 0) - 6, 1)
            self._view, wanted = pressed(self._view, key, self._snapshot, page=page)
            if isinstance(wanted, Quit):
                return
            if isinstance(wanted, Order):
                self._give(wanted)
                self._look()

    def _show(self) -> None:
        from xenoovs.cli.top_frame import frame

        self._terminal.show(frame(self._snapshot, self._view, self._terminal.size))

    def _look(self) -> None:
        """An agent that is restarted is what whoever watches wants to see come back."""
        from xenoovs.errors import XenoovsError

        try:
            self._snapshot = _ask(self._client)
        except XenoovsError as error:
            self._view = replace(self._view, message=f"not now: {error}")
            return
        if self._view.message.startswith("not now: "):
            self._view = replace(self._view, message="")

    def _give(self, order: Order) -> None:
        from xenoovs.errors import XenoovsError

        self._view = replace(self._view, message=f"{order.task.value} {'/'.join(order.names)} …")
        self._show()
        service, backend = order.names
        try:
            done = self._client.ask(order.task.value, {"service": service, "backend": backend})
        except XenoovsError as error:
            self._view = replace(self._view, message=str(error))
            return
        self._view = replace(self._view, message=done["message"])


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
