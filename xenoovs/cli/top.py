"""`xenoovs top`: backends with their shares, live."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import click

from xenoovs.cli.status import agent_document
from xenoovs.errors import XenoovsError
from xenoovs.show.agent import Snapshot, parse_snapshot
from xenoovs.show.screen import Ask, Size, is_live, once_size, run_live
from xenoovs.show.top import Order, Quit, View, frame, pressed
from xenoovs.terminal.agent_client import Where, agent_options, find_client, options_of
from xenoovs.terminal.options import OutputFormat, live_interval_option, once_option, output_option
from xenoovs.terminal.output import echo

if TYPE_CHECKING:
    from xenoovs.agent.control.client import Client


_RATES_PATIENCE_S = 6.0
"""For `--once`: an agent takes offload samples on request, and rates need two samples."""
_RETRY_S = 0.5
_LINES_AROUND = 6
"""Of a frame that are no rows."""


@click.command("top")
@agent_options
@live_interval_option
@once_option
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
        _print_once(client, output, options=options_of(client, where))
        return

    run_live(
        interval_s,
        (_ask(client), View(options=options_of(client, where))),
        draw=lambda state, size: frame(*state, size),
        refresh=partial(_refreshed, client),
        press=partial(_press, client),
    )


State = tuple[Snapshot, View]


def _refreshed(client: Client) -> Callable[[State], State]:
    """Request the status. While the agent does not answer, as during a restart, the old data stays."""
    try:
        found = _ask(client)
    except XenoovsError as error:
        silence = str(error)
        return lambda state: (state[0], replace(state[1], silence=silence))
    return lambda state: (found, replace(state[1], silence=""))


def _sent(client: Client, order: Order) -> Callable[[State], State]:
    service, backend = order.names
    try:
        message = str(client.ask(order.task.value, {"service": service, "backend": backend})["message"])
    except XenoovsError as error:
        message = str(error)
    return lambda state: (state[0], replace(state[1], message=message))


def _press(client: Client, state: State, key: str, size: Size) -> tuple[State, Ask[State] | None] | None:
    snapshot, view = state
    view, action = pressed(view, key, snapshot, page=max((size.height or 0) - _LINES_AROUND, 1))
    if isinstance(action, Order):
        view = replace(view, message=f"{action.task.value} {'/'.join(action.names)} …")
        return (snapshot, view), partial(_sent, client, action)
    return None if action is Quit.QUIT else ((snapshot, view), None)


def _ask(client: Client) -> Snapshot:
    return parse_snapshot(client.ask("status")["snapshot"])


def _print_once(client: Client, output: OutputFormat, *, options: str) -> None:
    """Print the status with rates; without them if there are none in time."""
    deadline_s = time.monotonic() + _RATES_PATIENCE_S
    while True:
        status = client.ask("status")
        snapshot = parse_snapshot(status["snapshot"])
        if any(backend.rate is not None for backend in snapshot.backends) or time.monotonic() >= deadline_s:
            break
        time.sleep(_RETRY_S)
    lines = frame(snapshot, View(options=options), once_size())
    output.show(lambda: agent_document(status), lambda: echo("\n".join(lines)))
